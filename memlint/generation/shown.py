"""A trace whose last rounds stand for the last ones of a longer generation: the same kernels, with other sizes."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from memlint.generation.pieces import BEGIN, Pieces
from memlint.memory.records import Buffer, Geometry, Node, Trace
from memlint.scaling.polynomials import NUM_SIZES


def shown(pieces: Pieces, num_rounds: int) -> Trace:
    """Give the last learned rounds the sizes of the last of `num_rounds`, and leave out those after them.

    Of a period, rounds like the last ones are a few before the last learned: so the trace ends with one of these.
    """
    first, period = pieces.first, pieces.period
    trace, learned = first.trace, BEGIN + NUM_SIZES * period
    end = learned - (learned - num_rounds) % period
    left_out = num_rounds - end
    buffers, nodes = list(trace.buffers), list(trace.nodes)
    for own in range(max(end - 2 * period, BEGIN + period) if period > 1 else BEGIN, end):
        lives = pieces.at(own + left_out)
        steps = left_out // period
        sizes, opened = lives.sizes[len(first.carried(own)) :].tolist(), first.opened(own)
        for place, (buffer, before) in enumerate(zip(opened, first.opened(own - period), strict=False)):
            then, now = trace.buffers[before], buffers[buffer]
            further = now.nbytes + (now.nbytes - then.nbytes) * steps
            buffers[buffer] = _resized(now, then, sizes[place] if len(sizes) == len(opened) else further, steps)
        kernels, earlier = _nodes(trace, own), _nodes(trace, own - period)
        if [node.op for node in kernels] == [node.op for node in earlier]:
            moved = [_moved(*pair, steps) for pair in zip(kernels, earlier, strict=True)]
            nodes[kernels[0].index : kernels[-1].index + 1] = moved
    return replace(trace, nodes=tuple(nodes), buffers=tuple(buffers), rounds=trace.rounds[:end])


def _nodes(trace: Trace, number: int) -> Sequence[Node]:
    return trace.nodes[trace.rounds[number].node : trace.rounds[number + 1].node]


def _resized(buffer: Buffer, before: Buffer, nbytes: int, steps: int) -> Buffer:
    """Return a Buffer with the bytes that it has later, and the shape if that leads to them."""
    shape = _further(buffer.shape, before.shape, steps)
    fits = prod(shape) * buffer.nbytes == prod(buffer.shape) * nbytes
    return buffer._replace(nbytes=nbytes, shape=shape if fits else buffer.shape)


def _moved(node: Node, before: Node, steps: int) -> Node:
    return node._replace(
        inputs=tuple(_grown(*pair, steps) for pair in zip(node.inputs, before.inputs, strict=False)),
        outputs=tuple(_grown(*pair, steps) for pair in zip(node.outputs, before.outputs, strict=False)),
    )


def _grown(geometry: Geometry, before: Geometry, steps: int) -> Geometry:
    shape, stride = _further(geometry.shape, before.shape, steps), _further(geometry.stride, before.stride, steps)
    return geometry._replace(shape=shape, stride=stride)


def _further(now: tuple[int, ...], before: tuple[int, ...], steps: int) -> tuple[int, ...]:
    """Go on by as many steps as one leads from `before` to `now`; sizes of other numbers of dimensions stay."""
    if len(now) != len(before):
        return now
    return tuple(size + (size - earlier) * steps for size, earlier in zip(now, before, strict=True))
