"""Snapshots of programs whose cause of failure is plain: requests and ends as they are written down here."""

from typing import Any

from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.allocator.snapshot import RecordingAllocator, frame, snapshot

MIB = 2**20


class RecordedProgram:
    """A program that allocates and frees, on the allocator that writes snapshots."""

    def __init__(self) -> None:
        self.allocator = RecordingAllocator(AllocatorSettings())
        self.num = 0

    def alloc(self, nbytes: int, line: int, *above: dict[str, Any]) -> int:
        """Allocate at `train.py:line`, with frames `above` it; return the number of the allocation."""
        self.num += 1
        self.allocator.open(self.num, nbytes, [*above, frame("/home/me/train.py", line, "train")])
        return self.num

    def free(self, number: int) -> None:
        """Free an allocation."""
        self.allocator.close(number, [])

    def fail(self, nbytes: int, line: int, free: int) -> None:
        """Ask for memory in vain, with so many bytes free on the GPU."""
        frames = [frame("/home/me/train.py", line, "train")]
        event = {"action": "oom", "device_free": free, "size": nbytes, "stream": 0, "frames": frames}
        self.allocator.trace.append(event)

    def snapshot(self) -> dict[str, Any]:
        """Return the snapshot after the last event."""
        return snapshot([self.allocator], "")
