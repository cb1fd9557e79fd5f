"""Detection of attention written as two matrix products with a softmax between them, in a Trace."""

from math import prod
from typing import NamedTuple

from memlint.memory.records import FORWARDS, Category, Node, Phase, Trace
from memlint_rules.support.flow import POINTWISE, PRODUCTS, Flow, grouped, made, numel

MIN_LENGTH = 32
"""Minimum number of positions; over fewer, a softmax is more likely a gate or a choice between experts."""


_MOST_AFTER = 32
"""Maximum number of elementwise kernels between softmax and product; more is a sum in a loop, slow to follow."""


class Attention(NamedTuple):
    """The kernels of one attention whose scores are in memory."""

    chain: tuple[Node, ...]
    """Kernels from the first product to the last one before the second product."""
    softmax: Node
    second: Node
    learned: bool
    """True if a parameter is added to the scores."""


def match_attention(flow: Flow, softmax: Node) -> Attention | None:
    """Follow the data around a softmax to both matrix products; None if it is not attention, or has other uses."""
    scores = softmax.outputs[0]
    if len(scores.shape) < 2 or min(scores.shape[-2:]) < MIN_LENGTH or scores.dtype == "float64":
        return None
    before = _upstream(flow, softmax, numel(scores))
    if before is None:
        return None
    after, products = _downstream(flow, softmax, numel(scores))
    if not products or len(after) > _MOST_AFTER:
        return None
    operands = (*before[-1].inputs[-2:], *products[0].inputs[-2:])
    if any(map(flow.trace.is_parameter, operands)):  # a layer, not attention
        return None
    chain = (*before, softmax, *after)
    if numel(scores) <= numel(products[0].outputs[0]):  # attention between channels: the output is not smaller
        return None
    if any(_is_used_elsewhere(flow, node, {n.index for n in (*chain, *products)}) for node in chain):
        return None
    others = [g.buffer for node in before[:-1] for g in node.inputs if g.buffer >= 0]
    return Attention(chain, softmax, products[0], any(_comes_from_parameter(flow, b, softmax.index) for b in others))


def unread_average(flow: Flow, attention: Attention) -> Node | None:
    """Return the mean over heads that `nn.MultiheadAttention` returns as its weights, if nothing reads it.

    The program runs the whole module on the one line that calls it.
    """
    softmax, first = attention.softmax, attention.chain[0]
    if not softmax.frame == first.frame == attention.second.frame or "MultiheadAttention" not in dict(
        flow.trace.modules
    ).get(softmax.module, ""):
        return None
    return next(
        (
            reader
            for node in attention.chain
            for buffer in made(node)
            for reader in flow.readers(buffer, softmax.index)
            if reader.op == "aten.mean.dim" and reader.frame == softmax.frame and not flow.is_read(reader)
        ),
        None,
    )


def _upstream(flow: Flow, node: Node, size: int) -> list[Node] | None:
    """Return the Nodes before `node`, nearest first, up to the product that made the scores."""
    for geometry in node.inputs:
        if geometry.buffer < 0 or numel(geometry) != size:
            continue
        writer = flow.writer(geometry.buffer, node.index)
        if writer is None or numel(writer.outputs[0]) != size:
            continue
        if writer.op in PRODUCTS:
            return [writer]
        if writer.op in POINTWISE and (rest := _upstream(flow, writer, size)) is not None:
            return [writer, *rest]
    return None


def _downstream(flow: Flow, softmax: Node, size: int) -> tuple[list[Node], list[Node]]:
    """Return the elementwise Nodes after the softmax, and the products that they end in."""
    elementwise: dict[int, Node] = {}
    products: dict[int, Node] = {}
    waiting = [softmax]
    while waiting and len(elementwise) <= _MOST_AFTER:
        node = waiting.pop()
        for buffer in made(node):
            for reader in flow.readers(buffer, node.index):
                if reader.phase not in FORWARDS or reader.index in elementwise:
                    continue
                if reader.op in PRODUCTS:
                    products[reader.index] = reader
                elif reader.op in POINTWISE and numel(reader.outputs[0]) == size:
                    elementwise[reader.index] = reader
                    waiting.append(reader)
    return list(elementwise.values()), list(products.values())


def _is_used_elsewhere(flow: Flow, node: Node, own: set[int]) -> bool:
    """Return True if a forward kernel outside the attention reads the output of `node`, and its result is used."""
    return any(
        reader.index not in own and reader.phase in FORWARDS and flow.is_read(reader)
        for buffer in made(node)
        for reader in flow.readers(buffer, node.index)
    )


def _comes_from_parameter(flow: Flow, buffer: int, before: int, depth: int = 4) -> bool:
    """Return True for a parameter, or a tensor made from one in a few steps without a matrix product."""
    if flow.trace.buffers[buffer].category is Category.PARAMETER:
        return True
    writer = flow.writer(buffer, before)
    if writer is None or depth == 0 or writer.op in PRODUCTS:
        return False
    return any(_comes_from_parameter(flow, g.buffer, writer.index, depth - 1) for g in writer.inputs if g.buffer >= 0)


def fused_sizes(trace: Trace, matches: list[Attention]) -> dict[int, int]:
    """Return the bytes of these attentions' storages if a fused kernel computed them."""
    sizes: dict[int, int] = {}
    of_backward = (buffer for buffer in trace.buffers if buffer.phase is Phase.BACKWARD)
    backward = grouped(((buffer.step, buffer.module, buffer.frame), buffer.id) for buffer in of_backward)
    for match in matches:
        scores, output = match.softmax.outputs[0], match.second.outputs[0]
        places = {(node.step, node.module, node.frame) for node in (*match.chain, match.second)}
        for gradient in (i for place in places for i in backward[place]):
            is_softmax = trace.buffers[gradient].op == "aten._softmax_backward_data.default"
            if prod(trace.buffers[gradient].shape) != numel(scores):
                if is_softmax:  # the kernel's own workspace
                    sizes[gradient] = 0
            elif not (is_softmax and match.learned):
                sizes[gradient] = 4 * numel(output) if is_softmax else 0
        for node in match.chain:
            sizes.update((g.buffer, 0) for g in node.outputs if g.buffer >= 0 and numel(g) == numel(scores))
        itemsize = trace.buffers[match.second.outputs[0].buffer].nbytes // max(1, numel(output))
        sizes[scores.buffer] = itemsize * numel(output) + 4 * numel(scores) // scores.shape[-1]
    return sizes
