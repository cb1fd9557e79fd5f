"""The longest prompt that fits, held against traces of longer and shorter ones."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from memlint.commands.sweep.tables_text import render_fits
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.estimate import peaks
from memlint.report.tables import Fit, Fits, LongestPrompt
from memlint.report.text_style import TextStyle
from memlint.scaling.scaled import lives_of
from memlint.session.prompts import longest_prompt
from memlint.targets.workload import Workload
from memlint.tracing.workload_errors import storages_of_workload
from memlint.workloads.construction.construct import complete, completed_program

FILE = Path(__file__).parents[2] / "fixtures" / "models" / "generating.py"
SETTINGS = AllocatorSettings()

pytestmark = pytest.mark.usefixtures("armed")


def generation(model, prompt, new_tokens=3):
    sizes = {"prompt": prompt, "new_tokens": new_tokens, "num_beams": 1}
    own = Workload(model, f"{FILE}::{model}", str(FILE), model, mode="generate", batch=2, dimensions=sizes)
    return complete(replace(own, gpu="a100-80gb"))[0]


def lives_after(own, prompt, device):
    here = replace(own, dimensions={**own.dimensions, "prompt": prompt})
    return lives_of(storages_of_workload(completed_program(here), device, SETTINGS))


def searched(own, device):
    lives = lives_after(own, own.dimensions["prompt"], own.device)
    config = completed_program(own).construct(own).model.config
    return longest_prompt(own, completed_program, device, lives, config)


def most_device(own, prompt, device):
    lives = lives_after(own, prompt, device)
    return peaks(lives.sizes, lives.events, lives.doubts, device, SETTINGS, lives.streams).device.high


@pytest.mark.parametrize("asked", [300, 1500])
def test_the_longest_prompt_fits_and_a_slightly_longer_one_does_not(asked):
    own = generation("llama", asked)
    full = replace(own.device, total_nbytes=most_device(own, 700, own.device))
    found = searched(own, full)
    assert 700 <= found.prompt <= 800  # the allocator asks for 20 MiB at once
    assert most_device(own, found.prompt, full) == found.device.high <= full.total_nbytes
    assert most_device(own, found.prompt + found.prompt // 4, full) > full.total_nbytes


def test_the_positions_of_the_model_are_its_longest_prompt_and_new_tokens():
    own = generation("llama", 16)
    found = searched(own, own.device)
    assert found.prompt == found.of_model
    assert found.is_limit
    model = completed_program(own).construct(own).model
    assert found.of_model + 3 == model.config.max_position_embeddings


def test_where_not_even_one_token_fits_the_longest_prompt_is_none():
    own = generation("llama", 16)
    found = searched(own, replace(own.device, total_nbytes=1024))
    assert (found.prompt, found.device) == (0, None)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (LongestPrompt(prompt=0, batch=8), "At batch 8 no prompt fits."),
        (
            LongestPrompt(prompt=1008, batch=8, of_model=1008, device={"low": 2**30, "estimate": 2**30, "high": 2**30}),
            "1,008 tokens, as long as the model takes beside the new tokens, with 1.00 GiB.",
        ),
    ],
)
def test_the_longest_prompt_is_one_sentence(prompt, said):
    fit = Fit(
        name="GPT",
        target="m.py",
        mode="generate",
        dtype="bfloat16",
        gpu="t4",
        gpu_title="NVIDIA T4",
        gpu_nbytes=2**34,
        optimizer=None,
        batch=8,
        longest_prompt=prompt,
    )
    assert said in render_fits(Fits(tool="0", fits=(fit,)), "text", TextStyle())
