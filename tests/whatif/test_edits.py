"""Edits of lives and sizes against the program that was changed by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from memlint.memory.liveness import held, origin
from memlint.memory.timeline import Timeline, live, merge
from memlint.whatif.change import NotApplicableError
from memlint.whatif.changes.drop_reference import drop_references
from tests.whatif.programs import peak, program, traced, vectors


def lives(timeline: Timeline) -> list[int]:
    """Live bytes after each event that changes them."""
    nbytes = live(timeline)
    return [now for before, now in zip([0, *nbytes], nbytes, strict=False) if now != before]


class Steps(nn.Module):
    """Some kernels one after the other; what `how` says is done otherwise."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 1024)
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        z = y * 2
        kept = y + 1 if self.how != "in place" else y.add_(1)
        if self.how == "dropped":
            del y
        mask = torch.ones(z.shape, device=z.device, dtype=torch.bool if self.how == "bool" else torch.float32)
        total = z + kept
        return total * mask + total.sum()


def step(model: Any, inputs: Any, optimizer: Any) -> None:
    with torch.no_grad():
        output = model(*inputs.values())
        other = output + 1
    del output, other


def made(how: str) -> Any:
    return program(lambda: Steps(how), vectors, step=step, batch=64)


def buffers(trace: Any, op: str) -> list[int]:
    return [b.id for b in trace.buffers if b.op == op and b.step >= 0 and b.nbytes >= 2**16]


def test_dropping_a_reference_is_what_del_gives() -> None:
    trace = traced(made(""))
    layers = buffers(trace, "aten.addmm.default")
    assert len(layers) == 2
    edited = drop_references(Timeline.of(trace), held(trace), {origin(trace.buffers[layers[0]])})
    assert lives(edited) == lives(Timeline.of(traced(made("dropped"))))
    assert max(live(edited)) == peak(made("dropped")) < peak(made(""))


def test_what_nobody_holds_cannot_be_dropped() -> None:
    trace = traced(made("dropped"))
    origins = {origin(trace.buffers[each]) for each in buffers(trace, "aten.addmm.default")}
    with pytest.raises(NotApplicableError):
        drop_references(Timeline.of(trace), held(trace), origins)


def test_an_operation_in_place_takes_no_memory_of_its_own() -> None:
    trace = traced(made(""))
    layers = buffers(trace, "aten.addmm.default")
    adds = [n for n in trace.nodes if n.op == "aten.add.Tensor" and n.inputs[0].buffer in layers]
    assert len(adds) == 2
    merged = merge(Timeline.of(trace), {n.outputs[0].buffer: n.inputs[0].buffer for n in adds})
    assert lives(merged) == lives(Timeline.of(traced(made("in place"))))


def test_chains_of_operations_in_place_end_with_the_last() -> None:
    class Chain(nn.Module):
        def __init__(self, *, inplace: bool) -> None:
            super().__init__()
            self.layer = nn.Linear(256, 1024)
            self.inplace = inplace

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layer(x)
            for _ in range(3):
                x = x.add_(1) if self.inplace else x + 1
            return x

    def of(*, inplace: bool) -> Any:
        return traced(program(lambda: Chain(inplace=inplace), vectors, mode="inference", batch=64))

    trace = of(inplace=False)
    made_by = {node.outputs[0].buffer: node.inputs[0].buffer for node in trace.nodes if node.op == "aten.add.Tensor"}
    assert len(made_by) == 6
    assert lives(merge(Timeline.of(trace), made_by)) == lives(Timeline.of(of(inplace=True)))
