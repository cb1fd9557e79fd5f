"""Edits of a Timeline that answer without another trace: exact where no other kernel would run.

`memlint.memory.timeline` has the edits of single Buffers by id: `end_at`, `resize`, `without`, and `merge`, which is
what an operation in place does. Here are those that are said of Buffers by what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.memory.liveness import held, origin
from memlint.memory.timeline import Timeline, end_at, resize
from memlint.whatif.changes import NotApplicableError

if TYPE_CHECKING:
    from collections.abc import Collection

    from memlint.memory.liveness import Origin
    from memlint.tracing.records import Trace

ITEMSIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "float32": 4, "int64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes per element of PyTorch's dtypes."""


def drop_references(trace: Trace, origins: Collection[Origin]) -> Timeline:
    """The Timeline of `trace` with every Buffer of these origins closed right after its last use.

    What else would keep such a Buffer is not asked. Raises NotApplicableError where none outlives its last use.
    """
    cuts = {buffer.id: buffer.last_used for buffer in held(trace) if origin(buffer) in origins}
    if not cuts:
        raise NotApplicableError
    return end_at(Timeline.of(trace), cuts)


def recast(timeline: Timeline, buffer_ids: Collection[int], dtype: str) -> Timeline:
    """Give Buffers the bytes that their elements take in another dtype, named as in `Buffer.dtype`."""
    buffers = timeline.buffers
    return resize(
        timeline,
        {each: buffers[each].nbytes * ITEMSIZES[dtype] // ITEMSIZES[buffers[each].dtype] for each in buffer_ids},
    )
