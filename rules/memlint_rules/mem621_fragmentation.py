from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.allocator.settings import VARIABLES, AllocatorSettings
from memlint.memory.estimate import peaks
from memlint.memory.records import Buffer, Category
from memlint.memory.step_order import Folded, Steps

MIN_NBYTES = 256 * 2**20
MIN_SHARE = 0.2
"""Fragmentation below the larger of these (bytes, share of what is reserved) is that of ordinary steps."""

_VARIABLE = VARIABLES[-1]  # older than the other, and read by all versions
_EXPANDABLE = "expandable_segments:True"
_ROUNDED = tuple(f"roundup_power2_divisions:{divisions}" for divisions in (16, 8, 4, 2))
_NUM_LENGTHS = 4


class Fragmentation(TraceRule):
    """Much more is reserved than allocated, because what was freed does not fit what is asked for later.

    Looks at programs whose reserved memory falls much if the allocator may use expandable segments.

    ## Why it costs memory

    PyTorch keeps what was freed, as blocks of the sizes that were asked for. Where sizes change from step to step, as
    with texts or images of different lengths, a larger request fits no block that is there: the driver gives a new one
    and the old ones stay. Expandable segments are one range of addresses that grows, so that free parts lie side by
    side.

    ## How the saving is computed

    The same allocations, in the same order, run through PyTorch's allocator once more: with `expandable_segments`, and
    with sizes that `roundup_power2_divisions` rounds up. Where all steps do the same with other sizes, they also run
    with the largest step first, and with every step as large as the next of four.

    ## Known limits

    It is the reserved memory that falls, which is what other processes miss and what decides whether a step fits; the
    memory that tensors take stays what it is. What ran before, such as other data, decides how fragmented memory is:
    in a longer run it may get worse. Where no input changes its shape it is less of a worry, and only a remark.
    Expandable segments need a driver and system that can map memory, as CUDA on Linux does.

    - https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf
    - https://github.com/karpathy/nanoGPT/issues/618
    """

    code, name, severity = "MEM621", "fragmentation", Severity.WARNING
    looks_at = "all allocations of a traced program"
    bad = (
        Case(
            """\
import torch
from torch import nn

import memlint


def epoch(model, _inputs, optimizer):
    for length in range(8000, 16000, 1000):
        x = torch.randn(length, 1024, device="cuda")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@memlint.workload
def layers():
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.GELU())))
    return memlint.Declaration(model, {"x": torch.zeros(1)}, step=epoch)
"""
        ),
    )
    good = (
        bad[0].but({"range(8000, 16000, 1000)": "[15000] * 8"}, title="All of one length"),
        bad[0].but({"range(8000, 16000, 1000)": "range(15000, 7000, -1000)"}, title="The longest first"),
        bad[0].but(
            {"@memlint.workload": '@memlint.workload(allocator="expandable_segments:True")'},
            title="Expandable segments",
        ),
    )

    def check(self, context: Context) -> Findings:
        now, own = context.estimate.reserved.estimate, context.workload.allocator
        gap = now - context.estimate.allocated.estimate
        least = max(MIN_NBYTES, MIN_SHARE * now)
        if not context.device.is_cuda or gap < least or AllocatorSettings.parse(own).expandable_segments:
            return
        program = Folded([buffer.nbytes for buffer in context.timeline.buffers], context.timeline.events)
        after = _reserved(context, program, _with(own, _EXPANDABLE))
        if now - after < least:
            return
        remedies = (*_other_settings(context, program), *_other_batches(context))
        others = [remedy for remedy in remedies if now - remedy.nbytes >= least]
        listed = "".join(f" {each.text}: {format_nbytes(each.nbytes)}." for each in others)
        varying = _varying(context)
        cause = f"; its inputs have {len({each.shape for each in varying})} shapes" if varying else ""
        finding = self.finding(
            context,
            varying[0].frame if varying else None,
            f"{format_nbytes(now)} are reserved where at most {format_nbytes(now - gap)} are allocated: what was freed "
            f"does not fit what is asked for later{cause}.",
            nbytes=now - after,
            peak_change=after - now,
            measure="reserved",
            confidence=Confidence.EXACT_LIFETIME,
            fix=f"Set {_VARIABLE}={_EXPANDABLE} before PyTorch is imported: {format_nbytes(after)}.{listed}",
        )
        yield finding if varying else replace(finding, severity=Severity.INFO)


class _Remedy(NamedTuple):
    """Another remedy, and how much is reserved with it."""

    text: str
    nbytes: int


def _reserved(context: Context, program: Folded, settings: str) -> int:
    timeline = context.timeline
    parsed = AllocatorSettings.parse(settings)
    return peaks(program.sizes, program.events, (), context.device, parsed, timeline.streams).reserved.estimate


def _with(own: str, other: str) -> str:
    return ",".join(filter(None, (own, other)))


def _other_settings(context: Context, program: Folded) -> Iterator[_Remedy]:
    """The best of the ways to round sizes up."""
    own = context.workload.allocator
    if "roundup_power2_divisions" not in own:
        nbytes, setting = min((_reserved(context, program, _with(own, each)), each) for each in _ROUNDED)
        yield _Remedy(f"With {setting} instead", nbytes)


def _other_batches(context: Context) -> Iterator[_Remedy]:
    """The largest step first, and steps as large as the next of a few; nothing where steps differ in more."""
    try:
        steps = Steps(context.timeline, context.trace.nodes)
    except ValueError:
        return
    by_size = sorted(range(len(steps.nbytes)), key=steps.nbytes.__getitem__)
    largest = by_size[-1]
    order = [largest, *(step for step in range(len(by_size)) if step != largest)]
    nbytes = _reserved(context, steps.in_order(order), context.workload.allocator)
    yield _Remedy("With the largest batch first", nbytes)
    ends = [by_size[len(by_size) * part // _NUM_LENGTHS - 1] for part in range(1, _NUM_LENGTHS + 1)]
    padded = [next(end for end in ends if steps.nbytes[end] >= steps.nbytes[step]) for step in range(len(by_size))]
    nbytes = _reserved(context, steps.in_order(padded), context.workload.allocator)
    yield _Remedy(f"With batches padded to {len(set(ends))} lengths", nbytes)


def _varying(context: Context) -> list[Buffer]:
    """Inputs that one line makes in several shapes; of several lines, those with most shapes."""
    lines: dict[object, list[Buffer]] = {}
    for buffer in context.trace.buffers:
        if buffer.category is Category.INPUT and buffer.frame is not None:
            lines.setdefault(buffer.frame, []).append(buffer)
    several = [each for each in lines.values() if len({buffer.shape for buffer in each}) > 1]
    return max(several, key=lambda each: len({buffer.shape for buffer in each}), default=[])
