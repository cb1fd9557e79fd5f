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
"""Fragmentation below the larger of these (bytes, share of the reserved memory) is ordinary."""

_VARIABLE = VARIABLES[-1]  # older than the other, and read by all versions
_EXPANDABLE = "expandable_segments:True"
_ROUNDED = tuple(f"roundup_power2_divisions:{divisions}" for divisions in (16, 8, 4, 2))
_NUM_LENGTHS = 4


class Fragmentation(TraceRule):
    """Much more memory is reserved than allocated, because freed blocks do not fit later requests.

    Looks for programs whose reserved memory falls considerably with expandable segments.

    ## Why it costs memory

    PyTorch keeps freed memory as blocks of the requested sizes. If sizes change from step to step, as with texts or
    images of different sizes, a larger request fits no existing block: the driver allocates a new one and the old ones
    stay. Expandable segments are one growing range of addresses, in which free parts lie side by side.

    ## How the saving is computed

    The same allocations, in the same order, run through PyTorch's allocator once more: with `expandable_segments`, and
    with sizes that `roundup_power2_divisions` rounds up. If all steps do the same with different sizes, they also run
    with the largest step first, and with every step rounded up to one of four sizes.

    ## Known limits

    Only reserved memory falls; it is unavailable to other processes, and decides whether a step fits. The memory of
    tensors does not change. Fragmentation depends on everything that ran before, such as other data: in a longer run it
    may get worse. If no input changes its shape, it matters less, and the finding is a note. Expandable segments need a
    driver and system that can map memory, such as CUDA on Linux.

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
            f"{format_nbytes(now)} are reserved although at most {format_nbytes(now - gap)} are allocated: freed "
            f"blocks do not fit later requests{cause}.",
            nbytes=now - after,
            peak_change=after - now,
            measure="reserved",
            confidence=Confidence.EXACT_LIFETIME,
            fix=f"Set {_VARIABLE}={_EXPANDABLE} before PyTorch is imported: {format_nbytes(after)}.{listed}",
        )
        yield finding if varying else replace(finding, severity=Severity.INFO)


class _Remedy(NamedTuple):
    """Another remedy, and the reserved memory with it."""

    text: str
    nbytes: int


def _reserved(context: Context, program: Folded, settings: str) -> int:
    timeline = context.timeline
    parsed = AllocatorSettings.parse(settings)
    return peaks(program.sizes, program.events, (), context.device, parsed, timeline.streams).reserved.estimate


def _with(own: str, other: str) -> str:
    return ",".join(filter(None, (own, other)))


def _other_settings(context: Context, program: Folded) -> Iterator[_Remedy]:
    """Yield the best way to round sizes up."""
    own = context.workload.allocator
    if "roundup_power2_divisions" not in own:
        nbytes, setting = min((_reserved(context, program, _with(own, each)), each) for each in _ROUNDED)
        yield _Remedy(f"With {setting} instead", nbytes)


def _other_batches(context: Context) -> Iterator[_Remedy]:
    """Yield the largest step first, and steps rounded up to a few sizes; nothing if steps differ in more than sizes."""
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
    """Return inputs that one line allocates in several shapes; of several lines, those with most shapes."""
    lines: dict[object, list[Buffer]] = {}
    for buffer in context.trace.buffers:
        if buffer.category is Category.INPUT and buffer.frame is not None:
            lines.setdefault(buffer.frame, []).append(buffer)
    several = [each for each in lines.values() if len({buffer.shape for buffer in each}) > 1]
    return max(several, key=lambda each: len({buffer.shape for buffer in each}), default=[])
