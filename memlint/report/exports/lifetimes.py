"""The Timeline of a Workload, prepared for drawing."""

import shlex
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from memlint.base.errors import TargetError
from memlint.report.model import Site, Stretch, Timeline, Workload


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Birth and death of each Buffer, as positions in the events."""

    workload: Workload
    timeline: Timeline
    born: Sequence[int]
    died: Sequence[int | None]
    """None for a Buffer that outlives the traced steps."""

    @classmethod
    def of(cls, workload: Workload, drawn_as: str) -> Self:
        """Make the lifetimes of `workload.timeline`. Raises TargetError if `drawn_as` finds no timeline."""
        timeline = workload.timeline
        if timeline is None:
            raise lacking(workload, "timeline", drawn_as)
        born = [0] * len(timeline.nbytes)
        died: list[int | None] = [None] * len(timeline.nbytes)
        for position, event in enumerate(timeline.events):
            if event >= 0:
                born[event] = position
            else:
                died[~event] = position
        return cls(workload, timeline, born, died)

    def site(self, buffer: int) -> Site:
        """Return the site that allocated the Buffer."""
        return self.timeline.sites[self.timeline.buffer_sites[buffer]]

    def alive_at_peak(self) -> list[int]:
        """Return the nonempty Buffers that are alive after the event of the peak, in order of birth."""
        peak = self.timeline.peak
        return [
            buffer
            for buffer, (nbytes, born, died) in enumerate(zip(self.timeline.nbytes, self.born, self.died, strict=True))
            if nbytes and born <= peak and (died is None or died > peak)
        ]

    def part_of_step(self, position: int) -> str:
        """Return the part of the step at `position`: `backward of step 1`, `setup`; steps count from 0."""
        stretches = self.timeline.stretches
        stretch = stretches[bisect_right(stretches, position, key=lambda stretch: stretch.first) - 1]
        if stretch.step >= 0:
            return f"{stretch.phase} of step {stretch.step}"
        return "setup" if stretch.phase == "other" else f"{stretch.phase} before the first step"

    def stretches(self) -> list[tuple[Stretch, int]]:
        """Return the stretches, each with the position at which the next one begins."""
        stretches = self.timeline.stretches
        ends = [*(stretch.first for stretch in stretches[1:]), len(self.timeline.events)]
        return list(zip(stretches, ends, strict=False))


def lacking(workload: Workload, part: str, drawn_as: str) -> TargetError:
    """Make the error for a Workload without the `part` of a Report that `drawn_as` needs, with advice on getting it."""
    target = shlex.quote(workload.target)
    return TargetError(
        f"{workload.name} has no {part}, which {drawn_as} is made of",
        f"Write the report with `memlint check {target} --{part} --output-format json -o report.json`, or type "
        f"`memlint report {target} --format {drawn_as}`.",
    )
