"""What Changes would do to one program: asked once each, answered by another trace or by an edit of one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from memlint.accelerator.private import tree_leaves
from memlint.base.errors import MemlintError
from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.estimate import Estimate, estimate
from memlint.memory.records import Trace
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import Program
from memlint.tracing.workload_errors import trace_of_workload
from memlint.whatif.change import Change, ChangedProgram, Effect, NotApplicableError
from memlint.whatif.flops import step_flops


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What Changes, made together, do to a program."""

    changes: tuple[Change, ...]
    estimate: Estimate
    """Of the changed program: its peaks, and where they are."""
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
        """What a step computes more, as a share of what the unchanged one does."""
        return self.recompute_flops / self.step_flops if self.step_flops else 0.0


class Simulation:
    """The unchanged program, and every Change of it that was asked for so far."""

    def __init__(
        self,
        rebuild: Callable[[], Program] | None,
        device: Device,
        settings: AllocatorSettings,
        *,
        program: Program | None,
        trace: Trace,
        estimate: Estimate,
        rerun: Callable[[Sequence[Change]], Trace | None] = lambda _changes: None,
    ) -> None:
        """`rebuild` makes the program anew; `program`, `trace` and `estimate` are unchanged.

        A script cannot be made anew: `rerun` gives its Trace with Changes, or None.
        """
        self.estimate = estimate
        self.step_flops = step_flops(trace)
        self._rebuild = rebuild
        self._rerun = rerun
        self._device = device
        self.settings = settings
        self._inputs = _shapes(program)
        self.num_traces = 0
        """How many Changes, or combinations of them, were traced."""
        self._traces: dict[tuple[Change, ...], Trace] = {(): trace}
        self._answers: dict[tuple[Change, ...], WhatIf | None] = {}

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
        """The Trace of the program with these Changes, edits left out.

        Raises NotApplicableError, or MemlintError for what the program raises.
        """
        changes = tuple(change for change in changes if not change.is_edit)
        if changes not in self._traces:
            self.num_traces += 1
            trace = self._traced(changes)
            # A Trace takes much memory: only those that are asked for next are kept.
            self._traces = {(): self._traces[()], **dict(list(self._traces.items())[-2:]), changes: trace}
        return self._traces[changes]

    def _traced(self, changes: tuple[Change, ...]) -> Trace:
        if self._rebuild is None:
            rerun = self._rerun(changes) if all(each.is_made_after_setup for each in changes) else None
            if rerun is None:
                raise NotApplicableError
            return rerun
        program = self._rebuild()
        trace = trace_of_workload(ChangedProgram(program, *changes), self._device, self.settings)
        if any(each.sets_batch for each in changes) and _shapes(program) == self._inputs:
            raise NotApplicableError  # the target makes its inputs as it likes
        return trace

    def _simulated(self, changes: tuple[Change, ...]) -> WhatIf:
        trace = self.trace(*changes)
        timeline = Timeline.of(trace)
        for change in changes:
            timeline = change.edit(timeline, trace)
        after = estimate(timeline, self._device, trace.nodes, self.settings)
        return WhatIf(
            changes=changes,
            estimate=after,
            peak_change=after.requested.estimate - self.estimate.requested.estimate,
            recompute_flops=max(0, step_flops(trace) - self.step_flops),
            step_flops=self.step_flops,
            effect=max((change.effect for change in changes), key=lambda effect: effect.severity, default=Effect.EXACT),
        )


def _shapes(program: Any) -> list[tuple[int, ...]]:
    leaves = tree_leaves(getattr(program, "inputs", None))
    return [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]
