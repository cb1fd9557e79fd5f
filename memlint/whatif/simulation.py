"""Simulates Changes of one program: each is asked once, and answered by another trace or by an edit of one."""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memlint.base.errors import MemlintError
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.estimate import Estimate, estimate, most_device
from memlint.memory.flops import step_flops
from memlint.memory.records import Trace
from memlint.memory.timeline import Timeline
from memlint.whatif.change import Change, Effect, NotApplicableError


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The effect of Changes, made together, on a program."""

    changes: tuple[Change, ...]
    estimate: Estimate
    """The estimate of the changed program: its peaks, and where they are."""
    peak_change: int
    """Bytes by which the requested peak changes; negative for a fall."""
    recompute_flops: int
    """Floating-point operations that a step takes more, mostly to compute again what was not kept."""
    step_flops: int
    """Floating-point operations of the unchanged step."""
    effect: Effect
    """The strongest of those of the Changes."""

    @property
    def recompute_share(self) -> float:
        """The additional FLOPs of a step, as a share of those of the unchanged one."""
        return self.recompute_flops / self.step_flops if self.step_flops else 0.0


class Simulation:
    """The unchanged program, and every Change of it that was asked for so far."""

    def __init__(
        self,
        trace: Trace,
        device: Device,
        settings: AllocatorSettings,
        retrace: Callable[[tuple[Change, ...]], Trace | None],
        kept: MutableMapping[str, Any] | None = None,
    ) -> None:
        """`trace` is of the unchanged program on `device`, whose allocator has `settings`.

        `retrace` gives the Trace of the program with Changes; None where one means nothing for it. Estimates that are
        `kept` of the same program are not computed again, and new ones are added.
        """
        self.timeline = Timeline.of(trace)
        """That of the unchanged program."""
        self._retrace = retrace
        self._device = device
        self._settings = settings
        self._kept = {} if kept is None else kept
        self._subject = f"{hash((trace.events, tuple(b.nbytes for b in trace.buffers)))} {device} {settings}"
        self._traced: set[tuple[Change, ...]] = set()
        self._traces: dict[tuple[Change, ...], Trace] = {(): trace}
        self._answers: dict[tuple[Change, ...], WhatIf | None] = {}
        self.estimate, self.step_flops = self._estimated(())

    @cached_property
    def most_device(self) -> int:
        """Upper bound of the bytes of the unchanged program on the device, to find out what fits."""
        key = f"{self._subject} most"
        if key not in self._kept:
            each, sizes = self.timeline, [buffer.nbytes for buffer in self.timeline.buffers]
            most = most_device(sizes, each.events, each.doubts, self._device, self._settings, each.streams)
            self._kept[key] = {"most": most}
        return int(self._kept[key]["most"])

    @property
    def num_traces(self) -> int:
        """How many Changes, or combinations of them, were traced."""
        return len(self._traced)

    @property
    def answers(self) -> tuple[WhatIf, ...]:
        """Everything that was asked for and applies."""
        return tuple(answer for changes, answer in self._answers.items() if changes and answer is not None)

    def what_if(self, *changes: Change) -> WhatIf | None:
        """Simulate these Changes, made in this order; None where one does not apply or the program fails with it."""
        if changes not in self._answers:
            try:
                self._answers[changes] = self._simulated(changes)
            except (NotApplicableError, MemlintError):
                self._answers[changes] = None
        return self._answers[changes]

    def trace(self, *changes: Change) -> Trace:
        """The Trace of the program with these Changes, edits left out. Raises NotApplicableError."""
        changes = _without_edits(changes)
        if changes not in self._traces:
            self._traced.add(changes)
            trace = self._retrace(changes)
            if trace is None:
                raise NotApplicableError
            # A Trace takes much memory: only those that are asked for next are kept.
            self._traces = {(): self._traces[()], **dict(list(self._traces.items())[-2:]), changes: trace}
        return self._traces[changes]

    def _simulated(self, changes: tuple[Change, ...]) -> WhatIf:
        after, flops = self._estimated(changes)
        return WhatIf(
            changes=changes,
            estimate=after,
            peak_change=after.requested.estimate - self.estimate.requested.estimate,
            recompute_flops=max(0, flops - self.step_flops),
            step_flops=self.step_flops,
            effect=max((change.effect for change in changes), key=lambda effect: effect.severity, default=Effect.EXACT),
        )

    def _estimated(self, changes: tuple[Change, ...]) -> tuple[Estimate, int]:
        """Return the Estimate and the FLOPs of a step of the program with these Changes."""
        key = f"{self._subject} {changes}"
        if (known := self._kept.get(key)) is not None:
            if traced := _without_edits(changes):
                self._traced.add(traced)
            return Estimate.decoded(known["estimate"], lambda: self._edited(changes)), known["flops"]
        trace = self.trace(*changes)
        after, flops = estimate(self._edited(changes), self._device, trace.nodes, self._settings), step_flops(trace)
        if all(type(change).__module__.startswith("memlint") for change in changes):  # others change with their plugin
            self._kept[key] = {"estimate": after.encoded(), "flops": flops}
        return after, flops

    def _edited(self, changes: tuple[Change, ...]) -> Timeline:
        trace = self.trace(*changes)
        timeline = Timeline.of(trace)
        for change in changes:
            timeline = change.edit(timeline, trace)
        return timeline


def _without_edits(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    return tuple(change for change in changes if not change.is_edit)
