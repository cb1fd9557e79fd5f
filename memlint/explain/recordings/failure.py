"""The request that a GPU could not serve, and the state of the allocator then."""

from typing import NamedTuple

from memlint.capture.lifetimes import Course
from memlint.capture.recorded import Recording
from memlint.explain.recordings.replay import Program
from memlint.memory.allocator.rounding import SMALL_SIZE, segment_size


class Failure(NamedTuple):
    """A failed request; sizes in bytes."""

    position: int
    """In the events."""
    site: int
    """Position in Recording.sites; -1 if it is not recorded."""
    request: int
    """Bytes of the block that was asked for."""
    stream: int
    free: int
    """Bytes free on the GPU, as the driver said."""
    requested: int
    """Bytes that the program had asked for and not freed."""
    allocated: int
    """The same as blocks."""
    reserved: int
    num_free_blocks: int
    largest_free: int
    """The largest block that could have served the request if it were large enough: of its stream and pool."""
    of_others: int
    """Free bytes of other streams and of the other pool, which cannot serve it."""
    num_retries: int
    """Times that the allocator had released its cached segments before to serve a request."""

    @property
    def cached(self) -> int:
        """Bytes that were reserved and not allocated: no block of them could serve the request."""
        return self.reserved - self.allocated

    @property
    def capacity(self) -> int:
        """Bytes that PyTorch could reserve: the rest of the GPU was the context's and other processes'."""
        return self.reserved + self.free

    @property
    def lacking(self) -> int:
        """Bytes by which what was alive and the request exceed the capacity; negative if they do not."""
        return self.allocated + self.request - self.capacity

    @property
    def driver_had_enough(self) -> bool:
        """True if the GPU had memory for a segment of the request."""
        return self.free >= segment_size(self.request)


def failure_of(program: Program, course: Course) -> Failure | None:
    """Return the last failure of a Recording; None if it has none."""
    if not course.failures:
        return None
    recording = program.recording
    events, position = recording.events, course.failures[-1]
    reserved = _reserved_at(recording, position)
    replayed = program.recorded_until(position)
    allocated = min(replayed.at_end[0], reserved)
    request, stream = events.sizes[position], events.streams[position]
    is_small = request <= SMALL_SIZE
    usable = [nbytes for nbytes, of, small in replayed.free_blocks if of == stream and small == is_small]
    others = sum(nbytes for nbytes, of, small in replayed.free_blocks if of != stream or small != is_small)
    return Failure(
        position,
        events.sites[position],
        request,
        stream,
        events.addresses[position],
        course.nbytes_at_failures[-1],
        allocated,
        reserved,
        len(replayed.free_blocks),
        max(usable, default=0),
        others,
        sum(each < position for each in program.released),
    )


def _reserved_at(recording: Recording, position: int) -> int:
    """Bytes of segments after an event, from those at the end back."""
    return recording.reserved - sum(
        recording.change_of_reserved(later) for later in range(position + 1, len(recording.events))
    )
