"""What memlint says of a Subject, reduced to what a device can be asked as well. Sizes are bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from memlint.report.model import CategoryName, PhaseName
from memlint.validate.measurement import Allocation


class Range(NamedTuple):
    """As in an Estimate: at least, most likely, at most."""

    low: int
    estimate: int
    high: int


class Prediction(BaseModel):
    """An Estimate's numbers, or `error`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    """The Subject's."""
    peaks: dict[str, Range] = {}
    """requested, allocated, reserved, device."""
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
    skipped: str | None = None
    """The reason, where it is this machine's and not the Workload's: a package is missing."""

    @classmethod
    def failed(cls, name: str, message: str) -> Prediction:
        """One without numbers."""
        return cls(name=name, error=message)

    def model_post_init(self, _context: Any) -> None:
        """Either numbers or an error."""
        if bool(self.peaks) == (self.error is not None):
            raise ValueError("a prediction has peaks or an error")
