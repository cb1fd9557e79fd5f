"""Objects and shapes that one rank sends to another. Ranks are simulated one after the other, so letters wait here."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from memlint.base.errors import MemlintError


class NeedsRank(MemlintError):  # noqa: N818 -- it asks for another run
    """The simulated rank waits for an object of another, which has not been simulated so far."""

    def __init__(self, rank: int) -> None:
        super().__init__(
            f"the simulated rank waits for an object of rank {rank}", f"Simulate rank {rank} before, or all ranks."
        )
        self.rank = rank


class Mailbox:
    """Letters by sender, receiver and place in their order. One box serves all ranks of a job."""

    def __init__(self) -> None:
        self._letters: dict[tuple[int, int, int], list[Any]] = {}
        self._sent: Counter[tuple[int, int]] = Counter()
        self._received: Counter[tuple[int, int]] = Counter()

    def begin(self) -> None:
        """A rank starts from its beginning; what it sends again takes the place of what it sent."""
        self._sent.clear()
        self._received.clear()

    def send(self, sender: int, receiver: int, objects: list[Any]) -> None:
        """Leave objects for `receiver`."""
        self._letters[sender, receiver, self._sent[sender, receiver]] = list(objects)
        self._sent[sender, receiver] += 1

    def receive(self, sender: int, receiver: int) -> list[Any]:
        """The next objects that `sender` left. Raises NeedsRank if there are none."""
        number = self._received[sender, receiver]
        if (sender, receiver, number) not in self._letters:
            raise NeedsRank(sender)
        self._received[sender, receiver] += 1
        return self._letters[sender, receiver, number]


class ObjectCollectives:
    """The collectives of `torch.distributed` for Python objects. All ranks are taken to give what this one gives."""

    def __init__(self, box: Mailbox) -> None:
        self._box = box

    def functions(self) -> dict[str, Callable[..., Any]]:
        """All of them, by name."""
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
        """Leave the objects for the rank that they go to."""
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
        """Take what that rank has left."""
        sender = _global_rank(group, src, group_src)
        object_list[:] = self._box.receive(sender, dist.get_rank())
        return sender

    def all_gather_object(self, object_list: list[Any], obj: Any, *_: Any, **__: Any) -> None:
        """Every rank has this one's object."""
        object_list[:] = [obj] * len(object_list)

    def gather_object(self, obj: Any, object_gather_list: list[Any] | None = None, *_: Any, **__: Any) -> None:
        """Every rank has this one's object."""
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
        """Leave this rank's objects for the others, or take theirs."""
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
        """Leave each rank its object, or take this rank's."""
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
