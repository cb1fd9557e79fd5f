"""The jobs of a child, one after the other, and its answers: plain records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memlint.report.model import Place, Record, Sweep
from memlint.report.tables import Fit
from memlint.targets.built import Built

if TYPE_CHECKING:
    from memlint.report.tables import FitOrder, Order
    from memlint.serving.model import ProfileOrder
    from memlint.whatif.change import Change


class Job:
    """Something to be done by a child; its `repr` tells it from all others."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Finish(Job):
    """Say on what all answers depend, and end."""


@dataclass(frozen=True, slots=True)
class FindWorkloads(Job):
    """Load the target, and find its Workloads. Answered by Found."""


@dataclass(frozen=True, slots=True)
class TraceWorkload(Job):
    """Trace two steps of a Workload, or run the script. Answered by a Capture."""

    workload: int = 0
    """Its position in Found."""


@dataclass(frozen=True, slots=True)
class TellBuilt(Job):
    """Run the script to where it has built its models. Answered by WhatWasBuilt."""


@dataclass(frozen=True, slots=True)
class Retrace(Job):
    """The same of a Workload in which Changes were made. Answered by a Capture."""

    workload: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class FindHolders(Job):
    """Find who holds these Buffers at an event of the changed program. Answered by Holders."""

    workload: int
    changes: tuple[Change, ...]
    event: int
    buffers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunLonger(Job):
    """Trace more steps in a row. Answered by a Capture, and by Keepers."""

    workload: int


@dataclass(frozen=True, slots=True)
class Declare(Job):
    """Write the declaration of a Workload that was traced. Answered by Text."""

    workload: int


@dataclass(frozen=True, slots=True)
class DeclareByHand(Job):
    """Write a declaration to be filled in of what cannot be analysed. Answered by Text."""

    name: str
    kind: str
    """The class name of the error that says why; `message` and `hint` are of the same error."""
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class EstimateAround(Job):
    """Make the tables around the batch size of a Workload that was traced. Answered by Sweeps."""

    workload: int


@dataclass(frozen=True, slots=True)
class Begin(Job):
    """Begin with a job that is asked later, on another core if that can be. Answered by nothing."""

    job: EstimateAround


@dataclass(frozen=True, slots=True)
class SweepSizes(Job):
    """Make the tables of an Order. Answered by Sweeps."""

    order: Order


@dataclass(frozen=True, slots=True)
class FitWorkloads(Job):
    """Find what fits, with each of the settings of Workloads in the order. Answered by Fits."""

    order: FitOrder


@dataclass(frozen=True, slots=True)
class DescribeServed(Job):
    """Describe the model of a Workload for a serving engine. Answered by `memlint.serving.model.ServedModel`."""

    workload: int


@dataclass(frozen=True, slots=True)
class RunProfile(Job):
    """Take the step with which a serving engine begins. Answered by `memlint.serving.model.Profile`."""

    workload: int
    order: ProfileOrder


class LeftOut(Record):
    """Something in a target that is no Workload, or cannot be one."""

    name: str
    reason: str
    hint: str
    call: str


class Found(Record):
    """The Workloads of a target."""

    torch: str
    workloads: list[dict[str, Any]] = []
    """As in the file of a Capture: see `memlint.capture.codec.workload_of`."""
    left_out: list[LeftOut] = []


class WhatWasBuilt(Record):
    """Answer of TellBuilt."""

    built: Built


class Held(Record):
    """The variable that alone holds a Buffer, as in `memlint.memory.retention.Holder`."""

    buffer: int
    variable: str
    frame: Place
    names: list[str]


class Holders(Record):
    """Answer of FindHolders."""

    holders: list[Held] = []


class Kept(Record):
    """The variable that keeps a Buffer, as in `memlint.memory.retention.Keeper`."""

    buffer: int
    variable: str
    has_graph: bool
    frame: Place


class Keepers(Record):
    """Answer of RunLonger, beside its Capture."""

    keepers: list[Kept] = []


class Text(Record):
    """A text; empty where there is none to write."""

    text: str = ""


class Sweeps(Record):
    """Answer of EstimateAround and SweepSizes; a partial one has what there is so far."""

    torch: str
    sweeps: list[Sweep] = []


class FitsSoFar(Record):
    """Answer of FitWorkloads; a partial one has what there is so far."""

    torch: str
    fits: list[Fit] = []
