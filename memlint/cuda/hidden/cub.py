"""Temporary storage of CUB's device-wide algorithms, in bytes (cub/device/dispatch of CUDA 12).

Sizes depend on tuning tables of each GPU generation. These formulas give the recorded values; where tables differ, the
difference is in the per-tile bookkeeping, far below one percent of the sorted data.
"""

ALIGNMENT = 256
RADIX_DIGITS = 256
SINGLE_TILE_THREADS = 256
ONESWEEP_THREADS = 384
STATUS_PADDING = 32


def _together(*sizes: int) -> int:
    """Return the bytes of one block that holds these, each aligned, at an address that is not aligned."""
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes) + ALIGNMENT - 1


def radix_sort(num_items: int, key: int, value: int, bits: int | None = None, *, hopper: bool = False) -> int:
    """`DeviceRadixSort` of keys with values (0 bytes for keys alone) on their low `bits`.

    Recorded: 1 byte for 2,048 pairs of int64; 72,191 for 4,096 of them on 14 bits. From Hopper on a tile has more items
    of 8 bytes: 16,240,127 for a million pairs of int64 on H200.
    """
    wide = max(key, value)
    if num_items <= SINGLE_TILE_THREADS * max(1, 19 * 4 // max(wide, 4)):
        return 1
    passes = -(-(bits or 8 * key) // 8)
    tiles = -(-num_items // (ONESWEEP_THREADS * _items_per_thread(key, value, hopper=hopper)))
    spare = (num_items * key, num_items * value) if passes > 1 else (0, 0)
    return _together(passes * RADIX_DIGITS * 8, tiles * RADIX_DIGITS * 4, *spare, passes * 4)


def _items_per_thread(key: int, value: int, *, hopper: bool) -> int:
    """Items that a thread sorts: 84 bytes of the wider of key and value; on Hopper as measured on H200."""
    measured = {(8, 8): 12, (8, 0): 15, (4, 8): 14, (2, 8): 14, (4, 0): 18}
    return (hopper and measured.get((key, value))) or max(1, 84 // max(key, value, 4))


def segmented_radix_sort(num_items: int, key: int, value: int) -> int:
    """`DeviceSegmentedRadixSort` of keys with values: a spare copy of both."""
    return _together(num_items * key, num_items * value)


def scan(num_items: int, item: int) -> int:
    """`DeviceScan` and `DeviceSelect`: a status for every tile. Recorded: 1,023 bytes for 8-byte items, 767 for 4."""
    tiles = -(-num_items // (128 * 15 * 4 // max(item, 4)))
    return _together((tiles + STATUS_PADDING) * (16 if item > 4 else 8))


def unique(num_items: int) -> int:
    """`DeviceSelect::Unique`: a status for every tile. Measured on H200: 1,023 to 21,503 bytes for up to 2**24."""
    return _together((-(-num_items // (384 * 34)) + STATUS_PADDING) * 16)


def reduce(num_items: int, num_sms: int, threads_per_sm: int) -> int:
    """`DeviceReduce` to an int32. Recorded: 1 byte for few items, else 17,663 on 108 SMs."""
    if num_items <= 4096:
        return 1
    return _together(num_sms * (threads_per_sm // 256) * 5 * 4)
