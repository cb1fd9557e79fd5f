"""State of the current simulation, as kernels see it: whose memory is counted, where new storages go, and who listens.

Kernels read `state.current`. `memlint.cuda.session` installs the state of a device, `memlint.cuda.simulated` says what
it adds to this. Everything else that belongs to one simulation, such as the stream that storages are born on or the
rank of the simulated process, is a field of one of the two.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from memlint.accelerator.ledger import Ledger

if TYPE_CHECKING:
    import torch

    from memlint.accelerator.kernel import Kernel


class Observer:
    """Receives the kernels that run; does nothing with them here."""

    def started(self, kernel: Kernel) -> None:
        """Called when `kernel` begins: storages born from now on are its own."""

    def finished(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """Called when the kernel begun last has read `inputs` and made or written `outputs`."""

    def failed(self) -> None:
        """Called when the kernel begun last has raised."""

    def viewed(self) -> None:
        """Called when a view was made, which runs no kernel."""


class CallRecorder(Protocol):
    """Records kernel calls so that they can be made again."""

    def began(self) -> None:
        """Called when a kernel is called, perhaps inside another."""

    def with_arguments(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: list[Any] | None,
        tensors: list[torch.Tensor],
    ) -> None:
        """Called with the arguments of the kernel that began.

        `key`, if any, determines all but the places of `tensors`.
        """

    def ended(self) -> None:
        """Called when the call is over."""


HostScratch = Callable[["Kernel", tuple[Any, ...], dict[str, Any]], object]
"""Called with a kernel and its arguments; returns what the kernel holds for itself while it runs."""


turn = threading.RLock()
"""Lock held while a kernel runs: threads of a program take turns, as records are of one kernel at a time."""


class OfThread(threading.local):
    """State of each thread of a program."""

    last_host = False
    """True if the tensor that a kernel saw last is the host's: C++ composites allocate where their operands are."""


@dataclass(slots=True)
class State:
    """One simulation; outside of any, tensors of the virtual device count as a GPU's and nobody reads their Ledger."""

    ledger: Ledger = field(default_factory=Ledger)
    cuda: bool = True
    """True if a GPU is simulated: storages then carry a tag that marks the host's."""
    takes_temporaries: bool = False
    """True if kernels allocate hidden memory for themselves, whose size depends on the device."""
    host_scratch: HostScratch | None = None
    """Hidden memory of the host's kernels, if it is counted."""
    placement: bool | None = None
    """True while host tensors are being made, False while the GPU's are; None leaves it to the operands."""
    of_thread: OfThread = field(default_factory=OfThread)
    meets_unknown_sizes: bool = False
    """True if any tensor made so far has a size that depends on unknown values."""
    unknown_sizes: dict[int, float] = field(default_factory=dict)
    """Sizes of dimensions that are upper bounds in the running kernel, each with its likely share."""
    observers: list[Observer] = field(default_factory=list)
    assume: Callable[[str], None] = lambda _text: None
    """Called with the text of each assumption that only a real device could check."""
    calls: CallRecorder | None = None
    """Recorder of kernel calls, if any."""

    @property
    def new_on_host(self) -> bool:
        """True if a storage made now is the host's."""
        return self.cuda and (self.of_thread.last_host if self.placement is None else self.placement)

    @contextlib.contextmanager
    def placed(self, *, on_host: bool | None) -> Iterator[None]:
        """Make tensors of the host, or of the GPU, inside the block."""
        with turn:
            before, self.placement = self.placement, on_host
            try:
                yield
            finally:
                self.placement = before


current = State()


@contextlib.contextmanager
def installed(state: State) -> Iterator[None]:
    """Make `state` the current one inside the block."""
    global current  # noqa: PLW0603 -- the one that kernels read
    before, current = current, state
    try:
        yield
    finally:
        current = before


def assume(text: str) -> None:
    """Note an assumption that only a real device could check."""
    current.assume(text)


_assumed: weakref.WeakKeyDictionary[Ledger, set[str]] = weakref.WeakKeyDictionary()


def assume_once(text: str) -> None:
    """Note an assumption once in a simulation, whichever line it concerns."""
    texts = _assumed.setdefault(current.ledger, set())
    if text not in texts:
        texts.add(text)
        current.assume(text)


def take_as_upper_bound(size: int, share: float) -> None:
    """Mark results of this size that the running kernel makes as upper bounds, of which this share is likely."""
    if size > 1:
        current.meets_unknown_sizes = True
        current.unknown_sizes[size] = share
