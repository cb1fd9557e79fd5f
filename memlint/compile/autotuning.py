"""Memory of what Inductor times on the GPU.

Kernels of several configurations are timed in their first call, where the disk has no result of an earlier run. Between
two runs the GPU's cache is cleared with a buffer of its size, which is freed afterwards (torch/_inductor/runtime/
benchmarking.py, `InductorBenchmarker.benchmark_gpu`; recorded on an H200, torch 2.11: 60 MiB).
torch/_inductor/runtime/triton_heuristics.py gives several configurations to kernels without a sum, but transpositions,
and to sums along what it knows nothing of.

`max-autotune` times kernels of products while it compiles, on examples. For each product and convolution it makes
operands and a result of their sizes, and such a buffer, and frees them before the next (torch/_inductor/
select_algorithm.py, `AlgorithmSelectorCache.get_inputs`). It makes none where the choice is known, from an earlier run
on that GPU, so this is between nothing and all of it.
"""

from typing import Any

import torch
from torch import fx

from memlint.accelerator.device import scratch
from memlint.accelerator.private import tree_leaves
from memlint.accelerator.private.compilation import inductor_config
from memlint.cuda.facade.queries import l2_cache
from memlint.cuda.simulated import simulated

_SQUARE = 2
"""Dimensions and tensors of a transposition."""
_TIMED = frozenset(("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_mm"))
_CLEARING = 256 << 20
"""Most bytes of the buffer that clears the cache: triton/testing.py, `get_empty_cache_for_benchmark` of its drivers."""


def is_timed(kernel: Any, num_arguments: int) -> bool:
    """Return True if a Triton kernel with so many tensors has several configurations; `kernel` is Inductor's."""
    if kernel.inside_reduction:
        return str(kernel.features.get_reduction_hint()).endswith("DEFAULT")
    num_dimensions = sum(1 for name in kernel.numels if not name.startswith("r"))
    is_transposition = num_dimensions == _SQUARE == num_arguments
    return bool(inductor_config.triton.autotune_pointwise) and not is_transposition


def take_to_time(nbytes: int = 0) -> None:
    """Take and free so many bytes, and the buffer that clears the GPU's cache between two runs of a kernel."""
    most = nbytes + l2_cache(simulated().device)
    scratch(most, (0, most))


def take_examples(graph: fx.GraphModule) -> None:
    """Take and free the memory of the largest examples for a graph, if its compilation times kernels."""
    if not (inductor_config.max_autotune or inductor_config.max_autotune_gemm):
        return
    largest = max((_nbytes(node) for node in graph.graph.nodes if _is_timed(node)), default=0)
    if largest:
        scratch(0, (0, largest + _CLEARING))


def _is_timed(node: fx.Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet is not None and packet.__name__ in _TIMED


def _nbytes(node: fx.Node) -> int:
    values = tree_leaves([each.meta.get("val") for each in (*node.all_input_nodes, node)])
    tensors = [each for each in values if isinstance(each, torch.Tensor)]
    return sum(each.numel() * each.element_size() for each in tensors if isinstance(each.numel(), int))
