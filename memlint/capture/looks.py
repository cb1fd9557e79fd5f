"""Looks at a Capture: its Timeline and its Estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.capture.capture import Capture

from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.estimate import Estimate, estimate, peaks
from memlint.memory.timeline import Timeline


def settings_of(capture: Capture) -> AllocatorSettings:
    """The settings of the allocator."""
    return AllocatorSettings.parse(capture.workload.allocator)


def estimate_of(capture: Capture) -> Estimate:
    """The peaks."""
    trace, device, settings = capture.trace, capture.device, settings_of(capture)
    shown = estimate(Timeline.of(trace), device, trace.nodes, settings)
    if trace.whole is None:
        return shown
    whole = peaks(trace.whole.sizes, trace.whole.events, trace.whole.doubts, device, settings)
    return replace(shown, **whole._asdict())
