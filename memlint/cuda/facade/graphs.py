"""CUDA graphs that a program captures itself: a capture takes its memory from the pool of its graph.

The segments of a pool serve nothing else (c10/cuda/CUDACachingAllocator.cpp, `beginAllocateToPool`). A stream's memory
serves no other stream either, so each pool is a stream of its own here. A replay computes into what was captured.
"""

import gc
from typing import Any

import torch

from memlint.accelerator import state
from memlint.cuda.simulated import simulated
from memlint.memory.records import CUDA_GRAPHS

_FIRST = CUDA_GRAPHS + 1
_POOLS = f"a CUDA graph takes its memory from a pool of its own: streams from {_FIRST} on stand for such pools"


class CUDAGraph:
    """Stand-in for `torch.cuda.CUDAGraph`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._pool = 0, 0
        self._outer = 0

    def capture_begin(self, pool: tuple[int, int] | None = None, *_: Any, **__: Any) -> None:
        """Take memory from a pool, by default from a new one, until the capture ends."""
        state.assume(_POOLS)
        self._pool = pool or graph_pool_handle()
        ledger = state.current.ledger
        self._outer, ledger.stream = ledger.stream, self._pool[1]
        simulated().captures = True

    def capture_end(self) -> None:
        """Take memory from the stream of before."""
        state.current.ledger.stream = self._outer
        simulated().captures = False

    def pool(self) -> tuple[int, int]:
        """Return the pool, for other graphs to share."""
        return self._pool

    def replay(self) -> None:
        """Compute no value."""
        simulated().replayed()

    def instantiate(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    reset = enable_debug_mode = debug_dump = register_generator_state = instantiate


class Capture:
    """Stand-in for `torch.cuda.graph`, which frees what it can before a capture."""

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: tuple[int, int] | None = None,
        stream: torch.cuda.Stream | None = None,
        *_: Any,
        **__: Any,
    ) -> None:
        self._graph, self._from = cuda_graph, pool
        self._stream = torch.cuda.stream(stream or torch.cuda.Stream())

    def __enter__(self) -> None:
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        self._stream.__enter__()
        self._graph.capture_begin(self._from)

    def __exit__(self, *error: object) -> None:
        self._graph.capture_end()
        self._stream.__exit__(*error)


def graph_pool_handle() -> tuple[int, int]:
    """Make a pool; its second number is that of the stream which stands for it."""
    running = simulated()
    running.num_pools += 1
    return 0, CUDA_GRAPHS + running.num_pools


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a GPU is simulated: owner, name, replacement."""
    return [
        (torch.cuda, "CUDAGraph", CUDAGraph),
        (torch.cuda, "graph", Capture),
        *((owner, "graph_pool_handle", graph_pool_handle) for owner in (torch.cuda, torch.cuda.graphs)),
        (torch.cuda, "is_current_stream_capturing", lambda: simulated().captures),
    ]
