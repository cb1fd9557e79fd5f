"""Caches of a generation, and how long they are."""

from collections.abc import Iterator
from typing import NamedTuple

from memlint.memory.decoding import kept_tokens
from memlint.memory.records import Buffer, Category, Node, Phase, Trace


class FixedCache(NamedTuple):
    """A cache that was allocated at once."""

    buffer: Buffer
    length: int
    """The tokens for which it has room."""
    used: int
    """Those that the generation has written."""


def caches(trace: Trace) -> list[Buffer]:
    """Return the Buffers in which a generation keeps keys, values and states."""
    return [each for each in trace.buffers if each.category is Category.KV_CACHE]


def fixed_caches(trace: Trace) -> Iterator[FixedCache]:
    """Yield the caches into which the prefill writes a part of their length, and each round one token more."""
    kept = kept_tokens(trace)
    num_rounds = len(kept.after_rounds) if kept is not None else 0
    sizes = {each.id: each for each in caches(trace)}
    written: dict[int, tuple[int, int]] = {}
    decoded: set[int] = set()
    for node in trace.nodes:
        if node.phase not in (Phase.PREFILL, Phase.DECODE):
            continue
        for geometry in node.outputs:
            part = _part_of(node, sizes[geometry.buffer]) if geometry.buffer in sizes else None
            if part is None:
                continue
            dimension, tokens = part
            if node.phase is Phase.PREFILL:
                written.setdefault(geometry.buffer, (dimension, tokens))
            elif written.get(geometry.buffer, (-1, 0))[0] == dimension and tokens == 1:
                decoded.add(geometry.buffer)
    for buffer in decoded:
        dimension, tokens = written[buffer]
        yield FixedCache(sizes[buffer], sizes[buffer].shape[dimension], tokens + num_rounds - 1)


def _part_of(node: Node, cache: Buffer) -> tuple[int, int] | None:
    """Return the dimension in which a kernel writes a part of a cache, and the length of the part; None of no part."""
    for geometry in (*node.outputs, *node.inputs):
        if len(geometry.shape) == len(cache.shape):
            differ = [
                n for n, (part, whole) in enumerate(zip(geometry.shape, cache.shape, strict=True)) if part < whole
            ]
            if len(differ) == 1:
                return differ[0], geometry.shape[differ[0]]
    return None
