"""A plan for the program behind a recording that failed."""

from collections.abc import Callable

from memlint.commands.check.check import check
from memlint.commands.check.targets import CheckOptions
from memlint.memory.devices import DEFAULT_DEVICE, device_named
from memlint.report.model import Plan


def plan_within(room: int, target: str, gpu: str | None, on_wait: Callable[[str, float], None]) -> Plan | None:
    """Find changes of a program with which PyTorch reserves at most `room` bytes; None if its step cannot be planned.

    The limit of a plan is for the device: what a CUDA context takes on the GPU is added. Raises MemlintError.
    """
    device = device_named(gpu or DEFAULT_DEVICE)
    settings = {"gpu": device.name, "budget": f"{room + device.context_nbytes}B"}
    report = check([target], settings, CheckOptions(plan=True, quick=False), on_wait).report
    return next((workload.plan for workload in report.workloads if workload.plan is not None), None)
