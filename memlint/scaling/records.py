"""What is asked of a sweep, and what it says: plain records for JSON, every size in bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from memlint.report.model import Outcome

MAX_BATCH = 2**31 - 1


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Order(_Record):
    """Which tables to make of every Workload of a target."""

    batches: tuple[int, ...]
    dtypes: tuple[str, ...]
    """None of them for that of the Workload."""
    gpus: tuple[str, ...]
    """None of them for that of the Workload."""
    dimensions: dict[str, tuple[int, ...]] = {}
    """Sizes of other dimensions of the Workload; one that is missing keeps its own."""


class Range(_Record):
    """Bytes: at least `low`, at most `high`, most likely `estimate`."""

    low: int
    estimate: int
    high: int


class Row(_Record):
    """The peaks at one batch size, as in an Estimate, or why there are none."""

    batch: int
    requested: Range | None = None
    allocated: Range | None = None
    reserved: Range | None = None
    device: Range | None = None
    outcome: Outcome | None = None
    """Whether `device` stays within the GPU."""
    evidence: Literal["traced", "computed"] = "traced"
    """Whether a step of this batch was run, or its peaks follow from steps of others."""
    error: str | None = None


class Sweep(_Record):
    """One Workload with one dtype on one GPU, and one size of each dimension but the batch."""

    name: str
    target: str
    mode: str
    optimizer: str | None
    dtype: str
    dimensions: dict[str, int] = {}
    """Those that the Workload declares, with their sizes."""
    gpu: str
    """As in the catalogue."""
    gpu_title: str
    gpu_nbytes: int
    """What a process can use."""
    rows: tuple[Row, ...] = ()
    """By batch size."""
    largest: Row | None = None
    """The largest batch that surely fits, if one was found."""
    is_limit: bool = False
    """Whether it is known that no larger one surely fits."""
    traced: tuple[int, ...] = ()
    """Batch sizes that were run."""
    note: str | None = None
    """Why nothing could be computed from other sizes."""
    is_partial: bool = False
    """Whether it was stopped before it had all rows and the largest."""
    error: str | None = None
    """Why there is nothing."""
    hint: str = ""


class Table(_Record):
    """All that a run of `memlint sweep` says."""

    version: Literal[1] = 1
    tool: str
    torch: str | None = None
    sweeps: tuple[Sweep, ...] = ()
