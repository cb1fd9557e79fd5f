"""What is asked of a sweep, and what it says: plain records for JSON, every size in bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from memlint.report.model import Sweep


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


class Table(_Record):
    """All that a run of `memlint sweep` says."""

    version: Literal[1] = 1
    tool: str
    torch: str | None = None
    sweeps: tuple[Sweep, ...] = ()
