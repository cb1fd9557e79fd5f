"""Looks at a Capture: its Timeline and its Estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.capture.capture import Capture

from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.estimate import Estimate, estimate
from memlint.memory.timeline import Timeline


def settings_of(capture: Capture) -> AllocatorSettings:
    """The settings of the allocator."""
    return AllocatorSettings.parse(capture.workload.allocator)


def estimate_of(capture: Capture) -> Estimate:
    """The peaks."""
    return estimate(Timeline.of(capture.trace), capture.device, capture.trace.nodes, settings_of(capture))
