"""What a sweep or a fit is about, as its records say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlint.cuda.devices import device_named

if TYPE_CHECKING:
    from memlint.workloads.spec import Workload


def subject(workload: Workload) -> dict[str, Any]:
    """The fields of a Sweep or a Fit that name the Workload and its GPU."""
    device = device_named(workload.gpu)
    return {
        "name": workload.name,
        "target": workload.target,
        "mode": workload.mode,
        "optimizer": workload.optimizer if workload.mode == "train" else None,
        "dtype": workload.dtype,
        "gpu": workload.gpu,
        "gpu_title": device.title,
        "gpu_nbytes": device.total_nbytes,
    }
