"""A memory snapshot for https://pytorch.org/memory_viz, as `torch.cuda.memory._dump_snapshot` writes it.

The events go through the model of PyTorch's allocator, so that segments, blocks and their order are those that a GPU
would show. The viewer's reader takes pickles of protocol 4 at most, of plain dicts, lists, tuples, strings, numbers and
truth values, and addresses below 2**53. Its timeline of active memory shows requested bytes, as it does for snapshots
of a GPU. `time_us` counts events, because an estimate knows their order and not their time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from memlint.base.errors import UsageError
from memlint.cuda.allocator.driver import Driver
from memlint.cuda.allocator.reference import Allocator, AllocatorSettings, Block, OutOfMemory
from memlint.cuda.devices import device_named
from memlint.report.exports.lifetimes import Lifetimes
from memlint.report.phrases import tensor_text

_PROTOCOL = 4
_UNKNOWN = "unknown"
"""The category of segments. The viewer fails on a snapshot with categories in which no entry has this one."""
_NO_MODULE = "(no submodule)"


def render_memviz(workloads: Sequence[Lifetimes]) -> bytes:
    """One device for each Workload, in their order. Raises UsageError for one that was estimated for the host."""
    replays = [_Replay(device, each) for device, each in enumerate(workloads)]
    snapshot = {
        "segments": [segment for replay in replays for segment in replay.segments()],
        "device_traces": [replay.trace for replay in replays],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "; ".join(dict.fromkeys(r.conf for r in replays))},
        "external_annotations": [],
    }
    return pickle.dumps(snapshot, protocol=_PROTOCOL)


class _Replay(Driver):
    """The events of one Workload, carried out by an Allocator; as its driver it sees the segments come and go."""

    def __init__(self, device: int, lifetimes: Lifetimes) -> None:
        self.device = device
        self.lifetimes = lifetimes
        self.timeline = lifetimes.timeline
        self.conf = lifetimes.workload.allocator
        settings = AllocatorSettings.parse(self.conf)
        gpu = device_named(lifetimes.workload.gpu or "")
        if not gpu.is_cuda:
            raise UsageError(
                f"{lifetimes.workload.name} was estimated for the host, which has no caching allocator",
                "Estimate it for a GPU, as with --gpu a100-80gb, or take another --format.",
            )
        # As in the estimate: a share of the GPU counts unless it is too little for the step
        shares = [int(settings.memory_fraction * gpu.total_nbytes)] if settings.memory_fraction < 1 else []
        for share in (*shares, None):
            try:
                self._run(settings, share)
                break
            except OutOfMemory:
                continue

    def _run(self, settings: AllocatorSettings, share: int | None) -> None:
        super().__init__()
        self.trace: list[dict[str, Any]] = []
        self.live: dict[int, Block] = {}
        self.allocator = Allocator(settings, driver=self, share=share)
        self._frames: dict[int, list[dict[str, Any]]] = {}
        self._metadata: dict[str, dict[str, str]] = {}
        for position, event in enumerate(self.timeline.events):
            self._position = position
            buffer = event if event >= 0 else ~event
            if self.timeline.nbytes[buffer]:  # for nothing PyTorch does not ask the allocator
                (self._open if event >= 0 else self._close)(buffer)

    def _open(self, buffer: int) -> None:
        block = self.live[buffer] = self.allocator.malloc(self.timeline.nbytes[buffer])
        part = self.lifetimes.part_of_step(self._position)
        self._record(
            "alloc",
            block.address,
            block.requested,
            frames=self._frames_of(buffer),
            category=self.lifetimes.site(buffer).category,
            user_metadata=self._metadata.setdefault(part, {"made in": part}),
        )

    def _close(self, buffer: int) -> None:
        block = self.live.pop(buffer)
        frames = [_frame(self.lifetimes.part_of_step(self._position), 0, "freed")]
        for action in ("free_requested", "free_completed"):
            self._record(action, block.address, block.requested, frames=frames)
        self.allocator.free(block)

    def malloc(self, nbytes: int, stream: int) -> int | None:
        address = super().malloc(nbytes, stream)
        assert address is not None, "there is no limit"
        self._record_segment("segment_alloc", address, nbytes)
        return address

    def free(self, address: int, nbytes: int) -> None:
        super().free(address, nbytes)
        self._record_segment("segment_free", address, nbytes)

    def map(self, address: int, nbytes: int) -> bool:
        self._record_segment("segment_map", address, nbytes)
        return super().map(address, nbytes)

    def unmap(self, address: int, nbytes: int) -> None:
        super().unmap(address, nbytes)
        self._record_segment("segment_unmap", address, nbytes)

    def _record_segment(self, action: str, address: int, nbytes: int) -> None:
        """Segments come and go while a Buffer opens."""
        frames = self._frames_of(self.timeline.events[self._position])
        self._record(action, address, nbytes, frames=frames, category=_UNKNOWN)

    def _record(self, action: str, address: int, nbytes: int, **facts: Any) -> None:
        event = {"action": action, "addr": address, "size": nbytes, "stream": 0, "time_us": self._position, **facts}
        self.trace.append(event)

    def _frames_of(self, buffer: int) -> list[dict[str, Any]]:
        """What made the Buffer, innermost first: the kernel in its module with the tensor, then the user's line."""
        number = self.timeline.buffer_sites[buffer]
        if number not in self._frames:
            site = self.timeline.sites[number]
            tensor = " ".join(part for part in (site.op, tensor_text(site.dtype, site.shape), site.name) if part)
            frames = [_frame(site.module or _NO_MODULE, 0, tensor)]
            if site.library is not None:
                frames.append(_frame(site.library.path, site.library.line, site.library.function))
            if site.path is not None:
                frames.append(_frame(site.path, site.line or 0, site.function))
            self._frames[number] = frames
        return self._frames[number]

    def segments(self) -> Iterator[dict[str, Any]]:
        """What the allocator has at the end, one stretch of memory after the other."""
        owners = {block.address: buffer for buffer, block in self.live.items()}
        for blocks in self.allocator.segments():
            for mapped, group in groupby(blocks, key=lambda block: block.mapped):
                if mapped:
                    yield self._segment(list(group), owners)

    def _segment(self, blocks: list[Block], owners: dict[int, int]) -> dict[str, Any]:
        in_use = [block for block in blocks if block.allocated]
        allocated = sum(block.size for block in in_use)
        return {
            "device": self.device,
            "address": blocks[0].address,
            "total_size": sum(block.size for block in blocks),
            "allocated_size": allocated,
            "active_size": allocated,
            "requested_size": sum(block.requested for block in in_use),
            "stream": 0,
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
                    "frames": self._frames_of(owners[block.address]) if block.allocated else [],
                }
                for block in blocks
            ],
        }


def _frame(filename: str, line: int, name: str) -> dict[str, Any]:
    return {"filename": filename, "line": line, "name": name}
