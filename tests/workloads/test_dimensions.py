"""Named dimensions other than the batch: where they come from, and what other sizes change."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from click.testing import CliRunner

import memlint.commands.check.check
from memlint import cli
from memlint.base.errors import UsageError, WorkloadError
from memlint.commands.check.check import Checked
from memlint.config import Settings, override
from memlint.report.model import Report
from memlint.session.process_setup import ProcessSetup
from memlint.session.target import find_requested
from memlint.targets.workload_tables import render_declaration
from memlint.worker.protocol import Request
from memlint.workloads.construction.construct import build, build_program, complete, completed_program
from memlint.workloads.construction.dimensions import resized
from memlint.workloads.discover import find_workloads
from tests.in_process import analysed
from tests.workloads.tables import read_workloads

if TYPE_CHECKING:
    from memlint.targets.workload import Workload

pytestmark = pytest.mark.usefixtures("copied_pythons")

PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"
NET = """
import functools
import memlint

class Net(nn.Module):
    def __init__(self, words=50, width=8):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.head = nn.Linear(width, words)
    def forward(self, tokens):
        return self.head(self.table(tokens))
def tokens(batch, length):
    return torch.zeros(batch, length, dtype=torch.int64)
"""
TOKENS = 'inputs = { tokens = { shape = ["batch", "seq"], dtype = "int64", high = 50 } }\n'


def found(path: Path, name: str = "", **overrides: Any) -> Workload:
    text = f"{path}::{name}" if name else str(path)
    return find_workloads(text, path.parent, overrides=overrides).workloads[0]


def settled(path: Path, name: str = "", **overrides: Any) -> Workload:
    return complete(found(path, name, **overrides), path.parent)[0]


def table(path: Path, text: str, **overrides: Any) -> Workload:
    (path.parent / "pyproject.toml").write_text(f'[[tool.memlint.workload]]\ntarget = "{path.name}::Net"\n{text}\n')
    tables = read_workloads(path.parent / "pyproject.toml")
    return find_workloads(f"{path}::Net", path.parent, tables, overrides).workloads[0]


def shapes(workload: Workload) -> dict[str, tuple[int, ...]]:
    """Of the inputs that a program of a settled Workload really gets."""
    program = dataclasses.replace(completed_program(workload), device="cpu")
    program.setup()
    program.step()
    return {name: tuple(value.shape) for name, value in program.inputs.items()}


def lives(workload: Workload, root: Path) -> tuple[object, ...]:
    """Everything a trace says about bytes: kernels and Buffers in order, and the peaks."""
    analysis = analysed(workload, root)
    kernels = [(node.op, node.step, node.phase) for node in analysis.trace.nodes]
    buffers = [(each.nbytes, each.shape, each.dtype, each.category) for each in analysis.trace.buffers]
    peaks = [getattr(analysis.estimate, name) for name in ("requested", "allocated", "reserved", "device")]
    return kernels, buffers, peaks


def test_the_sizes_a_function_takes_by_default_are_its_dimensions(write):
    path = write(
        NET
        + "def memlint_workload(batch, seq=6, *, words=9, dropout=0.5, flag=True, seed=0, big=2**31, name='', none=None):\n"
        + "    assert (dropout, flag, seed, big, none) == (0.5, True, 0, 2**31, None)\n"
        + "    return Net(words), tokens(batch, seq)\n"
    )
    workload = settled(path)
    assert workload.dimensions == {"seq": 6, "words": 9}
    assert shapes(workload) == {"0": (8, 6)}
    other = resized(workload, {"seq": 12, "words": 11})
    assert shapes(other) == {"0": (8, 12)}
    assert build(other).model.table.num_embeddings == 11


def test_a_size_can_be_asked_for_before_the_workload_is_complete(write):
    path = write(NET + "def memlint_workload(batch, seq=6, words=50):\n    return Net(words), tokens(batch, seq)\n")
    workload = settled(path, dimensions={"seq": 3})
    assert workload.dimensions == {"seq": 3, "words": 50}
    assert shapes(workload) == {"0": (8, 3)}


def test_what_the_arguments_give_is_no_dimension(write):
    path = write(NET + "def build(batch, seq=6, words=50):\n    return Net(words), tokens(batch, seq)\n")
    workload = dataclasses.replace(found(path, "build"), arguments={"words": 70})
    assert complete(workload, path.parent)[0].dimensions == {"seq": 6}
    with pytest.raises(UsageError, match="words is one of its arguments and one of its dimensions"):
        dataclasses.replace(workload, dimensions={"words": 80})


@pytest.mark.parametrize("name", ["memlint_workload", "made"])
def test_a_partial_has_the_dimensions_it_leaves_open(write, name):
    path = write(
        NET
        + "def build(batch, seq=6, words=50):\n    return Net(words), tokens(batch, seq)\n"
        + f"{name} = functools.partial(build, words=60)\n"
    )
    workload = settled(path, name)
    assert workload.dimensions == {"seq": 6, "words": 60}
    assert shapes(resized(workload, {"seq": 5})) == {"0": (8, 5)}
    assert build(workload).model.table.num_embeddings == 60
    if name == "memlint_workload":
        assert workload.origin == "declared"


def test_a_wrapper_that_hides_its_parameters_is_called_as_ever(write):
    path = write(
        NET
        + "def inner(seq=6):\n    return Net(), tokens(2, seq)\n"
        + "@functools.wraps(inner)\ndef build():\n    return inner()\n"
    )
    workload = settled(path, "build")
    assert shapes(workload) == {"0": (2, 6)}
    with pytest.raises(WorkloadError, match="cannot be built: TypeError"):
        shapes(resized(workload, {"seq": 7}))


def test_the_numbers_of_a_constructor_are_dimensions_only_when_named(write):
    path = write(NET)
    assert settled(path, "Net").dimensions == {"seq": 512}
    assert settled(path, "Net", mode="inference", dimensions={"width": 4}).dimensions == {"width": 4, "seq": 512}
    assert build(found(path, "Net", dimensions={"width": 4})).model.head.in_features == 4


def test_a_constructors_own_seq_does_not_become_the_length_of_texts(write):
    path = write(
        """
class Net(nn.Module):
    def __init__(self, seq=700):
        super().__init__()
        self.table, self.mix = nn.Embedding(50, 8), nn.Linear(8, seq)
    def forward(self, tokens):
        return self.mix(self.table(tokens))
"""
    )
    workload = settled(path, "Net")
    assert workload.dimensions == {}
    assert shapes(workload) == {"tokens": (8, 512)}
    asked = settled(path, "Net", dimensions={"seq": 30})
    assert shapes(asked) == {"tokens": (8, 30)}
    assert build(asked).model.mix.out_features == 30


def test_a_parameter_without_a_default_receives_a_dimension_of_the_decorator(write):
    path = write(
        NET
        + "@memlint.workload(dimensions={'seq': 6, 'words': 9})\n"
        + "def gpt(batch, seq, words=50):\n    return Net(words), tokens(batch, seq)\n"
    )
    workload = settled(path)
    assert workload.dimensions == {"seq": 6, "words": 9}
    assert build(workload).model.table.num_embeddings == 9
    assert shapes(resized(workload, {"seq": 4})) == {"0": (8, 4)}


def test_names_in_shapes_stand_for_the_sizes_of_the_table(write):
    workload = complete(table(write(NET), f"dimensions = {{ seq = 6 }}\n{TOKENS}"))[0]
    assert shapes(workload) == {"tokens": (8, 6)}
    assert shapes(dataclasses.replace(workload, dimensions={"seq": 12}, batch=3)) == {"tokens": (3, 12)}


def test_a_size_goes_to_the_constructor_and_into_the_shapes(write):
    path = write(
        """
class Net(nn.Module):
    def __init__(self, image_size=8):
        super().__init__()
        self.head = nn.Linear(3 * image_size**2, 2)
    def forward(self, images):
        return self.head(images.flatten(1))
"""
    )
    text = 'dimensions = { image_size = 8 }\ninputs = { images = { shape = ["batch", 3, "image_size", "image_size"] } }'
    workload = complete(table(path, text))[0]
    assert shapes(resized(workload, {"image_size": 5})) == {"images": (8, 3, 5, 5)}
    fixed = complete(table(path, text.replace("image_size =", "side =").replace('"image_size"', '"side"')))[0]
    assert shapes(fixed) == {"images": (8, 3, 8, 8)}
    with pytest.raises(WorkloadError, match="the step failed"):
        shapes(resized(fixed, {"side": 5}))


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("def memlint_workload(batch, seq=6):\n    return Net(), tokens(batch, seq)\n", "Did you mean seq? It has seq"),
        ("def memlint_workload(batch):\n    return Net(), tokens(batch, 6)\n", "It has none besides the batch."),
        ("@memlint.workload(batch=2)\nclass Mine(Net):\n    pass\n", "Did you mean seq? It has seq = 512."),
    ],
)
def test_a_dimension_that_nothing_takes_is_an_error_that_says_which_there_are(write, body, hint):
    with pytest.raises(UsageError, match="has no dimension sequ: no parameter of its target and no input") as caught:
        settled(write(NET + body), dimensions={"sequ": 3})
    assert caught.value.hint.startswith(hint)
    assert "def memlint_workload(batch, sequ=1024)" in caught.value.hint
    assert "dimensions = { sequ = 1024 }" in caught.value.hint


def test_a_complete_workload_refuses_sizes_it_has_no_use_for(write):
    path = write(NET + "def memlint_workload(batch, seq=6):\n    return Net(), tokens(batch, seq)\n")
    with pytest.raises(UsageError, match="has no dimension length"):
        resized(settled(path), {"length": 3})
    with pytest.raises(UsageError, match="dimension seq is 0"):
        resized(settled(path), {"seq": 0})


def test_a_declared_dimension_that_nothing_takes_is_an_error(write):
    path = write(
        NET + "@memlint.workload(dimensions={'seq': 6})\ndef gpt(batch):\n    return Net(), tokens(batch, 6)\n"
    )
    with pytest.raises(UsageError, match="gpt has no dimension seq: no parameter of its target"):
        settled(path)


def test_completing_twice_changes_nothing(write):
    path = write(NET)
    once = settled(path, "Net", dimensions={"words": 60})
    assert complete(once, path.parent) == (once, ())


# --- the same as written out


def test_a_doubled_length_of_a_function_is_the_function_written_with_it(write):
    source = NET + "def memlint_workload(batch, seq={}):\n    return Net(), tokens(batch, seq)\n"
    path = write(source.format(128))
    doubled = resized(settled(path), {"seq": 256})
    written = write(source.format(256), "written.py")
    assert lives(doubled, path.parent) == lives(found(written), path.parent)
    assert lives(doubled, path.parent) != lives(settled(path), path.parent)


def test_a_doubled_length_of_inferred_tokens_is_that_of_the_table_written_with_it(write):
    path = write(NET)
    doubled = resized(settled(path, "Net"), {"seq": 1024})
    written = table(path, TOKENS.replace('"seq"', "1024"))
    assert written.inputs is not None
    assert lives(doubled, path.parent) == lives(written, path.parent)
    assert lives(found(path, "Net", dimensions={"seq": 1024}), path.parent) == lives(written, path.parent)


BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 99,
    "max_position_embeddings": 256,
}


def config(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**BERT, **changes}))
    return folder / "config.json"


def test_the_length_of_a_hugging_face_model_is_the_dimension_seq(tmp_path):
    pytest.importorskip("transformers")
    path = config(tmp_path / "bert")
    workload, assumptions = complete(found(path))
    assert workload.dimensions == {"seq": 256}
    assert "input_ids [batch, seq=256] int64 below 99; labels [batch, seq=256]" in assumptions[0].text
    asked, assumptions = complete(found(path, dimensions={"seq": 128}))
    assert asked == resized(workload, {"seq": 128})
    assert "input_ids [batch, seq=128]" in assumptions[0].text
    sizes = 'inputs = { input_ids = { shape = ["batch", 128], dtype = "int64", high = 99 }, '
    sizes += 'labels = { shape = ["batch", 128], dtype = "int64", high = 99 } }\n'
    (tmp_path / "pyproject.toml").write_text(f'[[tool.memlint.workload]]\ntarget = "{path}"\n{sizes}')
    (written,) = read_workloads(tmp_path / "pyproject.toml")
    assert lives(asked, tmp_path) == lives(written, tmp_path) != lives(workload, tmp_path)


def test_a_length_the_model_rejects_is_its_error(tmp_path):
    pytest.importorskip("transformers")
    path = config(tmp_path / "bert")
    with pytest.raises(WorkloadError, match=r"with input_ids \[batch, seq=512\]"):
        complete(found(path, dimensions={"seq": 512}))
    longer = resized(complete(found(path))[0], {"seq": 512})
    with pytest.raises(WorkloadError, match="the step failed"):
        analysed(longer, tmp_path)


def test_models_without_text_have_no_length(tmp_path):
    pytest.importorskip("transformers")
    path = config(tmp_path / "vit", model_type="vit", image_size=32, patch_size=8)
    assert complete(found(path))[0].dimensions == {}
    with pytest.raises(UsageError, match="has no dimension seq"):
        complete(found(path, dimensions={"seq": 128}))


@pytest.mark.parametrize("source", ["", "def memlint_workload(batch, seq=6):\n    return Net(), tokens(batch, seq)\n"])
def test_the_declaration_written_out_gives_the_same_dimensions_and_bytes(write, source):
    path = write(NET + source)
    workload = settled(path)
    printed = render_declaration(workload, (), path.parent)
    assert f"dimensions = {{ seq = {workload.dimensions['seq']} }}" in printed
    (path.parent / "pyproject.toml").write_text(printed)
    (read,) = read_workloads(path.parent / "pyproject.toml")
    assert complete(read, path.parent)[0] == dataclasses.replace(
        workload, origin="config", target=read.target, assumed=frozenset(), built_by=""
    )
    assert lives(read, path.parent) == lives(workload, path.parent)
    doubled = {"seq": 2 * workload.dimensions["seq"]}
    again = complete(dataclasses.replace(read, dimensions=doubled), path.parent)[0]
    assert lives(again, path.parent) == lives(resized(workload, doubled), path.parent)


# --- the command line


def asked(path: Path, **settings: Any) -> Workload:
    request = Request(target=str(path), path=str(path), root=str(path.parent), settings=Settings(**settings))
    ProcessSetup.of_target(request).arm()
    return find_requested(request).workloads[0]


def test_sizes_of_the_settings_are_added_to_those_declared(write):
    path = write(
        NET
        + "@memlint.workload(dimensions={'seq': 6, 'words': 9})\n"
        + "def gpt(batch, seq, words):\n    return Net(words), tokens(batch, seq)\n"
    )
    assert asked(path).dimensions == {"seq": 6, "words": 9}
    assert asked(path, dimensions={"seq": 4}).dimensions == {"seq": 4, "words": 9}


def test_the_command_line_adds_to_the_sizes_of_the_configuration():
    configured = Settings(dimensions={"seq": 4, "words": 9})
    assert override(configured, dimensions={"seq": 5}).dimensions == {"seq": 5, "words": 9}
    assert override(configured, dimensions=None).dimensions == configured.dimensions
    with pytest.raises(UsageError, match="--dimensions"):
        override(configured, dimensions={"seq": 2**31})


def test_sizes_typed_reach_the_check(monkeypatch, tmp_path):
    seen: list[Any] = []
    monkeypatch.setattr(
        memlint.commands.check.check,
        "check",
        lambda _paths, settings, *_how: seen.append(settings) or Checked(Report(tool="memlint")),
    )
    result = CliRunner().invoke(cli.main, ["check", str(tmp_path), "--dim", "seq=2048", "--dim", " side = 7 "])
    assert result.exit_code == 0, result.output
    assert CliRunner().invoke(cli.main, ["check", str(tmp_path)]).exit_code == 0
    assert [options["dimensions"] for options in seen] == [{"seq": 2048, "side": 7}, None]


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("seq", "--dim 'seq' is not a name and a size", "--dim seq=2048"),
        ("=3", "--dim '=3' is not a name and a size", "--dim seq=2048"),
        ("2x=3", "--dim '2x=3' is not a name and a size", "--dim seq=2048"),
        ("seq=", "'' is not a size", "from 1 to 2147483647"),
        ("seq=0", "'0' is not a size", "from 1 to 2147483647"),
        ("seq=-4", "'-4' is not a size", "from 1 to 2147483647"),
        ("seq=abc", "'abc' is not a size", "from 1 to 2147483647"),
        ("seq=2.5", "'2.5' is not a size", "from 1 to 2147483647"),
        ("seq=3000000000", "'3000000000' is not a size", "from 1 to 2147483647"),
        ("batch=3", "--dim batch=3 is the batch size", "Write --batch"),
    ],
)
def test_malformed_sizes_say_what_to_write(text, said, hint):
    result = CliRunner().invoke(cli.main, ["check", ".", "--dim", text])
    assert result.exit_code == 2
    assert said in result.output
    assert hint in result.output


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the page shows what torch 2.13 takes")
def test_the_page_shows_what_the_command_prints(tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    (model,) = re.findall(r"<!-- model.py -->\n```python\n(.*?)```", page, flags=re.DOTALL)
    (console,) = re.findall(r"<!-- console -->\n```console\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "model.py").write_text(model)
    printed = []
    for command in re.findall(r"^\$ memlint (.*)$", console, flags=re.MULTILINE):
        run = [sys.executable, "-m", "memlint", *command.split()]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
        printed.append(f"$ memlint {command}\n{done.stdout}")
    assert "\n".join(printed) == console


def test_a_program_of_an_incomplete_workload_has_the_sizes_as_well(write):
    path = write(NET)
    program = build_program(found(path, "Net", dimensions={"seq": 7}), path.parent, device="cpu")
    program.setup()
    assert program.inputs["tokens"].shape == (8, 7)


def test_a_step_that_takes_too_long_is_asked_for_with_an_eighth_of_its_longest_dimension(tmp_path, monkeypatch):
    commands: list[str] = []
    monkeypatch.setattr("memlint.session.target.write_smaller", commands.append)
    path = tmp_path / "model.py"
    path.write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)\n"
        "    def forward(self, tokens): return self.head(self.table(tokens))\n"
    )
    for options in ({}, {"mode": "inference", "dimensions": {"seq": 1}}):
        settings = Settings.model_validate(options)
        request = Request(target="model.py", path=str(path), root=str(tmp_path), settings=settings)
        ProcessSetup.of_target(request).arm()
        (workload,) = find_requested(request).workloads
        analysed(workload, tmp_path)
    assert commands == ["memlint check model.py --dim seq=64", "memlint check model.py --batch 1"]
