"""What a program takes is the same whether a Trace is made of it or not."""

from __future__ import annotations

import pytest

from memlint.memory.devices import device_named
from memlint.memory.records import Category
from memlint.tracing.recorder import trace_program
from memlint.tracing.workload_errors import storages_of_workload
from tests.oracles.programs import PROGRAMS
from tests.tracing.test_recorder import Remade

H100 = device_named("h100-80gb")


@pytest.mark.parametrize("name", [*PROGRAMS, "remade"])
def test_storages_are_those_of_the_trace(name: str) -> None:
    def program():
        return Remade() if name == "remade" else PROGRAMS[name](device="cuda")

    trace, found = trace_program(program(), H100).trace, storages_of_workload(program(), H100)
    assert found.events == trace.events
    assert found.sizes == tuple(buffer.nbytes for buffer in trace.buffers)
    assert found.doubts == trace.doubts
    assert found.workspaces == {
        buffer.id
        for buffer in trace.buffers
        if buffer.category is Category.WORKSPACE and buffer.op in ("cublas", "cublaslt", "cudnn")
    }


def test_the_host_has_no_workspaces() -> None:
    program = PROGRAMS["mlp"](device="cpu")
    assert storages_of_workload(program, device_named("cpu")).workspaces == frozenset()
