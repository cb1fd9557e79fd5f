"""What memlint says of a Subject beside what a device said of it. Sizes are bytes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple, Self, get_args

from pydantic import model_validator

from memlint.base.units import Measure, format_nbytes
from memlint.memory.estimate import Interval
from memlint.report.model import CategoryName, PhaseName, Record
from memlint.validate.measurement import Allocation, Measurement

COMPARED: tuple[Measure, ...] = get_args(Measure)
"""Peaks that both may have."""

TOO_LOW = 0.01
"""The share by which an estimate may fall short before it counts as too low."""


class Prediction(Record):
    """The numbers of a Subject's Estimate that a device can be asked for as well, or `error`."""

    name: str
    """The Subject's."""
    peaks: dict[Measure, Interval] = {}
    phase_peaks: dict[PhaseName, int] = {}
    """The most requested bytes in each phase."""
    categories: dict[CategoryName, int] = {}
    """The most bytes of each category at once, which need not be at the peak."""
    peak_phase: PhaseName = "other"
    peak_op: str = ""
    allocations: list[Allocation] = []
    """Every Buffer in the order of birth, where that is wanted."""
    error: str | None = None
    """Why there is no Estimate."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.peaks) == (self.error is not None):
            raise ValueError("a prediction has peaks or an error")
        return self


class Figure(Record):
    """One number of both."""

    name: str
    predicted: int
    measured: int
    low: int | None = None
    high: int | None = None

    @property
    def difference(self) -> int:
        """Predicted less measured."""
        return self.predicted - self.measured

    @property
    def error(self) -> float:
        """The difference as a share of what was measured."""
        return self.difference / self.measured if self.measured else float(self.difference != 0)


class Cap(Record):
    """What came of running with the estimate as a hard limit."""

    limit: int
    """Bytes the allocator was allowed to reserve: the estimate."""
    held: bool
    """Whether the steps ran to their end."""
    num_retries: int = 0
    """Times the allocator had to release cached segments to stay below."""


class Comparison(Record):
    """A Measurement and what memlint says of the same Subject."""

    measurement: Measurement
    prediction: Prediction
    cap: Cap | None = None

    def peak(self, name: Measure) -> Figure | None:
        """The peak called `name`; None where one of both does not have it."""
        measured, predicted = getattr(self.measurement.peaks, name), self.prediction.peaks.get(name)
        if measured is None or predicted is None:
            return None
        low, estimate, high = predicted
        return Figure(name=name, predicted=estimate, measured=measured, low=low, high=high)

    def peaks(self) -> list[Figure]:
        """All peaks that both have."""
        return [figure for name in COMPARED if (figure := self.peak(name)) is not None]

    @property
    def main(self) -> Figure | None:
        """The peak an estimate is judged by: allocated bytes on a GPU, requested ones on the host."""
        return self.peak("allocated") or self.peak("requested")

    @property
    def error(self) -> float:
        """That of the main peak; 0 without one."""
        return self.main.error if self.main is not None else 0.0

    @property
    def is_too_low(self) -> bool:
        """Whether the estimate falls short by more than `TOO_LOW`."""
        return self.error < -TOO_LOW

    def phases(self) -> list[Figure]:
        """The most requested bytes in each phase."""
        measured = {phase: peaks.requested for phase, peaks in self.measurement.phase_peaks.items()}
        return _figures(self.prediction.phase_peaks, measured)

    def categories(self) -> list[Figure]:
        """The most bytes of what a program holds, each category on its own."""
        return _figures(self.prediction.categories, self.measurement.categories)

    def reason(self) -> str:
        """Where the two part: the widest phase, the categories that differ, the operators at the two peaks."""
        phases = sorted(self.phases(), key=lambda figure: -abs(figure.difference))
        parts = [
            f"{figure.name} {'+' if figure.difference > 0 else ''}{format_nbytes(figure.difference)}"
            for figure in (*phases[:1], *self.categories())
            if figure.difference
        ]
        measured, predicted = self.measurement.peak_op, self.prediction.peak_op
        if measured and predicted and _operator(measured) != _operator(predicted):
            parts.append(f"measured peak at {measured}, predicted at {predicted}")
        elif predicted:
            parts.append(f"peak at {predicted}")
        return "; ".join(parts)


def _figures(predicted: Mapping[Any, int], measured: Mapping[Any, int]) -> list[Figure]:
    return [
        Figure(name=name, predicted=predicted[name], measured=nbytes)
        for name, nbytes in measured.items()
        if name in predicted
    ]


def _operator(text: str) -> str:
    """`aten::mm` and `aten.mm.default` are one."""
    return text.replace("::", ".").removeprefix("aten.").partition(".")[0]


class Difference(NamedTuple):
    """A run of allocations that only one side has, or that are others on both sides."""

    predicted: tuple[Allocation, ...]
    measured: tuple[Allocation, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes more were measured than predicted."""
        return sum(a.nbytes for a in self.measured) - sum(a.nbytes for a in self.predicted)


def differences(predicted: Sequence[Allocation], measured: Sequence[Allocation]) -> list[tuple[Difference, int]]:
    """Every Difference with the times it comes, in the order of its first.

    Allocations are matched by size and phase: operators have one name where they are called and another where they
    allocate.
    """
    here, there = ([(a.nbytes, a.phase) for a in side] for side in (predicted, measured))
    start = _num_common(here, there)
    end = _num_common(here[start:][::-1], there[start:][::-1])
    matcher = SequenceMatcher(None, here[start : len(here) - end], there[start : len(there) - end], autojunk=False)
    counts = Counter(
        Difference(tuple(predicted[start + i1 : start + i2]), tuple(measured[start + j1 : start + j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    )
    return list(counts.items())


def _num_common(first: Sequence[object], second: Sequence[object]) -> int:
    """How many items both begin with."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
