"""memlint's figures for a Subject beside the figures that a device measured. Sizes are bytes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple, Self, get_args

from pydantic import model_validator

from memlint.base.units import Measure, format_nbytes
from memlint.memory.estimate import Interval
from memlint.memory.records import Category, Phase
from memlint.report.model import Record
from memlint.validate.measurement import Allocation, Measurement

COMPARED: tuple[Measure, ...] = get_args(Measure)
"""Peaks that estimates and measurements may have in common."""

TOO_LOW = 0.01
"""The share by which an estimate may fall short before it counts as too low."""


class Prediction(Record):
    """The figures of a Subject's Estimate that a device can measure as well, or `error`."""

    name: str
    """Name of the Subject."""
    peaks: dict[Measure, Interval] = {}
    phase_peaks: dict[Phase, int] = {}
    """The highest number of requested bytes in each phase."""
    categories: dict[Category, int] = {}
    """The most bytes of each category at once, which need not be at the peak."""
    peak_phase: Phase = Phase.OTHER
    peak_op: str = ""
    allocations: list[Allocation] = []
    """Every Buffer in the order of birth, if asked for."""
    error: str | None = None
    """Why there is no Estimate."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.peaks) == (self.error is not None):
            raise ValueError("a prediction has peaks or an error")
        return self


class Figure(Record):
    """One figure, predicted and measured."""

    name: str
    predicted: int
    measured: int
    low: int | None = None
    high: int | None = None

    @property
    def difference(self) -> int:
        """Predicted minus measured."""
        return self.predicted - self.measured

    @property
    def error(self) -> float:
        """The difference as a share of the measured figure."""
        return self.difference / self.measured if self.measured else float(self.difference != 0)


class Cap(Record):
    """Result of a run with the estimate as a hard limit."""

    limit: int
    """Bytes that the allocator was allowed to reserve: the estimate."""
    held: bool
    """True if the steps ran to their end."""
    num_retries: int = 0
    """Number of times that the allocator had to release cached segments to stay below the limit."""


class Comparison(Record):
    """A Measurement, and memlint's figures for the same Subject."""

    measurement: Measurement
    prediction: Prediction
    cap: Cap | None = None

    def peak(self, name: Measure) -> Figure | None:
        """Return the peak called `name`; None if either side lacks it."""
        measured, predicted = getattr(self.measurement.peaks, name), self.prediction.peaks.get(name)
        if measured is None or predicted is None:
            return None
        low, estimate, high = predicted
        return Figure(name=name, predicted=estimate, measured=measured, low=low, high=high)

    def peaks(self) -> list[Figure]:
        """All peaks that both sides have."""
        return [figure for name in COMPARED if (figure := self.peak(name)) is not None]

    @property
    def main(self) -> Figure | None:
        """The peak that judges an estimate: allocated bytes on a GPU, requested bytes on the host."""
        return self.peak("allocated") or self.peak("requested")

    @property
    def error(self) -> float:
        """Error of the main peak; 0 without one."""
        return self.main.error if self.main is not None else 0.0

    @property
    def is_too_low(self) -> bool:
        """True if the estimate falls short by more than `TOO_LOW`."""
        return self.error < -TOO_LOW

    def phases(self) -> list[Figure]:
        """The highest number of requested bytes in each phase."""
        measured = {phase: peaks.requested for phase, peaks in self.measurement.phase_peaks.items()}
        return _figures(self.prediction.phase_peaks, measured)

    def categories(self) -> list[Figure]:
        """The most bytes of each category of long-lived tensors, each category on its own."""
        return _figures(self.prediction.categories, self.measurement.categories)

    def reason(self) -> str:
        """Say where the two sides differ: the widest phase, the categories that differ, the operators at each peak."""
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
    """Return one name for `aten::mm` and `aten.mm.default`."""
    return text.replace("::", ".").removeprefix("aten.").partition(".")[0]


class Difference(NamedTuple):
    """A run of allocations that only one side has, or that differ between the sides."""

    predicted: tuple[Allocation, ...]
    measured: tuple[Allocation, ...]

    @property
    def nbytes(self) -> int:
        """Measured bytes minus predicted bytes."""
        return sum(a.nbytes for a in self.measured) - sum(a.nbytes for a in self.predicted)


def differences(predicted: Sequence[Allocation], measured: Sequence[Allocation]) -> list[tuple[Difference, int]]:
    """Return every Difference and how often it occurs, in the order of the first occurrence.

    Allocations are matched by size and phase: an operator has one name where it is called and another where it
    allocates.
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
    """Return the length of the common beginning of both sequences."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
