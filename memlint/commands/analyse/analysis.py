"""One Workload, captured: what rules and what-ifs may ask about it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from memlint.base.units import format_nbytes
from memlint.capture.capture import Capture
from memlint.capture.looks import settings_of
from memlint.memory.devices import Device
from memlint.memory.estimate import Estimate
from memlint.memory.records import Assumption, Frame, Trace
from memlint.memory.retention import Holder, Keeper, LongRun
from memlint.memory.timeline import Timeline
from memlint.report.model import Place
from memlint.targets.workload import Workload
from memlint.whatif.change import Change, NotApplicableError
from memlint.whatif.simulation import Simulation, WhatIf
from memlint.whatif.take_steps import NUM_STEPS, TakeSteps
from memlint.worker.jobs import FindHolders, Holders, Keepers, Retrace, RunLonger
from memlint.worker.session import AnySession, JobError


@dataclass
class Analysis:
    """The Context of rules: a Capture, and a Session for what it does not say."""

    capture: Capture
    number: int
    """Position of the Workload in the Session."""
    timeline: Timeline
    estimate: Estimate
    budget: int | None
    simulation: Simulation
    session: AnySession
    """For a Capture from a file, a session that cannot trace any more."""
    thorough: bool = False
    """True for a detailed report."""
    _holders: dict[frozenset[int], Mapping[int, Holder]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        capture: Capture,
        session: AnySession,
        number: int = 0,
        budget: int | None = None,
        *,
        thorough: bool = False,
    ) -> Self:
        """Look at a Capture, which Workload `number` of the `session` has given."""

        def retrace(changes: tuple[Change, ...]) -> Trace | None:
            changed = session.ask(Retrace(number, changes)).capture
            return None if changed is None else changed.trace

        kept = session.estimates.setdefault(str(number), {})
        simulation = Simulation(capture.trace, capture.device, settings_of(capture), retrace, kept)
        return cls(capture, number, simulation.timeline, simulation.estimate, budget, simulation, session, thorough)

    @property
    def workload(self) -> Workload:
        """The Workload as it was analysed."""
        return self.capture.workload

    @property
    def device(self) -> Device:
        """Its GPU, with what the process has there beside PyTorch's memory."""
        return self.capture.device

    @property
    def trace(self) -> Trace:
        """Its steps."""
        return self.capture.trace

    @property
    def assumed(self) -> frozenset[str]:
        """Settings that memlint took; `loss` where the mean of the outputs stands for it."""
        return self.capture.assumed

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions of the program, of its Trace and of a full GPU."""
        return tuple(dict.fromkeys((*self.capture.assumptions, *_of_full_gpu(self.estimate))))

    def retrace(self, change: Change) -> Estimate | None:
        """Estimate of the changed program; None where the change does not apply to it."""
        answer = self.simulation.what_if(change)
        return answer.estimate if answer is not None else None

    def what_if(self, *changes: Change) -> WhatIf | None:
        """Return the effect of the changes together; None if one does not apply or the program fails with it."""
        return self.simulation.what_if(*changes)

    def show_as_well(self, change: Change) -> WhatIf | None:
        """Simulate an alternative for a detailed report, if that runs no program that was traced before."""
        if self.thorough and self.session.can_answer(Retrace(self.number, (change,))):
            return self.simulation.what_if(change)
        return None

    def holders(self, buffer_ids: Collection[int]) -> Mapping[int, Holder]:
        """Return the variables that hold these Buffers at the peak; none for a script, where they are not known."""
        ids = frozenset(buffer_ids)
        if ids not in self._holders:
            self._holders[ids] = self.holders_after((), self.estimate.peak_event, ids)
        return self._holders[ids]

    def holders_after(
        self, changes: tuple[Change, ...], event: int, buffer_ids: Collection[int]
    ) -> Mapping[int, Holder]:
        """Return the variables that hold these Buffers at an event of the changed program. Raises MemlintError."""
        if not self.session.knows_variables:
            return {}
        traced = tuple(change for change in changes if not change.is_edit)
        try:
            answered = self.session.ask(FindHolders(self.number, traced, event, tuple(sorted(buffer_ids))))
        except JobError as failed:
            raise failed.error from failed
        found = answered.as_(Holders).holders
        return {each.buffer: Holder(each.variable, _frame(each.frame), tuple(each.names)) for each in found}

    @cached_property
    def long_run(self) -> LongRun:
        """Four steps in a row, and the variables that keep what these leave behind; of a script without those.

        Of a program that cannot be run again it is what was seen.
        """
        if not self.session.knows_variables:
            return LongRun(Timeline.of(self._longer()), {})
        try:
            answered = self.session.ask(RunLonger(self.number))
        except JobError as failed:
            raise failed.error from failed
        assert answered.capture is not None
        keepers = {
            each.buffer: Keeper(each.variable, each.has_graph, _frame(each.frame))
            for each in answered.as_(Keepers).keepers
        }
        return LongRun(Timeline.of(answered.capture.trace), keepers)

    def _longer(self) -> Trace:
        if self.trace.num_steps >= NUM_STEPS:
            return self.trace
        try:
            return self.simulation.trace(TakeSteps(NUM_STEPS))
        except NotApplicableError:
            return self.trace


def _frame(place: Place) -> Frame:
    return Frame(place.path, place.line, place.function)


def _of_full_gpu(peak: Estimate) -> tuple[Assumption, ...]:
    if not peak.on_larger:
        return ()
    text = (
        "the GPU is full: PyTorch gives cached memory back, which takes time, and asks again; on a larger GPU it would "
        f"reserve {format_nbytes(peak.on_larger)}"
    )
    return (Assumption(text, None),)
