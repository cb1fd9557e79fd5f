"""The cause that the numbers of a message point at, and whether fragmentation can have been it."""

from typing import Final, Literal, TypeAlias

from memlint.explain.messages import Amount, Message

Verdict: TypeAlias = Literal[
    "too much alive",
    "fragmentation",
    "spike",
    "another process",
    "a limit",
    "refused",
    "full",
    "kernel shared memory",
    "shared memory",
    "host memory",
]
"""The GPU was full of what was alive; memory was reserved in pieces that served no request; one request was for more
than half of the GPU; other processes hold what was missing; a limit below the GPU's size was reached; the driver
refused although there was room; the GPU was full, and the message has no numbers; a kernel wanted more on-chip memory
than the GPU has; /dev/shm was full; the host's memory was full.
"""
Fragmentation: TypeAlias = Literal["can", "cannot", "unknown"]
"""If all that was free, and reserved without being used, would have been enough for the request."""

OUTSIDE: Final = 2**30
"""Bytes beside PyTorch's allocator that a process may take for its CUDA context, NCCL and libraries: what is missing
from an older message's sum beyond this is held by others. Contexts of recorded processes are 0.3 to 0.9 GiB.
"""
_PIECES: Final = 0.1
"""Share of the reserved memory from which on unused pieces are the cause, and not the last straw of a full GPU."""
_LISTED, _INFERRED = 0.1, 0.2
"""Shares of the GPU from which on other processes are: those that a message lists, and what only its sum lacks."""
_ROOM: Final = 0.02
"""Share of the GPU below which what is free may be of no use: the driver keeps some, and hands out whole pages."""


def verdict_of(message: Message) -> Verdict:
    """Return what the numbers of `message` point at."""
    if message.failure == "kernel_shared":
        return "kernel shared memory"
    if message.failure != "device":
        return "shared memory" if message.failure == "shared" else "host memory"
    requested, capacity = message.numbers.requested, message.numbers.capacity
    if message.is_boundless or (requested and capacity and requested.low > capacity.high):
        return "spike"
    if message.wording == "cache_blocks" or _is_limit(message):
        return "a limit"
    if capacity is None or (message.numbers.allocated is None and message.numbers.in_use is None):
        return "full"
    if requested is None:
        others = others_of(message)
        return "another process" if others and others.low > capacity.nbytes / 2 else "too much alive"
    return "refused" if _is_refused(message, requested, capacity) else _of_numbers(message, requested, capacity)


def _of_numbers(message: Message, requested: Amount, capacity: Amount) -> Verdict:
    numbers, others, unallocated = message.numbers, others_of(message), message.numbers.unallocated
    missing = (requested - numbers.free).nbytes if numbers.free else requested.nbytes
    fragmentation = fragmentation_of(message)
    pieces = unallocated.nbytes if unallocated and fragmentation != "cannot" else 0
    share = _LISTED if message.processes else _INFERRED
    if others and others.low >= max(missing, share * capacity.nbytes) and others.nbytes > pieces:
        return "another process"
    if numbers.allocated and numbers.allocated.low > capacity.high:
        return "too much alive"
    if pieces and numbers.reserved and pieces >= _PIECES * numbers.reserved.nbytes:
        return "fragmentation"
    return "spike" if requested.nbytes > capacity.nbytes / 2 else "too much alive"


def fragmentation_of(message: Message) -> Fragmentation:
    """Return whether the request would have fitted if no memory were lost in pieces; the digits decide, or nothing."""
    numbers = message.numbers
    if message.is_boundless or message.failure != "device":
        return "cannot"
    if numbers.requested is None or numbers.free is None or numbers.unallocated is None:
        return "unknown"
    room = numbers.free + numbers.unallocated
    if room.high < numbers.requested.low:
        return "cannot"
    return "can" if room.low >= numbers.requested.high else "unknown"


def others_of(message: Message) -> Amount | None:
    """Return what other processes hold: listed, or what the sum of the message lacks; None if it has no sum."""
    numbers = message.numbers
    if message.processes:
        return sum((each.held for each in message.processes[1:]), message.processes[0].held)
    own = numbers.in_use or (numbers.reserved and numbers.reserved + Amount(OUTSIDE))
    if numbers.capacity is None or numbers.free is None or own is None:
        return None
    return numbers.capacity - (numbers.free + own)


def _is_limit(message: Message) -> bool:
    numbers = message.numbers
    if numbers.allowed is None or numbers.requested is None:
        return False
    taken = (numbers.reserved or numbers.allocated or Amount(0)) + (numbers.elsewhere or Amount(0))
    return (taken + numbers.requested).high > numbers.allowed.low


def _is_refused(message: Message, requested: Amount, capacity: Amount) -> bool:
    """Return True if the driver had room for the request."""
    numbers = message.numbers
    if numbers.free is not None:
        return numbers.free.low >= max(requested.high, _ROOM * capacity.nbytes)
    return numbers.reserved is not None and (capacity - numbers.reserved).low >= requested.high
