"""Kernels that a program runs around its optimizer: clipping of gradients, and hand-written updates of parameters."""

from collections.abc import Iterable, Sequence

from memlint.memory.records import Buffer, Category, Node, Phase


def with_updates(nodes: Iterable[Node], buffers: Sequence[Buffer]) -> tuple[Node, ...]:
    """Mark updates in `nodes`: those after a backward, up to the last one that uses gradients or writes parameters.

    They belong to the optimizer, which follows them or which they replace.
    """
    result: list[Node] = []
    first: int | None = None
    """First kernel after the last one of a backward, an optimizer or an update, until another phase begins."""
    for node in nodes:
        result.append(node)
        if node.phase in _UPDATED_AFTER:
            first = len(result)
        elif node.phase is not Phase.FORWARD or node.module:
            first = None
        elif first is not None and _is_update(node, buffers):
            result[first:] = [each._replace(phase=Phase.OPTIMIZER, is_by_hand=True) for each in result[first:]]
            first = len(result)
    return tuple(result)


_UPDATED_AFTER = (Phase.BACKWARD, Phase.OPTIMIZER)


def _is_update(node: Node, buffers: Sequence[Buffer]) -> bool:
    """Return True if a kernel outside of a backward uses a gradient, or writes a parameter that existed before."""
    used = (geometry.buffer for geometry in (*node.inputs, *node.outputs))
    if any(number >= 0 and buffers[number].category is Category.GRADIENT for number in used):
        return True
    written = (geometry.buffer for geometry in node.outputs)
    return any(
        number >= 0 and buffers[number].category is Category.PARAMETER and buffers[number].node < node.index
        for number in written
    )
