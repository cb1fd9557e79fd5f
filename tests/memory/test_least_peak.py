"""The least peak of real models, held against lifetimes cut by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memlint.memory.devices import device_named
from memlint.memory.liveness import least_peak
from memlint.memory.records import Category
from memlint.memory.timeline import Timeline, end_at, live
from memlint.tracing.recorder import trace_program
from memlint.workloads.construction.construct import build_program
from memlint.workloads.discover import find_workloads

if TYPE_CHECKING:
    from memlint.memory.records import Trace

MODELS = str(Path(__file__).parents[2] / "fixtures" / "models")
STAY = {Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.WORKSPACE, Category.INPUT}
MIB = 2**20


SHALLOW = {"gpt2": "GPT2(GPT2Config(num_layers=2))", "unet": "UNet()", "llama": "Llama(LlamaConfig(num_layers=2))"}


def trace_of(model: str, folder: Path) -> Trace:
    file = folder / "shallow.py"
    file.write_text(
        f"import sys; sys.path.append({MODELS!r})\nfrom {model} import *\ndef make(): return {SHALLOW[model]}\n"
    )
    (workload,) = find_workloads(f"{file}::make", folder).workloads
    return trace_program(build_program(workload, folder), device_named("a100-80gb")).trace


def cut_by_hand(trace: Trace) -> Timeline:
    """The Timeline in which every Buffer that serves no later step closes after its own last use."""
    users: dict[int, list[int]] = {buffer.id: [] for buffer in trace.buffers}
    for node in trace.nodes:
        for geometry in (*node.inputs, *node.outputs):
            if geometry.buffer >= 0:
                users[geometry.buffer].append(node.index)
    last = {buffer.id: max((buffer.node, *users[buffer.id])) for buffer in trace.buffers}
    return end_at(Timeline.of(trace), {b.id: last[b.id] for b in trace.buffers if b.category not in STAY})


@pytest.mark.parametrize("model", ["gpt2", "unet", "llama"])
def test_least_peak_is_that_of_lifetimes_cut_by_hand(tmp_path: Path, model: str) -> None:
    trace = trace_of(model, tmp_path)
    before, least = max(live(Timeline.of(trace))), least_peak(trace)
    assert least == max(live(cut_by_hand(trace)))
    # The loss of the language models binds what they return; the U-Net lets go of nearly everything itself.
    assert (before - least >= 100 * MIB) == (model != "unet")
    assert least < before


def test_what_one_step_after_the_other_uses_stays(make_trace) -> None:
    trace = make_trace(
        [
            {"opens": [100], "setup": True, "category": Category.INPUT},
            {"opens": [50], "uses": [0], "step": 0},
            {"opens": [8], "step": 0, "closes": [2]},
            {"uses": [0, 1], "step": 1},
            {"opens": [10], "uses": [0], "step": 1},
        ]
    )
    assert least_peak(trace) == max(live(Timeline.of(trace))) == 160


def test_what_is_never_used_dies_after_the_kernel_that_made_it(make_trace) -> None:
    trace = make_trace([{"opens": [100]}, {"opens": [60]}, {"opens": [5], "closes": [0]}])
    assert (max(live(Timeline.of(trace))), least_peak(trace)) == (165, 100)
    assert least_peak(make_trace([])) == 0
