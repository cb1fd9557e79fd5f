"""The part of the CUDA driver the caching allocator talks to: where segments come from and how many bytes there are."""

_FIRST_ADDRESS = 0x7F0000000000
_ALIGNMENT = 2 * 2**20


class Driver:
    """Hands out made-up addresses, each above the last or `descending`, until `capacity` bytes are in use (None: ever).

    `used` counts bytes of memory. Addresses reserved for expandable segments cost none until they are mapped.
    """

    def __init__(self, capacity: int | None = None, *, descending: bool = False) -> None:
        self.capacity = capacity
        self._direction = -1 if descending else 1
        self.used = 0
        self._next_address = _FIRST_ADDRESS

    def malloc(self, nbytes: int, stream: int) -> int | None:
        """Address of a new segment (`cudaMalloc`), None if there are not that many bytes left."""
        if not self._take(nbytes):
            return None
        return self.reserve_addresses(nbytes, stream)

    def free(self, address: int, nbytes: int) -> None:  # noqa: ARG002 -- a replay checks the address
        """Give a segment back (`cudaFree`)."""
        self.used -= nbytes

    def reserve_addresses(self, nbytes: int, stream: int) -> int:  # noqa: ARG002 -- a replay checks the stream
        """First of `nbytes` addresses with no memory behind them (`cuMemAddressReserve`)."""
        before, aligned = self._next_address, -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        self._next_address += self._direction * aligned
        return min(before, self._next_address)

    def map(self, address: int, nbytes: int) -> bool:  # noqa: ARG002 -- a replay checks the address
        """Put memory behind reserved addresses (`cuMemMap`); False if there are not that many bytes left."""
        return self._take(nbytes)

    def unmap(self, address: int, nbytes: int) -> None:  # noqa: ARG002 -- a replay checks the address
        """Take the memory away again (`cuMemUnmap`)."""
        self.used -= nbytes

    def _take(self, nbytes: int) -> bool:
        if self.capacity is not None and self.used + nbytes > self.capacity:
            return False
        self.used += nbytes
        return True
