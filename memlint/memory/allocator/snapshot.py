"""Snapshots of the caching allocator in the format of `torch.cuda.memory._snapshot`.

https://pytorch.org/memory_viz reads pickles of protocol 4 at most, of plain dicts, lists, tuples, strings, numbers and
truth values, and addresses below 2**53.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from memlint.memory.allocator.driver import Driver
from memlint.memory.allocator.reference import Allocator, AllocatorSettings, Block

Frames = list[dict[str, Any]]
"""Stack frames, innermost first, each with `filename`, `line` and `name`."""


class RecordingAllocator(Driver):
    """An Allocator and the list of its actions; it is its own driver, and so sees segments come and go.

    There are `capacity` bytes for segments (None: no limit), of which `share` may be reserved; `of_segments` are
    further fields of each event of a segment.
    """

    def __init__(
        self,
        settings: AllocatorSettings,
        capacity: int | None = None,
        share: int | None = None,
        device: int = 0,
        of_segments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(capacity)
        self.device = device
        self.allocator = Allocator(settings, driver=self, share=share)
        self.trace: list[dict[str, Any]] = []
        self.is_recording = True
        """True if events are added to the trace."""
        self.time = 0
        """`time_us` of the current event; the caller that replays events sets it."""
        self.live: dict[int, Block] = {}
        """Blocks in use by the number of their Buffer."""
        self._frames: dict[int, Frames] = {}
        self._opening: Frames = []
        self._stream = 0
        self._of_segments = of_segments or {}

    def open(self, buffer: int, nbytes: int, frames: Frames, stream: int = 0, **facts: Any) -> Block:
        """Take a block of `nbytes` on `stream` for a Buffer that was made at `frames`. Raises OutOfMemory."""
        self._opening, self._stream = frames, stream
        block = self.live[buffer] = self.allocator.malloc(nbytes, stream)
        self._frames[buffer] = frames
        self._record("alloc", block.address, block.requested, stream=stream, frames=frames, **facts)
        return block

    def close(self, buffer: int, frames: Frames) -> None:
        """Free the block of a Buffer."""
        block = self.live.pop(buffer)
        del self._frames[buffer]
        for action in ("free_requested", "free_completed"):
            self._record(action, block.address, block.requested, stream=block.stream, frames=frames)
        self.allocator.free(block)

    def malloc(self, nbytes: int, stream: int) -> int | None:
        """Record and do the same as a Driver."""
        address = super().malloc(nbytes, stream)
        if address is not None:
            self._record_segment("segment_alloc", address, nbytes)
        return address

    def free(self, address: int, nbytes: int) -> None:
        """Record and do the same as a Driver."""
        super().free(address, nbytes)
        self._record_segment("segment_free", address, nbytes)

    def map(self, address: int, nbytes: int) -> bool:
        """Record and do the same as a Driver."""
        is_mapped = super().map(address, nbytes)
        if is_mapped:
            self._record_segment("segment_map", address, nbytes)
        return is_mapped

    def unmap(self, address: int, nbytes: int) -> None:
        """Record and do the same as a Driver."""
        super().unmap(address, nbytes)
        self._record_segment("segment_unmap", address, nbytes)

    def _record_segment(self, action: str, address: int, nbytes: int) -> None:
        """Record an event of a segment, which happens while a Buffer opens."""
        self._record(action, address, nbytes, stream=self._stream, frames=self._opening, **self._of_segments)

    def _record(self, action: str, address: int, nbytes: int, **facts: Any) -> None:
        if self.is_recording:
            event = {"action": action, "addr": address, "size": nbytes, "time_us": self.time, **facts}
            self.trace.append(event)

    def segments(self) -> Iterator[dict[str, Any]]:
        """Yield the allocator's segments, one stretch of memory after the other."""
        frames = {block.address: self._frames[buffer] for buffer, block in self.live.items()}
        for blocks in self.allocator.segments():
            for mapped, group in groupby(blocks, key=lambda block: block.mapped):
                if mapped:
                    yield self._segment(list(group), frames)

    def _segment(self, blocks: list[Block], frames: Mapping[int, Frames]) -> dict[str, Any]:
        in_use = [block for block in blocks if block.allocated]
        allocated = sum(block.size for block in in_use)
        return {
            "device": self.device,
            "address": blocks[0].address,
            "total_size": sum(block.size for block in blocks),
            "allocated_size": allocated,
            "active_size": allocated,
            "requested_size": sum(block.requested for block in in_use),
            "stream": blocks[0].stream,
            "segment_type": "small" if blocks[0].pool.is_small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": blocks[0].expandable,
            "frames": [],
            "blocks": [
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested,
                    "state": "active_allocated" if block.allocated else "inactive",
                    "frames": frames[block.address] if block.allocated else [],
                }
                for block in blocks
            ],
        }


def snapshot(allocators: list[RecordingAllocator], conf: str) -> dict[str, Any]:
    """Return the snapshot of a process with this number of devices; `conf` is its PYTORCH_ALLOC_CONF."""
    return {
        "segments": [segment for each in allocators for segment in each.segments()],
        "device_traces": [each.trace for each in allocators],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": conf},
        "external_annotations": [],
    }


def frame(filename: str, line: int, name: str) -> dict[str, Any]:
    """Make one of Frames."""
    return {"filename": filename, "line": line, "name": name}
