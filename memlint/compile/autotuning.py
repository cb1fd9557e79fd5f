"""Memory of `max-autotune` itself: examples on which Inductor times kernels of a product while it compiles.

For each product and convolution it makes operands and a result of their sizes, and a buffer that the GPU's cache is
cleared with, and frees them before the next (torch/_inductor/select_algorithm.py, `AlgorithmSelectorCache.get_inputs`).
It makes none where the choice is known, from an earlier run on that GPU, so this is between nothing and all of it.
"""

import torch
from torch import fx

from memlint.accelerator.device import scratch
from memlint.accelerator.private import tree_leaves
from memlint.accelerator.private.compilation import inductor_config

_TIMED = frozenset(("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_mm"))
_CLEARING = 256 << 20
"""Most bytes of the buffer that clears the cache: triton/testing.py, `get_empty_cache_for_benchmark` of its drivers."""


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
