"""Traces of programs that hold a user's code: an exception in it becomes a WorkloadError with the user's line."""

import contextlib
from collections.abc import Iterator

from memlint.accelerator.device import NAME
from memlint.base.errors import MemlintError, ProgramError, WorkloadError
from memlint.base.frames import text_of, user_lines
from memlint.cuda.simulated import simulated
from memlint.libraries import plugins
from memlint.libraries.unknown_attributes import unknown_attribute
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.records import Doubt, Storages, Trace
from memlint.tracing.recorder import Program, trace_program, virtual_device_of, without_collector
from memlint.tracing.turns import in_turns


def trace_of_workload(program: Program, device: Device, allocator: AllocatorSettings | None = None) -> Trace:
    """Trace two steps of a program.

    Raises WorkloadError if its code raises, TraceError if it cannot be traced.
    """
    with workload_errors():
        return trace_program(program, device, allocator).trace


def storages_of_workload(program: Program, device: Device, allocator: AllocatorSettings | None = None) -> Storages:
    """Run two steps of a program for its storages alone: little more work than the steps; raises the same."""

    def run() -> Storages:
        with without_collector() as collect, virtual_device_of(program, device, allocator) as ledger:
            program.setup()
            collect()
            for _ in range(2):
                program.step()
                collect()
            ledger.freeze()
            return Storages(
                sizes=tuple(birth.nbytes for birth in ledger.births),
                events=tuple(ledger.events),
                doubts=tuple(Doubt(number, low, high) for number, (low, high) in ledger.doubts.items()),
                workspaces=simulated().workspaces.numbers,
                streams=ledger.used_streams(),
            )

    with workload_errors():
        return in_turns(run, program, device)


@contextlib.contextmanager
def workload_errors() -> Iterator[None]:
    """Turn an exception in the code of a Workload into a WorkloadError with the user's last line."""
    try:
        yield
    except (MemlintError, ProgramError):
        raise
    except Exception as error:
        unknown = unknown_attribute(error)
        if unknown is not None:
            raise unknown from error
        lines = user_lines(error)
        where = f" at {lines[-1]}" if lines else ""
        raise WorkloadError(
            f"the step raised {type(error).__name__}{where}: {text_of(error).replace(NAME, 'cuda')}",
            plugins.hint_for(error),
        ) from error
