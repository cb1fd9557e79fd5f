"""The trace of any Workload: whole, or for a long generation of its first and last rounds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from memlint.generation.extension import MOST_ROUNDS, Begun, Extension, Later, NotExtendableError
from memlint.generation.rounds import Rounds
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.records import ONE_STREAM, Assumption, Trace
from memlint.scaling.scaled import Lives, lives_of_trace
from memlint.targets.workload import Workload
from memlint.tracing.workload_errors import trace_of_workload

_EXTENDED = (
    "of {new_tokens:,} tokens the first and the last are traced; all others follow from the first, as the last do"
)


def is_long(workload: Workload) -> bool:
    """Return True if a Workload generates more tokens than are traced one by one."""
    return workload.mode == "generate" and workload.dimensions.get("new_tokens", 0) > MOST_ROUNDS


def lives_of_generation(trace: Trace) -> Lives:
    """Return all storages of a generation, also of the rounds that were not traced."""
    if trace.whole is None:
        return lives_of_trace(trace)
    sizes, events = (np.array(each, np.int64) for each in (trace.whole.sizes, trace.whole.events))
    return Lives(sizes, events, list(trace.whole.doubts), ONE_STREAM)


def trace_of(
    workload: Workload,
    program: Callable[[Workload], Any],
    settings: AllocatorSettings,
    begin: Callable[[Callable[[], Rounds]], Begun] = Later,
) -> Trace:
    """Trace a completed Workload, of which `program` builds the program at any of its sizes.

    With `begin` the last rounds of a long generation may be traced while the first ones are. Raises WorkloadError and
    TraceError as the program does.
    """
    if not is_long(workload):
        return trace_of_workload(program(workload), workload.device, settings)
    try:
        trace = Extension(workload, program, settings, begin).trace()
        text = _EXTENDED.format(new_tokens=workload.dimensions["new_tokens"])
    except NotExtendableError as reason:
        trace = trace_of_workload(program(workload), workload.device, settings)
        text = f"every token is traced, as the rounds between cannot be computed: {reason}"
    return replace(trace, assumptions=(*trace.assumptions, Assumption(text, None)))
