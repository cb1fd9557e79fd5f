"""Floating-point operations of a step, from the shapes that its kernels saw.

The kernels that make up almost all of a network's work are counted: matrix products, convolutions and attention, as
`torch.utils.flop_counter` counts them (tests/memory/test_flops.py compares the two). All others, recurrent layers of
cuDNN among them, count as zero.
"""

from collections.abc import Callable
from math import prod

from memlint.memory.records import Node, Trace

Shape = tuple[int, ...]


def step_flops(trace: Trace) -> int:
    """Count the floating-point operations of the last step; a multiplication and an addition are two."""
    last = trace.num_steps - 1
    return sum(node_flops(node) for node in trace.nodes if node.step == last)


def node_flops(node: Node) -> int:
    """Count the floating-point operations of one kernel; 0 for kernels that are not counted, or that never ended."""
    formula = _FORMULAS.get(node.op.removeprefix("aten.").rpartition(".")[0])
    return formula(node) if formula is not None and node.inputs else 0


def _product(node: Node) -> int:
    """Product of the last two inputs: (..., m, k) by (..., k, n)."""
    a, b = (geometry.shape for geometry in node.inputs[-2:])
    return 2 * prod(a) * b[-1]


def _convolution(node: Node) -> int:
    x, weight = (geometry.shape for geometry in node.inputs[:2])
    return _of_convolution(x, weight, node.outputs[0].shape)


def _convolution_backward(node: Node) -> int:
    """Gradients of input and weight, each with the work of the forward."""
    grad, x, weight = (geometry.shape for geometry in node.inputs[:3])
    output_shapes = [geometry.shape for geometry in node.outputs]
    return _of_convolution(x, weight, grad) * sum(shape in output_shapes for shape in {x, weight})


def _of_convolution(x: Shape, weight: Shape, out: Shape) -> int:
    # A Node does not tell if it is transposed: if it is, the weight begins with the input channels, and the output is
    # the larger side.
    transposed = weight[0] != out[1] or (weight[0] == x[1] and prod(out[2:]) > prod(x[2:]))
    return 2 * x[0] * prod((x if transposed else out)[2:]) * prod(weight)


def _attention(node: Node) -> int:
    query, key, value = (geometry.shape for geometry in node.inputs[:3])
    return _scores(query, key) + _scores(query, value)


def _attention_backward(node: Node) -> int:
    """The scores again, their gradient and that of the values, then the gradients of queries and keys."""
    _grad, query, key, value = (geometry.shape for geometry in node.inputs[:4])
    return 3 * _scores(query, key) + 2 * _scores(query, value)


def _scores(query: Shape, other: Shape) -> int:
    """FLOPs of the scores (batch, heads, queries, keys) from keys, or of their product with values."""
    batch, heads, num_queries, _ = query
    return 2 * batch * heads * num_queries * other[-2] * other[-1]


_FORMULAS: dict[str, Callable[[Node], int]] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), _product),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **{
        f"_scaled_dot_product_{kind}_attention{ending}": formula
        for kind in ("flash", "efficient", "cudnn")
        for ending, formula in (("", _attention), ("_backward", _attention_backward))
    },
}
