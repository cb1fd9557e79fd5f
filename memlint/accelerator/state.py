"""The simulation that runs, as kernels see it: whose memory is counted, where new storages go, and who listens.

Kernels read `state.current`. `memlint.cuda.session` installs the state of a device, `memlint.cuda.simulated` says what
it adds to this. What else belongs to one simulation, such as the stream that storages are born on or the rank of the
process that is simulated, is a field of one of the two.
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


class Observer(Protocol):
    """Whoever wants to know which kernels run."""

    def started(self, kernel: Kernel) -> None:
        """`kernel` begins: storages born from now on are its own."""

    def finished(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """The kernel begun last read `inputs` and made or wrote `outputs`."""

    def failed(self) -> None:
        """The kernel begun last raised."""

    def viewed(self) -> None:
        """A view was made, by which no kernel runs."""


class CallRecorder(Protocol):
    """Whoever wants to make the calls of kernels again."""

    def began(self) -> None:
        """A kernel is called, perhaps inside of another."""

    def with_arguments(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        key: list[Any] | None,
        tensors: list[torch.Tensor],
    ) -> None:
        """What the kernel that began is called with; `key` tells all of it but where `tensors` are, if there is one."""

    def ended(self) -> None:
        """The call is over."""


HostScratch = Callable[["Kernel", tuple[Any, ...], dict[str, Any]], object]
"""Called with a kernel and its arguments, gives what it holds for itself while it runs."""


turn = threading.RLock()
"""Held while a kernel runs: threads of a program take turns, for records are of one kernel at a time."""


class OfThread(threading.local):
    """What each thread of a program has of its own."""

    last_host = False
    """Whether the tensor that a kernel saw last is the host's: C++ composites allocate where their operands are."""


@dataclass(slots=True)
class State:
    """One simulation; outside of any, tensors of the virtual device are a GPU's and their Ledger is read by nobody."""

    ledger: Ledger = field(default_factory=Ledger)
    cuda: bool = True
    """Whether a GPU is simulated: storages then carry a tag that says if they are the host's."""
    takes_temporaries: bool = False
    """Whether kernels take what they need for themselves: sizes depend on the device."""
    host_scratch: HostScratch | None = None
    """The same for kernels of the host."""
    placement: bool | None = None
    """True while host tensors are being made, False while the GPU's are; None leaves it to the operands."""
    of_thread: OfThread = field(default_factory=OfThread)
    meets_unknown_sizes: bool = False
    """Whether any tensor was made so far whose size depends on values that are not known."""
    unknown_sizes: dict[int, float] = field(default_factory=dict)
    """Sizes of dimensions that are upper bounds in the kernel that runs, each with the likely share of it."""
    observers: list[Observer] = field(default_factory=list)
    assume: Callable[[str], None] = lambda _text: None
    """Called with each thing that is assumed because no device can say it."""
    calls: CallRecorder | None = None
    """Where the calls of kernels are recorded, if anywhere."""

    @property
    def new_on_host(self) -> bool:
        """Whether a storage made now is the host's."""
        return self.cuda and (self.of_thread.last_host if self.placement is None else self.placement)

    @contextlib.contextmanager
    def placed(self, *, on_host: bool | None) -> Iterator[None]:
        """Make tensors of the host, or of the GPU, meanwhile."""
        with turn:
            before, self.placement = self.placement, on_host
            try:
                yield
            finally:
                self.placement = before


current = State()


@contextlib.contextmanager
def installed(state: State) -> Iterator[None]:
    """Let `state` be the current one meanwhile."""
    global current  # noqa: PLW0603 -- the one that kernels read
    before, current = current, state
    try:
        yield
    finally:
        current = before


def assume(text: str) -> None:
    """Say what is assumed because no device can say it."""
    current.assume(text)


_assumed: weakref.WeakKeyDictionary[Ledger, set[str]] = weakref.WeakKeyDictionary()


def assume_once(text: str) -> None:
    """Say what is assumed, once in a simulation, whichever line it concerns."""
    texts = _assumed.setdefault(current.ledger, set())
    if text not in texts:
        texts.add(text)
        current.assume(text)


def take_as_upper_bound(size: int, share: float) -> None:
    """Let results of this size that the running kernel makes be upper bounds, of which this share is likely."""
    if size > 1:
        current.meets_unknown_sizes = True
        current.unknown_sizes[size] = share
