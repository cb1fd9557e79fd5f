"""A memory snapshot for https://pytorch.org/memory_viz, as `torch.cuda.memory._dump_snapshot` writes it.

The events go through the model of PyTorch's allocator, so segments, blocks and their order are those of a GPU. The
viewer's timeline of active memory shows requested bytes, as it does for snapshots of a GPU. `time_us` counts events,
because an estimate knows their order but not their time.
"""

import pickle
from collections.abc import Sequence

from memlint.base.errors import UsageError
from memlint.memory.allocator.reference import AllocatorSettings, OutOfMemory
from memlint.memory.allocator.snapshot import Frames, RecordingAllocator, frame, snapshot
from memlint.memory.devices import device_named
from memlint.report.exports.lifetimes import Lifetimes
from memlint.report.phrases import NO_MODULE, tensor_text

_PROTOCOL = 4
_UNKNOWN = "unknown"
"""The category of segments. The viewer fails on a snapshot with categories in which no entry has this one."""


def render_memviz(workloads: Sequence[Lifetimes]) -> bytes:
    """Return one device for each Workload, in their order. Raises UsageError for an estimate for the host."""
    allocators = [_replayed(device, each) for device, each in enumerate(workloads)]
    conf = "; ".join(dict.fromkeys(each.workload.allocator for each in workloads))
    return pickle.dumps(snapshot(allocators, conf), protocol=_PROTOCOL)


def _replayed(device: int, lifetimes: Lifetimes) -> RecordingAllocator:
    """Return the Allocator after the events of one Workload."""
    settings = AllocatorSettings.parse(lifetimes.workload.allocator)
    gpu = device_named(lifetimes.workload.gpu or "")
    if not gpu.is_cuda:
        raise UsageError(
            f"{lifetimes.workload.name} was estimated for the host, which has no caching allocator",
            "Estimate it for a GPU, as with --gpu a100-80gb, or take another --format.",
        )
    share = int(settings.memory_fraction * gpu.total_nbytes) if settings.memory_fraction < 1 else None
    try:
        return _run(device, lifetimes, settings, gpu.total_nbytes - gpu.context_nbytes, share)
    except OutOfMemory:  # as in the estimate, GPU and share count unless too little for the step
        return _run(device, lifetimes, settings, None, None)


def _run(
    device: int, lifetimes: Lifetimes, settings: AllocatorSettings, capacity: int | None, share: int | None
) -> RecordingAllocator:
    timeline = lifetimes.timeline
    recording = RecordingAllocator(settings, capacity, share, device, {"category": _UNKNOWN})
    frames: dict[int, Frames] = {}
    metadata: dict[str, dict[str, str]] = {}
    emptied = frozenset(timeline.emptied)
    for position, event in enumerate(timeline.events):
        recording.time = position
        if position in emptied:
            recording.allocator.empty_cache()
        buffer = event if event >= 0 else ~event
        if not timeline.nbytes[buffer]:  # PyTorch does not call the allocator for zero bytes
            continue
        part = lifetimes.part_of_step(position)
        if event < 0:
            recording.close(buffer, [frame(part, 0, "freed")])
            continue
        site = timeline.buffer_sites[buffer]
        if site not in frames:
            frames[site] = _frames_of(lifetimes, buffer)
        facts = {"category": lifetimes.site(buffer).category.value}
        made = metadata.setdefault(part, {"made in": part})
        stream = timeline.streams[buffer] if timeline.streams else 0
        if buffer == timeline.first_after_index:
            recording.open_below(stream)
        recording.open(buffer, timeline.nbytes[buffer], frames[site], stream, **facts, user_metadata=made)
    return recording


def _frames_of(lifetimes: Lifetimes, buffer: int) -> Frames:
    """Return the frames of the Buffer, innermost first: the kernel in its module with the tensor, then the lines."""
    site = lifetimes.site(buffer)
    tensor = " ".join(part for part in (site.op, tensor_text(site.dtype, site.shape), site.name) if part)
    frames = [frame(site.module or NO_MODULE, 0, tensor)]
    if site.library is not None:
        frames.append(frame(site.library.path, site.library.line, site.library.function))
    if site.path is not None:
        frames.append(frame(site.path, site.line or 0, site.function))
    return frames
