"""Caches of a generation, how long they are, and a case with one."""

from collections.abc import Iterator
from typing import NamedTuple

from memlint.lint.rule import Case
from memlint.memory.decoding import kept_tokens
from memlint.memory.records import Buffer, Category, Node, Phase, Trace

LONG_CACHE = Case(
    """\
import torch
from torch import nn

import memlint


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(256, 1024), nn.Linear(1024, 256)
        self.k_cache = None

    def forward(self, tokens, start):
        hidden = self.embedding(tokens)
        self.k_cache[:, start : start + tokens.shape[1]] = hidden
        scores = hidden @ self.k_cache[:, : start + tokens.shape[1]].to(hidden.dtype).mT
        return self.head(scores.softmax(-1) @ hidden.new_zeros(scores.shape[-1], 1024))


def generate(model, inputs, _optimizer):
    model.k_cache = torch.zeros(8, 4096, 1024, device="cuda", dtype=torch.bfloat16)
    with torch.inference_mode():
        token = model(inputs["prompt"], 0)[:, -1:].argmax(-1)
        for position in range(512, 520):
            token = model(token, position).argmax(-1)


@memlint.workload(mode="generate")
def chat():
    return memlint.Declaration(Decoder(), {"prompt": torch.zeros(8, 512, dtype=torch.int64)}, step=generate)
""",
    line=21,
    dtype="bfloat16",
)
"""A decoder in bfloat16 whose cache, made on line 21, has room for 4,096 tokens, and which writes 520."""


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
