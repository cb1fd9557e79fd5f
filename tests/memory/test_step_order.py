"""Steps in another order: what is reserved then is what a program reserves that takes its batches in that order."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from memlint.memory.devices import device_named
from memlint.memory.estimate import Peaks, peaks
from memlint.memory.step_order import Steps
from memlint.memory.timeline import Timeline
from memlint.targets.workload import Workload
from memlint.tracing.recorder import trace_program
from memlint.workloads.construction.program import Construction, Program

if TYPE_CHECKING:
    from memlint.memory.records import Trace

A100 = device_named("a100-80gb")
LENGTHS = (3000, 5000, 9000, 4000, 7000, 8000)


def trained_on(*lengths: int, leaves: bool = True) -> Trace:
    """Steps of a small model, each on so many rows that it makes itself."""
    steps = count()
    left: list[Any] = [None]

    def step(model: nn.Module, _inputs: Any, optimizer: Any) -> None:
        x = torch.randn(lengths[next(steps)], 1024, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if leaves:
            left[0] = loss

    def construct(_workload: Workload) -> Construction:
        model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.GELU())))
        return Construction(model, {}, optimizer=torch.optim.AdamW, step=step)

    return trace_program(Program(Workload("test", "test"), construct), A100, num_steps=len(lengths)).trace


def peaks_of(trace: Trace) -> Peaks:
    timeline = Timeline.of(trace)
    return peaks([buffer.nbytes for buffer in timeline.buffers], timeline.events, (), A100)


def in_order(trace: Trace, *order: int) -> Peaks:
    folded = Steps(Timeline.of(trace), trace.nodes).in_order(order)
    return peaks(folded.sizes, folded.events, (), A100)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return trained_on(*LENGTHS)


def test_the_order_that_it_was_is_what_was_seen(trace: Trace) -> None:
    assert in_order(trace, *range(6)) == peaks_of(trace)


@pytest.mark.parametrize(
    "order",
    [(2, 0, 1, 3, 4, 5), (2, 5, 4, 1, 3, 0), (2, 2, 2, 2, 2, 2), (4, 4, 2, 4, 4, 2), (1, 0, 0, 3, 1, 5)],
    ids=["largest first", "from large to small", "all padded", "two lengths", "any"],
)
def test_another_order_is_the_program_that_takes_its_batches_so(trace: Trace, order: tuple[int, ...]) -> None:
    by_hand = peaks_of(trained_on(*(LENGTHS[step] for step in order)))
    assert in_order(trace, *order) == by_hand
    assert by_hand.reserved.estimate != peaks_of(trace).reserved.estimate


def test_steps_are_as_large_as_what_they_open(trace: Trace) -> None:
    nbytes = Steps(Timeline.of(trace), trace.nodes).nbytes
    assert sorted(range(6), key=nbytes.__getitem__) == sorted(range(6), key=LENGTHS.__getitem__)


def test_steps_that_leave_nothing_to_the_next_have_an_order_too() -> None:
    trace = trained_on(3000, 5000, 4000, leaves=False)
    assert in_order(trace, 1, 0, 2) == peaks_of(trained_on(5000, 3000, 4000, leaves=False))


def test_of_two_steps_nobody_knows_what_each_leaves() -> None:
    trace = trained_on(3000, 5000)
    with pytest.raises(ValueError, match="no steps to compare"):
        Steps(Timeline.of(trace), trace.nodes)
