"""The jobs of a child of the validator, and its answers: plain records."""

from dataclasses import dataclass

from memlint.report.model import Record
from memlint.validate.comparison import Prediction
from memlint.validate.measurement import Measurement, MeasureRequest, Subject
from memlint.worker.jobs import Job


class PredictOrder(Record):
    """Subjects to be estimated for a GPU."""

    subjects: list[Subject]
    gpu: str
    torch: str = ""
    """Version of PyTorch there, as 2.11; empty for the installed one."""
    allocations: bool = False
    """True if every allocation is to be listed."""


@dataclass(frozen=True, slots=True)
class FindSubjects(Job):
    """Find the Workloads of a target as Subjects. Answered by FoundSubjects."""

    is_on_host: bool
    """True if they are to be measured on the host."""


@dataclass(frozen=True, slots=True)
class PredictSubjects(Job):
    """Estimate Subjects. Answered by Predictions."""

    order: PredictOrder


@dataclass(frozen=True, slots=True)
class DescribeMachine(Job):
    """Name the machine that a device is in. Answered by Machine."""

    device: str


@dataclass(frozen=True, slots=True)
class MeasureSubject(Job):
    """Run a Subject for real. Answered by Measured."""

    order: MeasureRequest


class NotFound(Record):
    """A Workload that is no Subject, and why."""

    name: str
    message: str
    hint: str


class FoundSubjects(Record):
    """The Subjects of a target."""

    subjects: list[Subject] = []
    failed: list[NotFound] = []


class Predictions(Record):
    """In the order of the Subjects."""

    predictions: list[Prediction]


class Measured(Record):
    """A Measurement, or why there is none."""

    measurement: Measurement | None = None
    skipped: str = ""
