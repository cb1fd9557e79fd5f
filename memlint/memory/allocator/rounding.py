"""Rounding of the caching allocator: the size of the block that serves a request, and of the segment it lies in.

The constants are those of c10/core/AllocatorConfig.h. Sizes are bytes.
"""

from typing import Final

MIB: Final = 2**20
MIN_BLOCK: Final = 512
"""Blocks are multiples of it; `kMinBlockSize`."""
SMALL_SIZE: Final = MIB
"""Blocks up to it lie in segments of their own; `kSmallSize`."""
SMALL_SEGMENT: Final = 2 * MIB
"""Segment shared by these; `kSmallBuffer`."""
MIN_LARGE_ALLOCATION: Final = 10 * MIB
"""Blocks below it share a segment of `large_segment_size`; `kMinLargeAlloc`."""
LARGE_SEGMENT: Final = 20 * MIB
"""Default `large_segment_size`."""
LARGE_ROUNDING: Final = 2 * MIB
"""Segments of a single block are multiples of it; `kRoundLarge`."""


def block_size(nbytes: int, divisions: int = 0) -> int:
    """Size of the block that serves a request of `nbytes`.

    `divisions` is the number of steps between two powers of two that `roundup_power2_divisions` has for this request; 0
    or 1: the request is rounded up to 512 bytes.
    """
    if nbytes < MIN_BLOCK:
        return MIN_BLOCK
    if divisions > 1 and nbytes > MIN_BLOCK * divisions:
        step = (1 << nbytes.bit_length() - 1) // divisions
        return -(-nbytes // step) * step
    return -(-nbytes // MIN_BLOCK) * MIN_BLOCK


def segment_size(size: int, large_segment: int = LARGE_SEGMENT) -> int:
    """Size of the segment asked of the driver for a block of `size` bytes."""
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < MIN_LARGE_ALLOCATION:
        return large_segment
    return -(-size // LARGE_ROUNDING) * LARGE_ROUNDING
