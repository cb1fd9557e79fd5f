"""The trace of any Workload: whole, or for a long generation of its first and last rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlint.generation.extension import MOST_ROUNDS, Extension, NotExtendableError
from memlint.memory.records import Assumption, Trace
from memlint.tracing.workload_errors import trace_of_workload

if TYPE_CHECKING:
    from memlint.memory.allocator.settings import AllocatorSettings
    from memlint.targets.workload import Workload

_EXTENDED = (
    "of {new_tokens:,} tokens the first and the last are traced; all others follow from the first, as the last do"
)


def trace_of(workload: Workload, program: Callable[[Workload], Any], settings: AllocatorSettings) -> Trace:
    """Trace a completed Workload, of which `program` builds the program at any of its sizes.

    Raises WorkloadError and TraceError as the program does.
    """
    new_tokens = workload.dimensions.get("new_tokens", 0) if workload.mode == "generate" else 0
    if new_tokens <= MOST_ROUNDS:
        return trace_of_workload(program(workload), workload.device, settings)
    try:
        trace = Extension(workload, program, settings).trace()
        text = _EXTENDED.format(new_tokens=new_tokens)
    except NotExtendableError as reason:
        trace = trace_of_workload(program(workload), workload.device, settings)
        text = f"every token is traced, as the rounds between cannot be computed: {reason}"
    return replace(trace, assumptions=(*trace.assumptions, Assumption(text, None)))
