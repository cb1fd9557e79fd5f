"""The part of the CUDA driver that the caching allocator calls: addresses of segments, and the remaining memory."""

_FIRST_ADDRESS = 0x7F0000000000
_ALIGNMENT = 2 * 2**20
BELOW_THE_FIRST = 148 * 2**20
"""Bytes of addresses below the first segment that become free when the first kernel reads at an index. At least as many
are taken after the first embedding in all eight recordings made in WSL 2 (186 to 198 MiB; results/ of
Wedsonlin/assignment2-systems at 8630bcf, two of them in fixtures/histories) and in one made on Windows (148 MiB;
memory_snapshot.pickle of MAGMA27/assignment2-systems at 15883f2). No recording depends on the value between 32 and 256
MiB."""


class Driver:
    """Hands out addresses as Windows's driver or `descending` ones, until `capacity` bytes are in use (None: no limit).

    Windows's driver, in WSL as well, takes the lowest free address: each segment lies above the last, until the driver
    releases the range below the first one that it held itself. Linux's driver hands addresses out downwards. `used`
    counts bytes of memory. Addresses reserved for expandable segments cost none until they are mapped.
    """

    def __init__(
        self, capacity: int | None = None, *, descending: bool = False, first_address: int = _FIRST_ADDRESS
    ) -> None:
        self.capacity = capacity
        self._direction = -1 if descending else 1
        self.used = 0
        self._next_address = first_address
        self._below: dict[int, int] = {}
        """Bytes of addresses that are left below the first segment, by stream."""

    def open_below(self, stream: int) -> None:
        """Free the addresses below the first segment, for the pool of `stream`, which asks next."""
        if self._direction > 0:
            self._below = {stream: BELOW_THE_FIRST}

    def malloc(self, nbytes: int, stream: int) -> int | None:
        """Return the address of a new segment (`cudaMalloc`), None if there are not that many bytes left."""
        if not self._take(nbytes):
            return None
        return self.reserve_addresses(nbytes, stream)

    def free(self, address: int, nbytes: int) -> None:  # noqa: ARG002 -- a replay checks the address
        """Free a segment (`cudaFree`)."""
        self.used -= nbytes

    def reserve_addresses(self, nbytes: int, stream: int) -> int:
        """Reserve `nbytes` addresses without memory (`cuMemAddressReserve`); return the first.

        Segments of small blocks, which never compete with large ones, all lie above.
        """
        before, aligned = self._next_address, -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        below = self._below.get(stream, 0)
        if _ALIGNMENT < aligned <= below:
            self._below[stream] = below - aligned
            return _FIRST_ADDRESS - below
        self._next_address += self._direction * aligned
        return min(before, self._next_address)

    def map(self, address: int, nbytes: int) -> bool:  # noqa: ARG002 -- a replay checks the address
        """Map memory to reserved addresses (`cuMemMap`); return False if there are not that many bytes left."""
        return self._take(nbytes)

    def unmap(self, address: int, nbytes: int) -> None:  # noqa: ARG002 -- a replay checks the address
        """Unmap the memory (`cuMemUnmap`)."""
        self.used -= nbytes

    def _take(self, nbytes: int) -> bool:
        if self.capacity is not None and self.used + nbytes > self.capacity:
            return False
        self.used += nbytes
        return True
