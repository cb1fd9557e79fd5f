"""What happens in the child process of a sweep: peaks of every batch size asked for, from traces of a few."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from memlint.accelerator.session import virtual_device
from memlint.analyse import find_asked, traced
from memlint.cuda.allocator import AllocatorSettings
from memlint.cuda.devices import device_named
from memlint.errors import MemlintError, WorkloadError
from memlint.memory.estimate import peaks
from memlint.scaling.calls import recorded
from memlint.scaling.grid import Grid
from memlint.scaling.records import MAX_BATCH, Order, Range, Row, Sweep
from memlint.scaling.scaled import Lives, NotScalableError, Sample, Scaled, lives_of
from memlint.worker.protocol import Request, Result
from memlint.workload.construct import completed_program
from memlint.workload.discover import complete

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memlint.cuda.devices import Device
    from memlint.workload.records import Workload

SAMPLES = (2, 3, 4)
"""Batch sizes that say how everything grows. A batch of one may take other kernels, so it is always traced."""
GRID = Grid((range(2, 5),))
_CHECK = 5
"""Against which they are checked where no larger batch is asked for."""


def sweep(request: Request) -> Result:
    """Sweeps of every Workload of the target, for all that the Order in `request.detail` asks for."""
    root, order = Path(request.root), Order.model_validate(request.detail)
    sweeps = [
        _swept(replace(workload, dtype=dtype, gpu=gpu), root, order.batches)  # type: ignore[arg-type]
        for workload in find_asked(request).workloads
        for gpu in order.gpus or (workload.gpu,)
        for dtype in order.dtypes or (workload.dtype,)
    ]
    return Result.model_validate(
        {"torch": torch.__version__, "detail": {"sweeps": [each.model_dump(mode="json") for each in sweeps]}}
    )


def _swept(workload: Workload, root: Path, batches: tuple[int, ...]) -> Sweep:
    device = device_named(workload.gpu)
    said = {
        "name": workload.name,
        "target": workload.target,
        "mode": workload.mode,
        "optimizer": workload.optimizer if workload.mode == "train" else None,
        "dtype": workload.dtype,
        "gpu": workload.gpu,
        "gpu_title": device.title,
        "gpu_nbytes": device.total_nbytes,
    }
    try:
        completed, _assumptions = complete(workload, root)
        steps = Steps(completed, root, device)
        note = steps.learn(batches)
        largest, is_limit = steps.largest(batches)
        rows = tuple(steps.row(batch) for batch in batches)
    except MemlintError as error:
        return Sweep.model_validate({**said, "error": error.message, "hint": error.hint})
    ran = tuple(sorted(steps.lives))
    found = {"rows": rows, "largest": largest, "is_limit": is_limit, "traced": ran, "note": note}
    return Sweep.model_validate({**said, **found})


class _FixedInputsError(WorkloadError):
    """There is nothing to compare."""


@dataclass
class Steps:
    """Traces of one Workload at several batch sizes, and what follows from them."""

    workload: Workload
    root: Path
    device: Device
    lives: dict[int, Lives] = field(default_factory=dict)
    """Of the sizes that were traced."""
    scaled: Scaled | None = None
    rows: dict[int, Row] = field(default_factory=dict)

    def learn(self, batches: Iterable[int]) -> str | None:
        """Trace a few sizes, and hold what they say against one more; give the reason if it cannot be relied on."""
        try:
            samples = [self._sample(batch) for batch in SAMPLES]
            self._refuse_fixed_inputs()
            with virtual_device(self.device):
                self.scaled = Scaled.of(GRID, samples)
            self._check(*sorted({_CHECK, *(batch for batch in batches if batch > _CHECK)}, reverse=True))
        except _FixedInputsError:
            raise
        except (WorkloadError, NotScalableError) as error:
            self.scaled = None
            return str(error)
        return None

    def _refuse_fixed_inputs(self) -> None:
        first, *others = (self.lives[batch] for batch in SAMPLES)
        if all(other == first for other in others):
            raise _FixedInputsError(
                f"what {self.workload.name} takes does not depend on the batch size",
                'Let its inputs depend on it: def memlint_workload(batch), or "batch" in their shapes.',
            )

    def _check(self, batch: int, *smaller: int) -> None:
        """Hold the largest batch that the program takes against a trace of it."""
        assert self.scaled is not None
        try:
            trace = self._traced(batch)
        except WorkloadError:
            if not smaller:
                raise
            self._check(*smaller)
            return
        with virtual_device(self.device):
            computed = self.scaled.lives((batch,))
            if computed != trace:
                self.scaled.settle((batch,))
                computed = self.scaled.lives((batch,))
        if computed != trace:
            raise NotScalableError(f"a trace at batch {batch} is not what follows from those at {_listed(SAMPLES)}")

    def row(self, batch: int) -> Row:
        """The peaks of one size."""
        if batch not in self.rows:
            self.rows[batch] = self._row(batch)
        return self.rows[batch]

    def _row(self, batch: int) -> Row:
        try:
            lives, evidence = self._lives(batch)
        except WorkloadError as error:
            return Row(batch=batch, error=error.message)
        settings = AllocatorSettings.parse(self.workload.allocator)
        most = peaks(lives.sizes, lives.events, lives.doubts, self.device, settings)
        ranges = {name: Range(**getattr(most, name)._asdict()) for name in most._fields}
        low, _, high = most.device
        limit = self.device.total_nbytes
        outcome = "fits" if high <= limit else "does not fit" if low > limit else "uncertain"
        return Row.model_validate({"batch": batch, **ranges, "outcome": outcome, "evidence": evidence})

    def _lives(self, batch: int) -> tuple[Lives, str]:
        if batch not in self.lives and batch >= SAMPLES[0] and self.scaled is not None:
            try:
                with virtual_device(self.device):
                    return self.scaled.lives((batch,)), "computed"
            except NotScalableError:
                pass
        return self._traced(batch), "traced"

    def largest(self, batches: Sequence[int]) -> tuple[Row | None, bool]:
        """The largest batch that surely fits, found by halving and traced, and whether none above it does.

        Where nothing can be computed, larger ones than the largest of `batches` are not tried.
        """
        low, high = self.limits(batches)
        while high is None and low and self.scaled is not None and low < MAX_BATCH:
            tried = min(2 * low, MAX_BATCH)
            low, high = (tried, None) if self.fits(tried) else (low, tried)
        found = self.between(low, high)
        if found and not self._bears_out(found):
            if self.fits(found):
                return self.row(found), False
            high = found
            found = self.between(self.limits(batches)[0], high)
        return (self.row(found) if found else None), high is not None

    def limits(self, batches: Sequence[int]) -> tuple[int, int | None]:
        """The largest of `batches` that fits, 0 if none does, and the smallest above it that does not."""
        low = max((batch for batch in batches if self.fits(batch)), default=0)
        above = [batch for batch in batches if batch > low and self.row(batch).outcome not in (None, "fits")]
        return low or int(self.fits(1)), min(above, default=None)

    def between(self, low: int, high: int | None) -> int:
        """The largest that fits, from one that does to one that does not; `low` where there is no such end."""
        while high is not None and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(middle) else (low, middle)
        return low

    def _bears_out(self, batch: int) -> bool:
        """Whether a computed row is that of a trace; if not, nothing that was computed is kept."""
        if self.row(batch).evidence == "traced":
            return True
        computed = self._lives(batch)[0]
        try:
            same = self._traced(batch) == computed
        except WorkloadError:
            same = False
        if same:
            self.rows[batch] = self.rows[batch].model_copy(update={"evidence": "traced"})
        else:
            self.scaled = None
            self.rows = {each: row for each, row in self.rows.items() if row.evidence == "traced"}
        return same

    def fits(self, batch: int) -> bool:
        """Whether a batch surely fits."""
        return self.row(batch).outcome == "fits"

    def _traced(self, batch: int) -> Lives:
        if batch not in self.lives:
            program = completed_program(replace(self.workload, batch=batch), self.root)
            self.lives[batch] = lives_of(traced(program, self.device))
        return self.lives[batch]

    def _sample(self, batch: int) -> Sample:
        with recorded() as calls:
            trace = traced(completed_program(replace(self.workload, batch=batch), self.root), self.device)
        self.lives[batch] = lives_of(trace)
        return Sample((batch,), trace, tuple(calls))


def _listed(sizes: Iterable[int]) -> str:
    *first, last = map(str, sizes)
    return f"{', '.join(first)} and {last}"
