"""The births and deaths of storages on the virtual accelerator, in order."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from memlint.base.uninterrupted import uninterrupted
from memlint.memory.records import Streams


class Birth(NamedTuple):
    """The facts about a storage when it is created; shape and dtype are those of its first tensor."""

    nbytes: int
    shape: tuple[int, ...]
    dtype: Any
    node: int
    event: int
    host: bool


class Ledger:
    """An append-only record of births and deaths. Storages of the host and empty ones are births, but make no event."""

    def __init__(self, *, oldest_first: bool = False) -> None:
        self.oldest_first = oldest_first
        """As in Streams, as are `streams`, `held` and `first_after_index`."""
        self.births: list[Birth] = []
        self.events: list[int] = []
        self.event_nodes: list[int] = []
        self.node = -1
        """Index of the kernel that is running or ran last."""
        self.nonzeros: dict[int, int] = {}
        """Upper bounds on the nonzero elements of a storage, at its death or at the end."""
        self.doubts: dict[int, tuple[int, int]] = {}
        """Bounds of storages whose size cannot be known exactly."""
        self.stream = 0
        """CUDA stream of storages born now; 0 is the default one."""
        self.streams: dict[int, int] = {}
        """Streams of storages that do not belong to the default stream."""
        self.held: dict[int, int] = {}
        """Position in the events by which bytes of a storage that other streams used are certainly free."""
        self.has_indexed = False
        """True if a kernel that reads at an index has run."""
        self.first_after_index: int | None = None
        """The first storage of the device that was born since."""
        self.emptied: list[int] = []
        """As in Streams, but not yet in front of an event where none followed."""
        self._uses: dict[int, set[int]] = {}
        """Other streams that use a storage, from `record_stream`."""
        self._pending: dict[int, tuple[int, set[int]]] = {}
        """Storages that died in use: position in the events, and the streams that may not have finished yet."""
        self._frozen = False

    def open(
        self, nbytes: int, shape: tuple[int, ...], dtype: Any, *, host: bool, doubt: tuple[int, int] | None = None
    ) -> "Entry":
        """Record the birth of a storage of `nbytes` bytes, or, in `doubt`, of any size between two bounds."""
        number = len(self.births)
        self.births.append(Birth(nbytes, shape, dtype, self.node, len(self.events), host))
        counted = (nbytes > 0 or doubt is not None) and not host
        if doubt is not None:
            self.doubts[number] = doubt
        if counted:
            self.events.append(number)
            self.event_nodes.append(self.node)
            if self.stream:
                self.streams[number] = self.stream
            if self.has_indexed and self.first_after_index is None and not self.oldest_first:
                self.first_after_index = number
        return Entry(self, number, nbytes, host, counted)

    def used_streams(self) -> Streams:
        """Return the streams and the driver's state, which decide the addresses of storages."""
        emptied = tuple(position for position in self.emptied if position < len(self.events))
        return Streams(self.streams, self.held, self.first_after_index, self.oldest_first, emptied)

    def size(self, number: int) -> tuple[int, int, int]:
        """Return the bytes of a storage, and their least and greatest possible values."""
        nbytes = self.births[number].nbytes
        doubt = self.doubts.get(number)
        return (nbytes, nbytes, nbytes) if doubt is None else (nbytes, *doubt)

    def use(self, number: int, stream: int) -> None:
        """Let another stream use a storage: when it dies, its bytes stay taken until that stream has finished."""
        if stream != self.streams.get(number, 0):
            self._uses.setdefault(number, set()).add(stream)

    def synchronize(self, stream: int | None = None, position: int | None = None) -> None:
        """Wait until a stream has done all work queued before `position` in the events.

        None stands for every stream, and for all work so far. Only after such a wait is memory that died in use
        certainly free.
        """
        if not self._pending or self._frozen:
            return
        end = len(self.events) if position is None else position
        for number, (died, streams) in list(self._pending.items()):
            if died < end:
                streams.difference_update(streams.copy() if stream is None else {stream})
                if not streams:
                    self.held[number] = len(self.events)
                    del self._pending[number]

    def empty_cache(self) -> None:
        """Give cached segments back, also those that wait for other streams: for these it waits."""
        self.synchronize()
        if not self._frozen and self.emptied[-1:] != [len(self.events)]:
            self.emptied.append(len(self.events))

    def freeze(self) -> None:
        """Stop recording: storages that die from now on outlived the program."""
        self._frozen = True
        self.held |= dict.fromkeys(self._pending, len(self.events))
        count = len(self.event_nodes)  # another thread of a script may be between the two
        events, nodes = tuple(self.events[:count]), tuple(self.event_nodes[:count])
        self.events, self.event_nodes = events, nodes  # type: ignore[assignment]

    def close(self, number: int) -> None:
        """Record the death of device storage `number`."""
        if self._frozen:
            return
        if number in self._uses:
            self._pending[number] = (len(self.events), self._uses.pop(number))
        self.events.append(~number)
        self.event_nodes.append(self.node)


@dataclass(slots=True, eq=False)
class Entry:
    """One storage's entry in a Ledger, referenced by the Python object of the storage and deleted with it.

    PyTorch keeps that object as long as the C++ storage lives, so deletion of the entry is the storage's death.
    """

    ledger: Ledger
    number: int
    nbytes: int
    """Bytes of the storage. C++ keeps reporting the old size for a freed one: it cannot shrink a storage."""
    host: bool
    counted: bool
    """True if its birth is an event."""
    shadow: Any = None
    """Real content of the storage as a CPU tensor of bytes, if it is known and small."""
    uniform: Any = None
    """The number that every element has, if one is known."""
    uniform_dtype: Any = None
    """Dtype of those elements; a view may read the same bytes as another."""
    likely: Any = None
    """Value that a read gives in an ordinary run although the content is not known."""
    num_choices: int | None = None
    """Number of entries among which the elements, if they are indices, were picked."""
    num_distinct: int | None = None
    """Number of such indices that follow each other in the storage and differ, as those of `topk` in a row."""
    unknown_size: tuple[int, float] | None = None
    """A dimension's size that is an upper bound, as values are not known, and its likely share."""
    largest: int | None = None
    """Largest number that an element can be, if the exact number is not known."""
    total: int | None = None
    """Sum of the elements, if they are counts."""
    sample: Any = None
    """A CPU tensor that stands for values that are not known, in the order of the storage."""
    num_true: int | None = None
    """Number of a mask's elements that are assumed to be true."""
    negation: int | None = None
    """Number of the storage that was made as this mask's negation, or of which this mask is the negation."""

    @property
    def nonzeros(self) -> int | None:
        """Upper bound on the nonzero elements, if one is known."""
        return self.ledger.nonzeros.get(self.number)

    @nonzeros.setter
    def nonzeros(self, bound: int | None) -> None:
        if bound is not None:
            self.ledger.nonzeros[self.number] = bound
        else:
            self.ledger.nonzeros.pop(self.number, None)

    @uninterrupted
    def __del__(self) -> None:
        if self.counted:
            self.ledger.close(self.number)
