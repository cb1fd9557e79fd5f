"""The course of the steps for https://ui.perfetto.dev and chrome://tracing, as a trace in Chrome's JSON format.

Perfetto's support for the format: https://perfetto.dev/docs/getting-started/other-formats. The time axis counts events
of the allocator, one microsecond each, because an estimate knows their order but not their time.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from memlint.base.units import format_nbytes
from memlint.report.exports.lifetimes import Lifetimes
from memlint.report.phrases import place_text, tensor_text

SMALLEST = 2**20
"""Bytes from which a Buffer is shown individually."""
MOST_BUFFERS = 5_000
"""Maximum number of Buffers of one Workload; the largest are shown if more have SMALLEST bytes."""
_STEPS = 1
"""Id of the thread that shows steps and phases."""


def render_perfetto(workloads: Sequence[Lifetimes]) -> bytes:
    """Return two processes for each Workload: steps, phases and counters by category; and the large Buffers."""
    events = [event for number, each in enumerate(workloads) for event in _workload(each, 2 * number + 1)]
    document = {"displayTimeUnit": "ms", "traceEvents": events}
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def _workload(lifetimes: Lifetimes, process: int) -> Iterator[dict[str, Any]]:
    names = "one event of the allocator a microsecond", f"tensors of {format_nbytes(SMALLEST)} and more"
    for number, name in enumerate(names, process):
        named = {"name": f"{lifetimes.workload.name}: {name}"}
        yield {"ph": "M", "pid": number, "name": "process_name", "args": named}
        yield {"ph": "M", "pid": number, "name": "process_sort_index", "args": {"sort_index": number}}
    yield {"ph": "M", "pid": process, "tid": _STEPS, "name": "thread_name", "args": {"name": "steps and phases"}}
    yield from _steps(lifetimes, process)
    yield from _counters(lifetimes, process)
    yield from _buffers(lifetimes, process + 1)


def _steps(lifetimes: Lifetimes, process: int) -> Iterator[dict[str, Any]]:
    """Yield each step as a slice with its phases inside, and the peak as an instant."""

    def slice_of(name: str, first: int, end: int) -> dict[str, Any]:
        return {"ph": "X", "pid": process, "tid": _STEPS, "name": name, "ts": first, "dur": end - first}

    for step, group in groupby(lifetimes.stretches(), key=lambda each: each[0].step):
        stretches = list(group)
        first, end = stretches[0][0].first, stretches[-1][1]
        yield slice_of("setup" if step < 0 else f"step {step}", first, end)
        phases = stretches if step >= 0 else [each for each in stretches if each[0].phase != "other"]
        yield from (slice_of(stretch.phase, stretch.first, end) for stretch, end in phases)
    if lifetimes.timeline.peak >= 0:
        nbytes = sum(lifetimes.timeline.nbytes[buffer] for buffer in lifetimes.alive_at_peak())
        peak = {"name": f"peak {format_nbytes(nbytes)}", "ts": lifetimes.timeline.peak, "s": "p"}
        yield {"ph": "i", "pid": process, "tid": _STEPS, **peak, "args": {"requested bytes": nbytes}}


def _counters(lifetimes: Lifetimes, process: int) -> Iterator[dict[str, Any]]:
    """Yield the requested bytes of every category, and their sum, after each event."""
    timeline = lifetimes.timeline
    nbytes: dict[str, int] = dict.fromkeys(sorted({site.category for site in timeline.sites}), 0)
    for position, event in enumerate(timeline.events):
        buffer = event if event >= 0 else ~event
        nbytes[lifetimes.site(buffer).category] += timeline.nbytes[buffer] if event >= 0 else -timeline.nbytes[buffer]
        counter = {"ph": "C", "pid": process, "ts": position}
        yield {**counter, "name": "requested bytes", "args": dict(nbytes)}
        yield {**counter, "name": "all requested bytes", "args": {"live": sum(nbytes.values())}}


def _buffers(lifetimes: Lifetimes, process: int) -> Iterator[dict[str, Any]]:
    """Yield each large Buffer, on the track of its category.

    Lifetimes overlap, which slices of a thread must not, so each has an id. Perfetto names a track after its first
    slice: the category is a slice of its own around that of the Buffer.
    """
    timeline = lifetimes.timeline
    large = [buffer for buffer, nbytes in enumerate(timeline.nbytes) if nbytes >= SMALLEST]
    large = sorted(sorted(large, key=lambda b: -timeline.nbytes[b])[:MOST_BUFFERS])
    for buffer in large:
        site = lifetimes.site(buffer)
        died = lifetimes.died[buffer]
        event = {"pid": process, "tid": _STEPS, "cat": site.category, "id2": {"local": str(buffer)}}
        label = f"{format_nbytes(timeline.nbytes[buffer])} {place_text(site.path, site.line, site.library) or site.op}"
        opens = {"ts": lifetimes.born[buffer], **event, "ph": "b"}
        closes = {"ts": len(timeline.events) if died is None else died, **event, "ph": "e"}
        yield {**opens, "name": site.category}
        yield {**opens, "name": label, "args": _facts(lifetimes, buffer)}
        yield {**closes, "name": label}
        yield {**closes, "name": site.category}


def _facts(lifetimes: Lifetimes, buffer: int) -> dict[str, Any]:
    site = lifetimes.site(buffer)
    facts = {
        "nbytes": lifetimes.timeline.nbytes[buffer],
        "tensor": tensor_text(site.dtype, site.shape),
        "name": site.name,
        "op": site.op,
        "module": site.module,
        "line": place_text(site.path, site.line, site.library),
        "function": site.function,
        "made in": lifetimes.part_of_step(lifetimes.born[buffer]),
    }
    return {key: value for key, value in facts.items() if value}
