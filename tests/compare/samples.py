"""Reports that differ in what a test says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlint.report.model import (
    AliveBuffer,
    Budget,
    Error,
    Estimate,
    Finding,
    LineBytes,
    ModuleBytes,
    Peak,
    Report,
    Sweep,
    SweepRow,
    Workload,
)
from tests.report.sample import GIB, MIB, exactly

if TYPE_CHECKING:
    from memlint.report.model import Interval

__all__ = ["GIB", "MIB", "buffer", "exactly", "failed", "finding", "line", "lost", "report", "sweep", "workload"]


def line(nbytes: int, number: int, source: str = "y = f(x)", path: str = "model.py", module: str = "h.*") -> LineBytes:
    return LineBytes(path=path, line=number, source=source, nbytes=nbytes, num_buffers=1, module=module)


def buffer(nbytes: int, number: int, module: str = "h.0", name: str = "", path: str = "model.py") -> AliveBuffer:
    category: Any = "parameter" if name else "activation"
    return AliveBuffer(
        nbytes=nbytes,
        dtype="float32",
        shape=(nbytes // 4,),
        category=category,
        op="aten.mm.default",
        path=path,
        line=number,
        module=module,
        name=name,
    )


def workload(
    name: str = "gpt",
    device: int | Interval = 8 * GIB,
    *,
    lines: list[LineBytes] | None = None,
    buffers: list[AliveBuffer] | None = None,
    num_at_peak: int | None = None,
    modules: dict[str, int] | None = None,
    categories: dict[Any, int] | None = None,
    sweeps: list[Sweep] | None = None,
    **facts: Any,
) -> Workload:
    """A Workload that was analysed; `device` is the peak that nvidia-smi would show."""
    shown = exactly(device) if isinstance(device, int) else device
    peak = Peak(requested=shown, allocated=shown, reserved=shown, device=shown)
    estimate = Estimate(
        peak=peak,
        phase="backward",
        op="aten.mm.default",
        categories=categories or {},
        at_peak=buffers or [],
        num_at_peak=len(buffers or []) if num_at_peak is None else num_at_peak,
        by_line=lines or [],
        by_module=[ModuleBytes(module=m, nbytes=n, num_buffers=1) for m, n in (modules or {}).items()],
    )
    known: dict[str, Any] = {"mode": "train", "batch": 8, "dtype": "bf16-amp", "optimizer": "adamw", "gpu": "a100-80gb"}
    known["target"] = f"{name}.py::build"
    return Workload(name=name, estimate=estimate, sweep=sweeps or [], **{**known, **facts})


def failed(name: str = "gpt", message: str = "gpt.py raised ValueError") -> Workload:
    return Workload(name=name, target=f"{name}.py::build", error=Error(kind="workload", message=message))


def lost(target: str = "gpt.py", message: str = "cannot be imported: ImportError: no kernels") -> Workload:
    """What a Report holds of a target that could not be loaded."""
    return Workload(name=target, target=target, error=Error(kind="target", message=message))


def sweep(rows: dict[int, int], largest: int | None, dtype: str = "bf16-amp") -> Sweep:
    """Device bytes by batch."""

    def row(batch: int) -> SweepRow:
        nbytes = exactly(rows.get(batch, 0))
        return SweepRow(batch=batch, requested=nbytes, allocated=nbytes, reserved=nbytes, device=nbytes)

    return Sweep(
        name="gpt",
        target="gpt.py::build",
        mode="train",
        optimizer="adamw",
        dtype=dtype,
        gpu="a100-80gb",
        gpu_title="NVIDIA A100 80 GB",
        gpu_nbytes=79 * GIB,
        rows=[row(batch) for batch in rows],
        largest=None if largest is None else row(largest),
    )


def finding(
    message: str, number: int = 10, path: str = "model.py", workload: str | None = None, code: str = "MEM103"
) -> Finding:
    return Finding(
        code=code,
        path=path,
        line=number,
        column=1,
        message=message,
        severity="warning",
        confidence="exact-retrace",
        workload=workload,
    )


def report(
    *workloads: Workload, findings: list[Finding] | None = None, torch: str = "2.13.0", **budgets: Budget
) -> Report:
    """`budgets` are those of the workloads of these names; `any` is that of the others."""
    return Report(
        tool="memlint 0.1.0",
        torch=torch,
        workloads=[
            each.model_copy(update={"allowed": budgets.get(each.name) or budgets.get("any") or each.allowed})
            for each in workloads
        ],
        findings=findings or [],
    )
