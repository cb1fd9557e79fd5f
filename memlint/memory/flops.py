"""Floating-point operations of a step, by the shapes that its kernels saw.

Counted are the kernels that make up almost all of a network's work: matrix products, convolutions and attention, as
`torch.utils.flop_counter` counts them (tests/memory/test_flops.py holds them against it). All others, recurrent layers
of cuDNN among them, count nothing.
"""

from collections.abc import Callable
from math import prod

from memlint.memory.records import Node, Trace

Shape = tuple[int, ...]


def step_flops(trace: Trace) -> int:
    """Floating-point operations of the last step; a multiplication and an addition are two."""
    last = trace.num_steps - 1
    return sum(node_flops(node) for node in trace.nodes if node.step == last)


def node_flops(node: Node) -> int:
    """Floating-point operations of one kernel; 0 for those that are not counted."""
    formula = _FORMULAS.get(node.op.removeprefix("aten.").rpartition(".")[0])
    return formula(node) if formula is not None else 0


def _product(node: Node) -> int:
    """Of the last two inputs: (..., m, k) by (..., k, n)."""
    a, b = (geometry.shape for geometry in node.inputs[-2:])
    return 2 * prod(a) * b[-1]


def _convolution(node: Node) -> int:
    x, weight = (geometry.shape for geometry in node.inputs[:2])
    return _of_convolution(x, weight, node.outputs[0].shape)


def _convolution_backward(node: Node) -> int:
    """The gradients of input and weight each take what the forward took."""
    grad, x, weight = (geometry.shape for geometry in node.inputs[:3])
    made = [geometry.shape for geometry in node.outputs]
    return _of_convolution(x, weight, grad) * sum(shape in made for shape in {x, weight})


def _of_convolution(x: Shape, weight: Shape, out: Shape) -> int:
    # A Node does not say whether it is transposed: then the weight begins with the channels that come in, and the
    # output is the larger side.
    transposed = weight[0] != out[1] or (weight[0] == x[1] and prod(out[2:]) > prod(x[2:]))
    return 2 * x[0] * prod((x if transposed else out)[2:]) * prod(weight)


def _attention(node: Node) -> int:
    query, key, value = (geometry.shape for geometry in node.inputs[:3])
    return _scores(query, key) + _scores(query, value)


def _attention_backward(node: Node) -> int:
    """The scores again, their gradient and that of the values, then those of queries and keys."""
    _grad, query, key, value = (geometry.shape for geometry in node.inputs[:4])
    return 3 * _scores(query, key) + 2 * _scores(query, value)


def _scores(query: Shape, other: Shape) -> int:
    """Product of (batch, heads, queries, keys) with the last dimension of keys or values, or what gives the former."""
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
