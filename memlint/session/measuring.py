"""A real device: naming the machine that it is in, and measuring a Subject on it."""

import platform
from functools import partial
from pathlib import Path
from typing import Any

import torch

from memlint.memory.records import Phase
from memlint.session.real.cpu import CpuMeasurement, measure_cpu_step
from memlint.session.real.cuda import CudaMeasurement, driver_version, limit_reserved, measure_cuda_step, require_cuda
from memlint.session.real.real_run import Holdings, flags_now, reason_to_skip, under, watched_phases
from memlint.validate.history import write_history
from memlint.validate.jobs import Measured
from memlint.validate.measurement import Allocation, Machine, Measurement, MeasureRequest, Peaks, catalogue_name
from memlint.workloads.construction.construct import completed_program


def describe(device: str) -> Machine:
    """The machine the device is in. Raises UsageError where there is no such device."""
    if device == "cuda":
        require_cuda()
    return _machine(device)


def measure(root: Path, order: MeasureRequest) -> Measured:
    """Run one Workload for real: a Measurement, or why it is left out: too big, or a package is missing."""
    if order.device == "cuda":
        require_cuda()
    try:
        return Measured(measurement=_measured(order, root))
    except Exception as error:
        reason = reason_to_skip(error)
        if reason is None:
            raise
        return Measured(skipped=reason)


def _measured(order: MeasureRequest, root: Path) -> Measurement:
    subject, num_steps = order.subject, order.num_warmup + order.num_steps
    with under(subject.conditions):
        # A real program does not look at its GPU, which need not be in the catalogue.
        program = completed_program(subject.workload(root, order.device), root, order.device)
        holdings = Holdings(program, order.device)
        if order.device == "cpu":
            with watched_phases(holdings.note_gradients):
                facts = _of_cpu(measure_cpu_step(program, num_steps), listed=order.allocations)
        else:
            if order.limit is not None:
                limit_reserved(order.limit)
            watched = partial(watched_phases, holdings.note_gradients)
            history = order.history is not None or order.allocations
            facts = _of_cuda(order, measure_cuda_step(program, num_steps, watched=watched, history=history))
        return Measurement(
            subject=subject,
            machine=_machine(order.device),
            flags=flags_now(),
            num_warmup=order.num_warmup,
            num_steps=order.num_steps,
            categories=dict(holdings.finish()),
            **facts,
        )


def _of_cpu(measured: CpuMeasurement, *, listed: bool) -> dict[str, Any]:
    peak = measured.peak_event
    allocations = [Allocation(e.nbytes, e.op, e.phase) for e in measured.events if e.nbytes > 0]
    return {
        "peaks": Peaks(requested=measured.peak_nbytes),
        "phase_peaks": {phase: Peaks(requested=nbytes) for phase, nbytes in measured.phase_peaks().items()},
        "steps": [Peaks(requested=nbytes) for nbytes in measured.step_peaks()],
        "peak_phase": (peak.phase if peak else Phase.OTHER).value,
        "peak_op": peak.op if peak else "",
        "allocations": allocations if listed else [],
    }


def _of_cuda(order: MeasureRequest, measured: CudaMeasurement) -> dict[str, Any]:
    history = measured.history or {"events": []}
    if order.history is not None:
        machine = _machine("cuda")
        about = {
            "name": order.subject.name,
            "kind": order.subject.family,
            "config": order.subject.table,
            "torch": machine.torch,
            "gpu": machine.title,
        }
        peaks = history["peaks"] | {"allocated": measured.peaks.allocated}
        write_history({**about, **history, "peaks": peaks}, Path(order.history))
    allocated = (event for event in history["events"] if event[0] == "alloc")
    allocations = [Allocation(nbytes, op, phase) for _, _, nbytes, _, op, phase in allocated]
    return {
        "peaks": measured.peaks,
        "phase_peaks": {phase.value: peaks for phase, peaks in measured.phases.items()},
        "steps": measured.steps,
        "peak_phase": measured.peak_phase.value,
        "num_retries": measured.num_retries,
        "allocations": allocations if order.allocations else [],
        "history": Path(order.history).name if order.history else "",
    }


def _machine(device: str) -> Machine:
    python = platform.python_version()
    if device == "cpu":
        title = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
        return Machine(gpu="cpu", title=title, torch=torch.__version__, python=python)
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = (properties.major, properties.minor)
    return Machine(
        gpu=catalogue_name(properties.name, properties.total_memory, capability),
        title=properties.name,
        total_nbytes=properties.total_memory,
        capability=capability,
        driver=driver_version(),
        cuda=torch.version.cuda or "",
        cudnn=str(torch.backends.cudnn.version() or ""),
        torch=torch.__version__,
        python=python,
    )
