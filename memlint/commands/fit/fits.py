"""What `memlint fit` says: plain records for JSON, every size in bytes."""

from __future__ import annotations

from typing import Literal

from memlint.report.model import Interval, Record, SweepRow


class BatchParts(Record):
    """A batch in equal parts, whose gradients are added before the optimizer steps."""

    num_parts: int
    batch: int
    """Of each part."""
    device: Interval


class Way(Record):
    """A Workload with some changes made together."""

    changes: tuple[str, ...]
    """What to do; nothing for the Workload as it is."""
    effect: Literal["exact", "numerics"]
    """The strongest of theirs: every value stays what it was, or is rounded otherwise."""
    flops_change: float = 0.0
    """By how much a step computes more, as a share of what it computes as it is."""
    largest: SweepRow | None = None
    """The largest batch that surely fits."""
    is_limit: bool = False
    """Whether it is known that no larger one surely fits."""
    parts: BatchParts | None = None
    """The fewest in which the batch asked for surely fits, where there are any."""


class Fit(Record):
    """What of one Workload with one dtype fits into one GPU."""

    name: str
    target: str
    mode: str
    optimizer: str | None
    dtype: str
    batch: int
    """As asked for."""
    gpu: str
    gpu_title: str
    gpu_nbytes: int
    ways: tuple[Way, ...] = ()
    """As it is first, then with ever more changes."""
    note: str | None = None
    """Why the batch is not cut into parts."""
    is_partial: bool = False
    error: str | None = None
    hint: str = ""


class Fits(Record):
    """All that a run of `memlint fit` says."""

    version: Literal[1] = 1
    tool: str
    torch: str | None = None
    fits: tuple[Fit, ...] = ()
