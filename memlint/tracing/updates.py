"""Kernels that a program runs around its optimizer: it clips gradients, and may update parameters by itself."""

from collections.abc import Iterable, Sequence

from memlint.memory.records import Buffer, Category, Node, Phase


def with_updates(nodes: Iterable[Node], buffers: Sequence[Buffer]) -> tuple[Node, ...]:
    """`nodes`, of which those after a backward up to the last that uses gradients or writes parameters are updates.

    They belong to the optimizer, which follows them or whose place they take.
    """
    result: list[Node] = []
    first: int | None = None
    """The kernel after the last one of a backward, an optimizer or an update, as long as no other phase has begun."""
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
    """Say whether a kernel outside of a backward reads or writes a gradient, or writes a parameter that was there."""
    used = (geometry.buffer for geometry in (*node.inputs, *node.outputs))
    if any(number >= 0 and buffers[number].category is Category.GRADIENT for number in used):
        return True
    written = (geometry.buffer for geometry in node.outputs)
    return any(
        number >= 0 and buffers[number].category is Category.PARAMETER and buffers[number].node < node.index
        for number in written
    )
