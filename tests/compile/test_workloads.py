"""Workloads with `compile`: compiled as asked, or eager with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memlint.accelerator.private.compilation import Lowering
from memlint.base.errors import UsageError
from memlint.base.patching import patched
from memlint.capture.codec import decode, encode
from memlint.memory.estimate import estimate
from memlint.memory.records import Phase
from memlint.memory.timeline import Timeline
from memlint.report.tables import Order
from memlint.session.tables import _around, _tables
from memlint.session.target import Traced
from memlint.targets.workload import InputSpec, Workload

if TYPE_CHECKING:
    from memlint.report.model import Sweep

MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.up(x))).square().mean()


def compiled():
    return torch.compile(Net())
"""


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    inputs = (InputSpec("x", ("batch", 64)),)
    return Workload("net", "model.py::Net", str(file), "Net", batch=512, inputs=inputs, compile="on")


def texts(traced: Traced) -> list[str]:
    return [each.text for each in traced.capture.assumptions if each.text.startswith("torch.compile")]


def test_on_compiles_a_model_that_does_not_ask(workload: Workload) -> None:
    traced = Traced.of(workload, Path(workload.path).parent)
    assert [text.partition(" as ")[0] for text in texts(traced)] == ["torch.compile is simulated"]
    assert any(node.op.startswith("inductor.") for node in traced.trace.nodes)
    assert decode(encode(traced.capture)).workload.compile == "on"


def test_auto_compiles_what_asks_and_nothing_else(workload: Workload) -> None:
    root = Path(workload.path).parent
    auto = replace(workload, compile="auto")
    asking = Traced.of(replace(auto, qualname="compiled", target="model.py::compiled"), root)
    other = Traced.of(auto, root)
    assert any(node.op.startswith("inductor.") for node in asking.trace.nodes)
    assert len(texts(asking)) == 1
    assert not any(node.op.startswith("inductor.") for node in other.trace.nodes)
    assert texts(other) == []


def test_what_cannot_be_compiled_runs_eagerly_and_the_reason_is_said(workload: Workload) -> None:
    def raising(*_: Any, **__: Any) -> Any:
        raise ValueError("no more")

    root = Path(workload.path).parent
    eager = Traced.of(replace(workload, compile="off"), root)
    with patched([(Lowering, "run", raising)]):
        fallen_back = Traced.of(workload, root)
    (text,) = texts(fallen_back)
    assert text.startswith("torch.compile could not be simulated, and what it would compile runs eagerly: ")
    assert "no more" in text
    assert fallen_back.trace.events == eager.trace.events
    assert fallen_back.trace.buffers == eager.trace.buffers
    assert fallen_back.workload.compile == "off"


def test_a_table_of_sizes_is_eager_as_a_whole_where_compilation_fails(workload: Workload) -> None:
    def raising(*_: Any, **__: Any) -> Any:
        raise ValueError("no more")

    root, order = Path(workload.path).parent, Order(batches=(8, 16))
    *_, eager = _tables(replace(workload, compile="off"), root, order)
    with patched([(Lowering, "run", raising)]):
        *_, fallen_back = _tables(workload, root, order)
    assert fallen_back[-1].rows == eager[-1].rows
    assert fallen_back[-1].error is None
    assert "torch.compile could not be simulated" in (fallen_back[-1].note or "")
    assert "no more" in (fallen_back[-1].note or "")


def test_an_error_of_the_program_is_no_reason_to_run_eagerly(workload: Workload) -> None:
    file = Path(workload.path)
    file.write_text(MODEL.replace("self.down(", "self.down(1 / 0 * "))
    with pytest.raises(Exception, match="ZeroDivisionError"):
        Traced.of(workload, file.parent)


def test_another_word_is_refused(workload: Workload) -> None:
    with pytest.raises(UsageError, match="compile is 'yes'"):
        replace(workload, compile="yes")  # type: ignore[arg-type]


def test_a_table_of_compiled_steps_traces_each_size_and_finds_the_largest_that_fits(workload: Workload) -> None:
    root = Path(workload.path).parent
    shape = ("batch", 4096, 64)
    large = replace(workload, inputs=(InputSpec("x", shape),), gpu="t4")
    *_, (table,) = _tables(large, root, Order(batches=(8, 16)))
    assert table.compiled
    assert [row.evidence for row in table.rows] == ["traced", "traced"]
    assert table.largest is not None
    largest = table.largest.batch
    above = largest + (1 if table.is_limit else largest // 64)  # a size costs a compilation
    captures = [Traced.of(replace(large, batch=batch), root).capture for batch in (largest, above)]
    limit = large.device.total_nbytes
    highs = [estimate(Timeline.of(each.trace), large.device, each.trace.nodes).device.high for each in captures]
    assert highs[0] <= limit < highs[1]


@pytest.mark.slow
def test_where_code_is_compiled_eager_sizes_stand_beside_it(workload: Workload) -> None:
    root = Path(workload.path).parent
    traced = Traced.of(replace(workload, batch=4), root)
    compiled, eager = _around_last(traced)
    assert traced.compile_seconds > 0
    assert (compiled.title, eager.title) == ("float32, compiled", "float32, eager")
    assert [row.batch for row in compiled.rows] == [row.batch for row in eager.rows] == [2, 4, 8, 16]
    slow = replace(traced, compile_seconds=100.0)
    compiled, eager = _around_last(slow)
    assert compiled.error == "each batch size takes a compilation of 100 s"
    assert compiled.rows == []
    assert len(eager.rows) == 4


def _around_last(traced: Traced) -> list[Sweep]:
    *_, last = _around(traced, None)
    return last


LLAMA = {
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 400,
}


def test_decoding_is_compiled_with_a_cache_of_fixed_size(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    sizes = {"prompt": 16, "new_tokens": 3}
    target = "transformers::LlamaConfig"
    generating = Workload("llama", target, "", "LlamaConfig", mode="generate", dimensions=sizes, arguments=LLAMA)
    traced = Traced.of(replace(generating, compile="on"), tmp_path)
    assert {node.phase for node in traced.trace.nodes if node.op.startswith("inductor.")} == {Phase.DECODE}
    assert traced.trace.graph_breaks == ()
    assert not [text for text in texts(traced) if "breaks the graph" in text]
    with pytest.raises(UsageError, match="decoding is compiled with a cache of fixed size, not with dynamic"):
        Traced.of(replace(generating, compile="on", cache="dynamic"), tmp_path)
