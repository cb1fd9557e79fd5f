"""CUDA graphs of a program: their pools, and what PyTorch's own functions do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from memlint.accelerator import state
from memlint.accelerator.device import entry_of
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from memlint.accelerator.ledger import Ledger

MIB = 2**20


@pytest.fixture
def gpu() -> Any:
    with virtual_device(device_named("a100-80gb")) as ledger:
        yield ledger


def stream_of(ledger: Ledger, tensor: torch.Tensor) -> int:
    return ledger.streams.get(entry_of(tensor).number, 0)


def test_a_capture_takes_its_memory_from_a_pool_of_its_own(gpu: Ledger) -> None:
    assumptions: list[str] = []
    state.current.assume = assumptions.append
    before = torch.zeros(MIB, device="cuda")
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        assert torch.cuda.is_current_stream_capturing()
        inside = before + 1
    after = before + 1
    assert not torch.cuda.is_current_stream_capturing()
    assert stream_of(gpu, before) == stream_of(gpu, after) == 0
    assert stream_of(gpu, inside) not in (0, side.stream_id)
    assert assumptions == [
        "a CUDA graph takes its memory from a pool of its own: streams from 130 on stand for such pools"
    ]


def test_graphs_share_a_pool_if_they_are_told_to(gpu: Ledger) -> None:
    x = torch.zeros(8, device="cuda")
    graphs = [torch.cuda.CUDAGraph() for _ in range(4)]
    pool = torch.cuda.graph_pool_handle()
    streams = []
    for graph, chosen in zip(graphs, (pool, pool, None, None), strict=True):
        with torch.cuda.graph(graph, pool=chosen):
            streams.append(stream_of(gpu, x + 1))
    assert streams[0] == streams[1]
    assert len(set(streams)) == 3
    assert graphs[1].pool() == pool


def test_what_is_cached_is_given_back_before_a_capture(gpu: Ledger) -> None:
    x = torch.zeros(64 * MIB, device="cuda")
    del x
    assert torch.cuda.memory_reserved() == 256 * MIB
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert torch.cuda.memory_reserved() == 0


def test_an_optimizer_that_reads_its_steps_on_the_host_refuses_a_capture(gpu: Ledger) -> None:
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.zeros(4, 8, device="cuda")).sum().backward()
    with pytest.raises(RuntimeError, match="capturable"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        optimizer.step()


def test_graphed_callables_are_those_of_pytorch(gpu: Ledger) -> None:
    replays: list[int] = []
    running: Any = state.current
    running.replayed = lambda: replays.append(1)
    model, x = nn.Linear(8, 8).cuda(), torch.zeros(4, 8, device="cuda")
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    y = graphed(x)
    y.sum().backward()
    assert len(replays) == 2
    assert stream_of(gpu, y) > 128
    assert model.weight.grad is not None
    assert model.weight.grad.shape == (8, 8)
