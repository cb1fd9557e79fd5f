"""The births and deaths of storages on the virtual accelerator, in order."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from memlint.base.uninterrupted import uninterrupted


class Birth(NamedTuple):
    """What is known of a storage when it is created; shape and dtype are those of its first tensor."""

    nbytes: int
    shape: tuple[int, ...]
    dtype: Any
    node: int
    event: int
    host: bool


class Ledger:
    """An append-only record. Storages of the host and empty ones are births too, but make no event."""

    def __init__(self) -> None:
        self.births: list[Birth] = []
        self.events: list[int] = []
        self.event_nodes: list[int] = []
        self.node = -1
        """Index of the kernel that is running or ran last."""
        self.nonzeros: dict[int, int] = {}
        """Upper bounds on the elements of a storage that are not zero, as they were at its death or at the end."""
        self.doubts: dict[int, tuple[int, int]] = {}
        """Bounds of storages whose size nobody can know exactly."""
        self.stream = 0
        """The CUDA stream that storages born now belong to; 0 is the default one."""
        self.streams: dict[int, int] = {}
        """Those of storages that do not belong to the default stream."""
        self.held: dict[int, int] = {}
        """Of storages that other streams used, the position in the events by which their bytes are surely free."""
        self.has_indexed = False
        """Whether a kernel that reads at an index has run."""
        self.first_after_index: int | None = None
        """The first storage of the device that was born since."""
        self._uses: dict[int, set[int]] = {}
        """Other streams that use a storage, as `record_stream` said."""
        self._pending: dict[int, tuple[int, set[int]]] = {}
        """Of storages that died in use: where in the events, and the streams that may not have come so far."""
        self._frozen = False

    def open(
        self, nbytes: int, shape: tuple[int, ...], dtype: Any, *, host: bool, doubt: tuple[int, int] | None = None
    ) -> "Entry":
        """Record the birth of a storage of `nbytes` bytes, or, in `doubt`, of anything between two numbers of them."""
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
            if self.has_indexed and self.first_after_index is None:
                self.first_after_index = number
        return Entry(self, number, nbytes, host, counted)

    def size(self, number: int) -> tuple[int, int, int]:
        """Bytes of a storage, and the least and the most that they may be."""
        nbytes = self.births[number].nbytes
        doubt = self.doubts.get(number)
        return (nbytes, nbytes, nbytes) if doubt is None else (nbytes, *doubt)

    def use(self, number: int, stream: int) -> None:
        """Let another stream use a storage: when it dies, its bytes stay taken until that stream is done with them."""
        if stream != self.streams.get(number, 0):
            self._uses.setdefault(number, set()).add(stream)

    def synchronize(self, stream: int | None = None, position: int | None = None) -> None:
        """The program waits until a stream has done all that was asked of it before `position` in the events.

        None stands for every stream, and for all so far. Only that makes sure that what died in use is free.
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

    def freeze(self) -> None:
        """Record nothing more: what dies from now on outlived the program."""
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
    """One storage's line in a Ledger. It hangs on the Python object of the storage and dies with it.

    PyTorch keeps that object for as long as the C++ storage lives, so deletion of the entry is the storage's death.
    """

    ledger: Ledger
    number: int
    nbytes: int
    """Of the storage. What C++ says of one that was freed stays what it was: it cannot shrink a storage."""
    host: bool
    counted: bool
    """Whether its birth is an event."""
    shadow: Any = None
    """The storage's real content as a CPU tensor of bytes, where it is known and small."""
    uniform: Any = None
    """The number that every element has, where one is known."""
    uniform_dtype: Any = None
    """The dtype of those elements; a view may read the same bytes as another."""
    likely: Any = None
    """What a read gives in an ordinary run although the value is not known."""
    num_choices: int | None = None
    """How many values the elements have, where they are indices picked among so many entries."""
    unknown_size: tuple[int, float] | None = None
    """A size of its dimensions that is an upper bound as values are not known, and the likely share of it."""
    largest: int | None = None
    """The largest number that an element can be, where it is not known which it is."""
    total: int | None = None
    """What the elements add up to, where they are counts."""
    sample: Any = None
    """A CPU tensor that stands for values that are not known, in the order of the storage."""
    num_true: int | None = None
    """How many elements of a mask are taken to be true."""
    negation: int | None = None
    """The number of the storage that was made as what this mask is not, or of which this one was made so."""

    @property
    def nonzeros(self) -> int | None:
        """Upper bound on elements that are not zero, where one is known."""
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
