"""Objects and shapes that ranks send to each other. Ranks are simulated one after the other, so letters wait here."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import torch.distributed as dist

from memlint.base.errors import RankNeededError
from memlint.tracing.turns import Delivered

Key = tuple[int, int, int]
"""Sender, receiver, and the number of letters that the sender had sent to the receiver before."""
Letters = dict[Key, list[Any]]


class Others(Protocol):
    """Ranks that run beside this one, in processes of their own."""

    def sent(self, key: Key, objects: list[Any]) -> None:
        """Take a letter that this rank has sent."""

    def needed(self, key: Key) -> list[Any]:
        """Return the letter for which this rank waits."""


class Mailbox:
    """Letters by sender, receiver and position. Without `others`, one mailbox serves all ranks of a job."""

    def __init__(self, others: Others | None = None) -> None:
        self.wanted: Key | None = None
        """Letter for which another rank waits: this rank runs only to send it."""
        self._others = others
        self._letters: Letters = {}
        self._sent: Counter[tuple[int, int]] = Counter()
        self._received: Counter[tuple[int, int]] = Counter()

    def __contains__(self, key: Key) -> bool:
        """Return True if that letter was sent."""
        return key in self._letters

    @property
    def num_sent(self) -> int:
        """Number of letters that the running rank has sent."""
        return self._sent.total()

    def begin(self) -> None:
        """Start a rank from its beginning; letters that it sends again replace the old ones."""
        self._sent.clear()
        self._received.clear()

    def send(self, sender: int, receiver: int, objects: list[Any]) -> None:
        """Leave objects for `receiver`."""
        key = (sender, receiver, self._sent[sender, receiver])
        self._letters[key] = list(objects)
        self._sent[sender, receiver] += 1
        if self._others is not None:
            self._others.sent(key, self._letters[key])
        if key == self.wanted:
            self.wanted = None
            raise Delivered

    def receive(self, sender: int, receiver: int) -> list[Any]:
        """Return the next objects from `sender`. Raises RankNeededError if there are none, and no others to ask."""
        key = (sender, receiver, self._received[sender, receiver])
        if key not in self._letters:
            if self._others is None:
                raise RankNeededError(key)
            self._letters[key] = self._others.needed(key)
        self._received[sender, receiver] += 1
        return self._letters[key]


class ObjectCollectives:
    """Collectives of `torch.distributed` for Python objects.

    All ranks are assumed to contribute this rank's objects.
    """

    def __init__(self, box: Mailbox) -> None:
        self._box = box

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return all of them, by name."""
        return {name: getattr(self, name) for name in vars(type(self)) if "object" in name}

    def send_object_list(
        self,
        object_list: list[Any],
        dst: int | None = None,
        group: Any = None,
        device: Any = None,  # noqa: ARG002 -- objects take no memory of devices here
        group_dst: int | None = None,
        use_batch: bool = False,  # noqa: ARG002
    ) -> None:
        """Send the objects to a rank."""
        self._box.send(dist.get_rank(), _global_rank(group, dst, group_dst), object_list)

    def recv_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,  # noqa: ARG002 -- objects take no memory of devices here
        group_src: int | None = None,
        use_batch: bool = False,  # noqa: ARG002
    ) -> int:
        """Receive the objects that a rank has sent."""
        sender = _global_rank(group, src, group_src)
        object_list[:] = self._box.receive(sender, dist.get_rank())
        return sender

    def all_gather_object(self, object_list: list[Any], obj: Any, *_: Any, **__: Any) -> None:
        """Fill the list with this rank's object for every rank."""
        object_list[:] = [obj] * len(object_list)

    def gather_object(self, obj: Any, object_gather_list: list[Any] | None = None, *_: Any, **__: Any) -> None:
        """Fill the list with this rank's object for every rank."""
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def broadcast_object_list(
        self,
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,  # noqa: ARG002 -- objects take no memory of devices here
        group_src: int | None = None,
    ) -> None:
        """Send this rank's objects to the others, or receive theirs."""
        sender = _global_rank(group, src, group_src)
        if sender == dist.get_rank():
            for receiver in dist.get_process_group_ranks(group):
                if receiver != sender:
                    self._box.send(sender, receiver, object_list)
        elif all(each is None for each in object_list):
            object_list[:] = self._box.receive(sender, dist.get_rank())

    def scatter_object_list(
        self,
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
    ) -> None:
        """Send each rank its object, or receive this rank's."""
        sender, me = _global_rank(group, src, group_src), dist.get_rank()
        if sender != me:
            scatter_object_output_list[0] = self._box.receive(sender, me)[0]
            return
        assert scatter_object_input_list is not None, "the sender has what it scatters"
        for receiver, each in zip(dist.get_process_group_ranks(group), scatter_object_input_list, strict=True):
            if receiver == me:
                scatter_object_output_list[0] = each
            else:
                self._box.send(me, receiver, [each])


def _global_rank(group: Any, rank: int | None, group_rank: int | None) -> int:
    if rank is not None:
        return rank
    if group_rank is None:
        return 0
    return dist.get_global_rank(group or dist.distributed_c10d._get_default_group(), group_rank)
