from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Node
from memlint.memory.timeline import resize
from memlint_rules.support.flow import POINTWISE, PRODUCTS, Flow, grouped, made, most_alive, numel, peak_change

MIN_VOCABULARY = 8192
MIN_FACTOR = 8
"""Minimum ratio of the logits to the part of them that is read."""


class AllPositionLogits(TraceRule):
    """Inference computes the logits of every position but reads only a few.

    Looks in inference for a matrix product with 8192 or more columns, of whose rows at most an eighth are read
    afterwards, through casts and scaling.

    ## Why it costs memory

    Only the last position is needed to choose the next token. The logits of all positions have one element per position
    and word, 512 MiB in float32 for 4096 positions and 32,768 words, and are often the largest tensor of the prefill.

    ## How the saving is computed

    Logits and their casts are reduced to the share that is read, and the peak is computed again.

    ## Known limits

    A model that returns its logits is reported only if the traced step itself reads them.

    - https://huggingface.co/docs/transformers/main_classes/text_generation
    """

    code, name, severity = "MEM117", "all-position-logits", Severity.WARNING
    example = """\
import torch
from torch import nn

import memlint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32_000, 64)
        self.head = nn.Linear(64, 32_000, bias=False)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        return self.head(hidden)[:, -1].argmax(-1)


@memlint.workload(mode="inference")
def next_token():
    return Model(), {"tokens": torch.zeros(4, 512, dtype=torch.int64)}
"""
    bad = (
        Case(example, line=15),
        Case(example).but({"(hidden)[:, -1]": "(hidden).float()[:, -1]"}, title="With a cast"),
    )
    good = (
        bad[0].but({"(hidden)[:, -1]": "(hidden[:, -1])"}),
        bad[0].but({"(hidden)[:, -1]": "(hidden)"}, title="Every position counts"),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        if context.workload.mode == "train":
            return
        flow, timeline = Flow.of(trace), context.timeline
        wide = (node for node in flow.forward(*PRODUCTS) if node.outputs[0].shape[-1] >= MIN_VOCABULARY)
        lines = grouped((node.frame, logits) for node in wide if (logits := _partly_read(flow, node)))
        for frame, group in lines.items():
            sizes = {
                buffer: trace.buffers[buffer].nbytes * logits.num_read // numel(logits.product.outputs[0])
                for logits in group
                for buffer in logits.buffers
            }
            words = group[0].product.outputs[0].shape[-1]
            rows = numel(group[0].product.outputs[0]) // words
            nbytes = most_alive(timeline, sizes)
            yield self.finding(
                context,
                frame,
                f"The logits of {rows:,} positions over {words:,} words are computed, {format_nbytes(nbytes)}, and "
                f"those of {group[0].num_read // words:,} are read.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix="Apply the head to the needed positions, `head(hidden[:, -1:])`; models of transformers take "
                "`logits_to_keep=1`.",
            )


class _Logits(NamedTuple):
    """A product, the Buffers of its result and of casts of it, and the number of its elements that are read."""

    product: Node
    buffers: frozenset[int]
    num_read: int


def _partly_read(flow: Flow, product: Node) -> _Logits | None:
    size = numel(product.outputs[0])
    buffers, read, waiting = made(product), 0, [product]
    while waiting:
        node = waiting.pop()
        for reader in flow.readers(node.outputs[0].buffer, node.index):
            taken = next(g for g in reader.inputs if g.buffer == node.outputs[0].buffer)
            if _mixes(reader, size):  # as a layer adds to what goes around it
                return None
            if numel(taken) == size and reader.op in POINTWISE and numel(reader.outputs[0]) == size:
                buffers |= made(reader)
                waiting.append(reader)
            elif numel(taken) * MIN_FACTOR <= size:
                read = max(read, numel(taken))
            else:
                return None
    return _Logits(product, frozenset(buffers), read) if read else None


def _mixes(node: Node, size: int) -> bool:
    """Return True if it reads more than one tensor of so many elements."""
    return len({each.buffer for each in node.inputs if numel(each) == size}) > 1
