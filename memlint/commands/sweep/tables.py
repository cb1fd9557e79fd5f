"""What is asked of a sweep, and what it says: plain records for JSON, every size in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from memlint.base.units import outcome
from memlint.cuda.devices import Device, device_named
from memlint.report.model import Interval, Record, Sweep, SweepRow
from memlint.workloads.spec import Workload

if TYPE_CHECKING:
    from memlint.scaling.sizes import SizePeaks


class Order(Record):
    """Which tables to make of every Workload of a target."""

    batches: tuple[int, ...]
    dtypes: tuple[str, ...] = ()
    """None of them for that of the Workload."""
    gpus: tuple[str, ...] = ()
    """None of them for that of the Workload."""
    dimensions: dict[str, tuple[int, ...]] = {}
    """Sizes of other dimensions of the Workload; one that is missing keeps its own."""


class Tables(Record):
    """All that a run of `memlint sweep` says."""

    version: Literal[1] = 1
    tool: str
    torch: str | None = None
    sweeps: tuple[Sweep, ...] = ()


def subject(workload: Workload) -> dict[str, Any]:
    """The fields of a Sweep or a Fit that name the Workload and its GPU."""
    device = device_named(workload.gpu)
    return {
        **{name: getattr(workload, name) for name in ("name", "target", "mode", "dtype", "gpu")},
        "optimizer": workload.optimizer if workload.mode == "train" else None,
        "gpu_title": device.title,
        "gpu_nbytes": device.total_nbytes,
    }


def row_of(size: SizePeaks, device: Device) -> SweepRow:
    """The peaks at one size as a Report says them, and whether they stay within the GPU."""
    if size.peaks is None:
        return SweepRow(batch=size.batch, error=size.error)
    ranges: dict[str, Any] = {name: Interval(**peak._asdict()) for name, peak in size.peaks._asdict().items()}
    low, _, high = size.peaks.device
    within = outcome(low, high, device.total_nbytes) if device.is_cuda else None
    return SweepRow(batch=size.batch, **ranges, evidence=size.evidence, outcome=within)
