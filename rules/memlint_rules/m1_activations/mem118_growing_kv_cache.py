from math import prod

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.estimate import replay
from memlint.memory.records import FORWARDS, Category, Node, Trace
from memlint.memory.timeline import Timeline, end_at, resize
from memlint_rules.support.flow import MIN_NBYTES, grouped, most_alive, numel, peak_change

MIN_STEPS = 8
"""Minimum number of consecutive concatenations; fewer may be anything."""
_CAT = "aten.cat.default"


class GrowingKvCache(TraceRule):
    """A cache grows by a concatenation for every token, which needs the old and the new cache together.

    Looks in inference for eight or more concatenations, each of which extends the result of the previous one.

    ## Why it costs memory

    A concatenation needs the old tensor and the new one at the same time. Each requests a block a little larger than
    any that was freed, so blocks of earlier sizes stay reserved but unused. A cache allocated once for the longest
    sequence is updated in place.

    ## How the saving is computed

    Every tensor of the series, and its first input, gets the size of the last tensor and is freed before the next is
    allocated. The peak is computed again. The message also states the reserved memory in both cases.

    ## Known limits

    A cache that is allocated for more tokens than are generated takes more memory than a growing one. Memory of a
    prefill before its keys are copied into the cache is not counted. Nothing is reported if neither the peak nor the
    reserved memory would fall.

    - https://huggingface.co/docs/transformers/kv_cache
    """

    code, name, severity = "MEM118", "growing-kv-cache", Severity.WARNING
    example = """\
import torch
from torch import nn
from torch.nn import functional as F

import memlint


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.values = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, x):
        keys, values = x.new_zeros(16, 512, 256), x.new_zeros(16, 512, 256)
        for position in range(512, 544):
            q = x.view(16, 1, 4, 64).transpose(1, 2)
            new = self.keys(x).view(16, 1, 256), self.values(x).view(16, 1, 256)
            keys, values = torch.cat([keys, new[0]], 1), torch.cat([values, new[1]], 1)
            k, v = keys, values
            k, v = (t.unflatten(-1, (4, 64)).transpose(1, 2) for t in (k, v))
            x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(1)
        return x


@memlint.workload(mode="inference")
def generate():
    return Decoder(), torch.randn(16, 256)
"""
    bad = (Case(example, line=18),)
    good = (
        bad[0].but(
            {
                "(16, 512, 256), x.new_zeros(16, 512, 256)": "(16, 544, 256), x.new_zeros(16, 544, 256)",
                "keys, values = torch.cat([keys, new[0]], 1), torch.cat([values, new[1]], 1)": (
                    "keys[:, position], values[:, position] = new[0][:, 0], new[1][:, 0]"
                ),
                "k, v = keys, values": "k, v = keys[:, : position + 1], values[:, : position + 1]",
            }
        ),
    )

    def check(self, context: Context) -> Findings:
        if context.workload.mode == "train":
            return
        timeline = context.timeline
        lines = grouped((row[0].frame, row) for row in _rows(context.trace) if len(row) >= MIN_STEPS)
        for frame, rows in lines.items():
            nbytes = most_alive(timeline, [node.outputs[0].buffer for row in rows for node in row])
            if nbytes < MIN_NBYTES:
                continue
            after = _allocated_once(timeline, rows)
            change, reserved = peak_change(timeline, after), _reserved(context, timeline, after)
            if change >= 0 and not reserved:
                continue
            steps = max(len(row) for row in rows)
            yield self.finding(
                context,
                frame,
                f"A cache grows here by concatenation, {steps} times in a row; old and new take "
                f"{format_nbytes(nbytes)} together.{reserved}",
                nbytes=nbytes,
                peak_change=change,
                fix="Allocate the cache once for the longest sequence and write into it with `index_copy_`; "
                '`generate` of transformers does with `cache_implementation="static"`.',
            )


def _rows(trace: Trace) -> list[list[Node]]:
    """Return series of concatenations that each extend the result of the previous one, in order."""
    ends: dict[int, list[Node]] = {}
    for node in trace.nodes:
        if node.op != _CAT or node.phase not in FORWARDS or not node.inputs:
            continue
        row = ends.pop(node.inputs[0].buffer, None)
        grown = row is not None and row[-1].frame == node.frame and _grows(row[-1], node)
        ends[node.outputs[0].buffer] = [*row, node] if row is not None and grown else [node]
    return list(ends.values())


def _grows(before: Node, after: Node) -> bool:
    """Return True if the second extends the whole result of the first in one dimension."""
    short, long = before.outputs[0].shape, after.outputs[0].shape
    return (
        after.inputs[0].shape == short
        and len(short) == len(long)
        and sum(n != m for n, m in zip(short, long, strict=True)) == 1
    )


def _allocated_once(timeline: Timeline, rows: list[list[Node]]) -> Timeline:
    """Return the Timeline with one tensor of the last size in place of each series."""
    sizes: dict[int, int] = {}
    ends: dict[int, int] = {}
    for row in rows:
        begun = row if _is_first_freed(timeline, row) else row[1:]
        replaced = {node.inputs[0].buffer: node.index - 1 for node in begun}
        last = row[-1].outputs[0].buffer
        sizes.update(dict.fromkeys(replaced, timeline.buffers[last].nbytes))
        ends.update(replaced)
    return end_at(resize(timeline, sizes), ends)


def _is_first_freed(timeline: Timeline, row: list[Node]) -> bool:
    """Return True if the first input of the series is a tensor of its own that only the first kernel reads."""
    first = row[0].inputs[0]
    buffer = timeline.buffers[first.buffer]
    return (
        first.buffer >= 0
        and buffer.category is Category.TEMPORARY
        and prod(buffer.shape) == numel(first)
        and buffer.last_used < row[1].index
    )


def _reserved(context: Context, before: Timeline, after: Timeline) -> str:
    """Describe the reserved memory in both cases if it would fall; else empty."""
    if not context.device.is_cuda:
        return ""
    now, then = (replay(timeline).peak_reserved for timeline in (before, after))
    return f" PyTorch reserves {format_nbytes(now)} for the step, and would reserve {format_nbytes(then)}." * (
        then < now
    )
