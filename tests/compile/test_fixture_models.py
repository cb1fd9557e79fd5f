"""Every fixture model compiles for a GPU, or the reason is named."""

from __future__ import annotations

import pytest

from benchmarks.compiled import program_of
from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program
from tests.oracles.programs import PROGRAMS

GPU = device_named("a100-80gb")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fixture_model_is_compiled_without_a_break_of_its_own(name: str) -> None:
    program = program_of(name)
    program.device = "cuda"
    trace = trace_program(program, GPU).trace
    assert any(node.op.startswith("inductor.") for node in trace.nodes)
    breaks = [each.text for each in trace.assumptions if "graph" in each.text or "compile" in each.text]
    if name == "lstm":  # TorchDynamo leaves recurrent layers out (its setting `allow_rnn`)
        assert [text.rpartition(": ")[2] for text in breaks] == ["Dynamo does not support RNN, GRU, or LSTM."]
    else:
        assert breaks == []
