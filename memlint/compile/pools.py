"""CUDA graphs of compiled code (`reduce-overhead`, `max-autotune`): their pool, and copies of their inputs.

A graph's first call warms up, in the pool of all graphs; its second is recorded, with copies of all inputs whose
addresses may change; later ones replay what was recorded, at the same addresses. The segments of the pool serve nothing
else: torch/_inductor/cudagraph_trees.py, `CUDAWarmupNode.run` and `CUDAGraphNode.__init__`. A stream's memory serves no
other stream either, so the pool is a stream of its own here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.private.compilation import cudagraph_results, cudagraph_selection
from memlint.base.patching import Patch
from memlint.cuda.simulated import simulated
from memlint.memory.records import CUDA_GRAPHS, Assumption

_POOL = Assumption(
    f"CUDA graphs hold what compiled code takes, in a pool of their own: stream {CUDA_GRAPHS} stands for it", None
)


def _in_pool(model: Callable[..., Any], static_input_idxs: Sequence[int] = (), **_: Any) -> Callable[..., Any]:
    """Stand in for `cudagraphify`: the call of compiled code takes its memory from the pool.

    The inputs at `static_input_idxs` never move: parameters, and what forward saves for backward.
    """
    static = frozenset(static_input_idxs)
    warmed_up = set[tuple[int, ...]]()

    def call(inputs: list[Any]) -> Any:
        sizes = tuple(each for each in inputs if isinstance(each, int))
        simulated().about_compilation.setdefault(_POOL)
        with _pool():
            if sizes in warmed_up:
                inputs[:] = [
                    each if position in static or not _moves(each) else _copy(each)
                    for position, each in enumerate(inputs)
                ]
            warmed_up.add(sizes)
            return model(inputs)

    return call


def patches() -> list[Patch]:
    """Patches while a program that compiles runs: owner, name, replacement."""
    return [
        (cudagraph_selection, "cudagraphify", _in_pool),
        (cudagraph_results, "maybe_handle_backward_generation", lambda *_: None),
    ]


@contextmanager
def _pool() -> Iterator[None]:
    ledger = state.current.ledger
    outer, ledger.stream = ledger.stream, CUDA_GRAPHS
    try:
        yield
    finally:
        ledger.stream = outer


def _moves(each: Any) -> bool:
    """Return True for a tensor of the GPU outside the pool."""
    if not isinstance(each, torch.Tensor) or not is_virtual(each):
        return False
    entry = entry_of(each)
    return not entry.host and state.current.ledger.streams.get(entry.number) != CUDA_GRAPHS


def _copy(each: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=each.device)
    return copy.copy_(each)
