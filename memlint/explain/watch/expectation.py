"""An estimate of a run, held against its peaks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base.errors import UsageError
from memlint.base.units import format_nbytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from memlint.capture.capture import Capture

    Bounds = dict[str, tuple[int, int]]

_MEASURES = ("allocated", "reserved")
"""The peaks that PyTorch itself counts."""
_BORN = 2
"""Steps after which a run holds all that it holds: the optimizer's state is born in the first."""


class Expectation:
    """The least and most bytes of each peak, and which of them a run has left."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._left = set[str]()

    @classmethod
    def of(cls, estimate: Capture | str | PathLike[str]) -> Expectation:
        """Take the intervals of a Capture, of its file, or of a report written with --format json.

        A workload of a report with several is named behind `::`. Raises MemlintError if there is none.
        """
        from memlint.capture.capture import Capture  # noqa: PLC0415 -- only if an estimate is given
        from memlint.capture.files import open_file  # noqa: PLC0415

        if isinstance(estimate, Capture):
            return cls(_of_capture(estimate))
        file, _, name = str(estimate).partition("::")
        if file.endswith(".json"):
            return cls(_of_report(Path(file), name))
        return cls(_of_capture(open_file(file, None)))

    def left_by(self, step: int, peaks: dict[str, int]) -> Iterator[str]:
        """Yield a sentence for each interval that the peaks so far have left, once."""
        for measure, (low, high) in self.bounds.items():
            peak = peaks[measure]
            if measure in self._left or low <= peak <= high or (peak < low and step < _BORN):
                continue
            self._left.add(measure)
            bound = f"at most {format_nbytes(high)}" if peak > high else f"at least {format_nbytes(low)}"
            yield f"step {step}: the peak of {measure} memory is {format_nbytes(peak)}, and the estimate says {bound}"


def _of_capture(capture: Capture) -> Bounds:
    from memlint.capture.looks import estimate_of  # noqa: PLC0415

    peaks = estimate_of(capture)
    return {measure: (getattr(peaks, measure).low, getattr(peaks, measure).high) for measure in _MEASURES}


def _of_report(file: Path, name: str) -> Bounds:
    from memlint.report.reading import read_report  # noqa: PLC0415

    workloads = [each for each in read_report(file).workloads if each.estimate and name in ("", each.name)]
    if len(workloads) != 1 or workloads[0].estimate is None:
        names = ", ".join(each.name for each in workloads) or "none"
        raise UsageError(f"{file} has not one workload with an estimate: {names}", f"Name one: {file}::NAME")
    peak = workloads[0].estimate.peak
    return {"allocated": (peak.allocated.low, peak.allocated.high), "reserved": (peak.reserved.low, peak.reserved.high)}
