"""A Prediction beside a Measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from memlint.base.units import format_nbytes
from memlint.validate.measurement import Measurement
from memlint.validate.prediction import Prediction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Measure = Literal["requested", "allocated", "reserved", "device"]
COMPARED: tuple[Measure, ...] = ("requested", "allocated", "reserved", "device")
"""Peaks that both may have."""

TOO_LOW = 0.01
"""The share by which an estimate may fall short before it counts as too low."""


class Row(BaseModel):
    """One number of both, in bytes."""

    model_config = ConfigDict(frozen=True)

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


class Cap(BaseModel):
    """What came of running with the estimate as a hard limit."""

    model_config = ConfigDict(frozen=True)

    limit: int
    """Bytes the allocator was allowed to reserve: the estimate."""
    held: bool
    """Whether the steps ran to their end."""
    num_retries: int = 0
    """Times the allocator had to release cached segments to stay below."""


class Comparison(BaseModel):
    """A Measurement and what memlint says of the same Subject."""

    model_config = ConfigDict(frozen=True)

    measurement: Measurement
    prediction: Prediction
    cap: Cap | None = None

    def row(self, name: Measure) -> Row | None:
        """The peak called `name`; None where one of both does not have it."""
        measured, predicted = getattr(self.measurement.peaks, name), self.prediction.peaks.get(name)
        if measured is None or predicted is None:
            return None
        return Row(name=name, predicted=predicted.estimate, measured=measured, low=predicted.low, high=predicted.high)

    def rows(self) -> list[Row]:
        """All peaks that both have."""
        return [row for name in COMPARED if (row := self.row(name)) is not None]

    @property
    def main(self) -> Row | None:
        """The peak an estimate is judged by: allocated bytes on a GPU, requested ones on the host."""
        return self.row("allocated") or self.row("requested")

    @property
    def is_too_low(self) -> bool:
        """Whether the estimate falls short by more than `TOO_LOW`."""
        return self.main is not None and self.main.error < -TOO_LOW

    def phases(self) -> list[Row]:
        """The most requested bytes in each phase."""
        measured = {phase: peaks.requested for phase, peaks in self.measurement.phase_peaks.items()}
        return list(_rows(self.prediction.phase_peaks, measured))

    def categories(self) -> list[Row]:
        """The most bytes of what a program holds, each category on its own."""
        return list(_rows(self.prediction.categories, self.measurement.categories))

    def reason(self) -> str:
        """Where the two part: the widest phase, the categories that differ, the operators at the two peaks."""
        phases = sorted((row for row in self.phases() if row.difference), key=lambda row: -abs(row.difference))
        held = [row for row in self.categories() if row.difference]
        parts = [f"{row.name} {_signed(row.difference)}" for row in (*phases[:1], *held)]
        there, here = self.measurement.peak_op, self.prediction.peak_op
        if there and here and _operator(there) != _operator(here):
            parts.append(f"measured peak at {there}, predicted at {here}")
        elif here:
            parts.append(f"peak at {here}")
        return "; ".join(parts)


def _rows(predicted: Mapping[Any, int], measured: Mapping[Any, int]) -> Iterator[Row]:
    for name, nbytes in measured.items():
        if name in predicted:
            yield Row(name=name, predicted=predicted[name], measured=nbytes)


def _operator(text: str) -> str:
    """`aten::mm` and `aten.mm.default` are one."""
    return text.replace("::", ".").removeprefix("aten.").partition(".")[0]


def _signed(nbytes: int) -> str:
    return f"{'+' if nbytes > 0 else ''}{format_nbytes(nbytes)}"
