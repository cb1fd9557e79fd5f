"""Tracing programs that hold a user's code: whatever that raises becomes a WorkloadError with the user's line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from memlint.accelerator.device import NAME
from memlint.base.errors import MemlintError, ProgramError, WorkloadError
from memlint.base.frames import user_lines
from memlint.cuda.allocator.settings import AllocatorSettings
from memlint.cuda.devices import Device
from memlint.tracing.recorder import Program, trace_program
from memlint.tracing.records import Trace
from memlint.tracing.storages import Storages, storages_of


def trace_of_workload(program: Program, device: Device, allocator: AllocatorSettings | None = None) -> Trace:
    """Trace two steps of a program.

    Raises WorkloadError for what its code raises, TraceError for what cannot be traced.
    """
    with workload_errors():
        return trace_program(program, device, allocator).trace


def storages_of_workload(program: Program, device: Device, allocator: AllocatorSettings | None = None) -> Storages:
    """Run two steps of a program for its storages alone; raises the same."""
    with workload_errors():
        return storages_of(program, device, allocator)


@contextlib.contextmanager
def workload_errors() -> Iterator[None]:
    """Make a WorkloadError of what the code of a Workload raises, with its last line."""
    try:
        yield
    except (MemlintError, ProgramError):
        raise
    except Exception as error:
        lines = user_lines(error)
        where = f" at {lines[-1]}" if lines else ""
        raise WorkloadError(
            f"the step raised {type(error).__name__}{where}: {str(error).replace(NAME, 'cuda')}"
        ) from error
