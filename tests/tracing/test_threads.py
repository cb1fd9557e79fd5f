"""Threads of a program may use the device at once: each kernel is recorded whole, and goes where its operands are."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program

NUM_THREADS = 8
NUM_TURNS = 60


@pytest.fixture
def short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("short_turns")
def test_kernels_of_several_threads_are_recorded_one_by_one() -> None:
    start = threading.Barrier(NUM_THREADS)

    def work(thread: int) -> None:
        start.wait()
        for turn in range(NUM_TURNS):
            weight = torch.ones(2**20 + thread)  # of the host, but without memory
            there = weight.to("cuda", torch.bfloat16)
            index = torch.zeros(4, dtype=torch.long, device="cuda")
            picked = (there * 2).index_select(0, index)
            assert (picked.device.type, weight.device.type) == ("cuda", "cpu"), turn
            assert (weight + 1).to_sparse().device.type == "cpu", turn

    def step() -> None:
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            list(threads.map(work, range(NUM_THREADS)))

    program = SimpleNamespace(setup=lambda: None, step=step)
    trace = trace_program(program, device_named("a100-80gb"), num_steps=1).trace
    products = [node for node in trace.nodes if node.op == "aten.index_select.default"]
    assert len(products) == NUM_THREADS * NUM_TURNS
    assert all([g.shape for g in node.inputs][1:] == [(4,)] and len(node.outputs) == 1 for node in products)
    assert [node.index for node in trace.nodes] == list(range(len(trace.nodes)))
    born = [event for event in trace.events if event >= 0]
    assert len(born) == len(set(born))
    assert sorted(born) == sorted(~event for event in trace.events if event < 0)
