"""`DistributedDataParallel.join()`: the number of batches that others have beyond those of a rank that has run out.

PyTorch's own code makes such a rank mirror the others' collectives. How often, and that another rank reduces gradients
(not under `no_sync`), it would learn from the others. Here the first and the last rank report their numbers of batches,
because they get the remainder of a division.
"""

from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from memlint.accelerator import state
from memlint.accelerator.private.distributed import (
    COUNT_NOT_JOINED,
    FIND_COMMON_RANK,
    FIND_SYNC,
    count_not_joined,
    find_common_rank,
    find_sync,
    group_of,
    is_enabled,
)
from memlint.base.errors import MemlintError, RankNeededError
from memlint.base.patching import Patch
from memlint.distributed.mailbox import Mailbox

_notify: Any = Join.notify_join_context
_leave: Any = Join.__exit__


class Joins:
    """Counters of the join contexts in one simulation."""

    def __init__(self, box: Mailbox) -> None:
        self._box = box
        self._num_batches = 0
        """Number of batches that this rank has had in the current context."""
        self._num_left = 0
        """Number of batches of others that it still mirrors before it leaves."""

    def patches(self) -> list[Patch]:
        """Return the patches: owner, name, replacement."""

        def leave(join: Any, *error: Any) -> None:
            self._leave(join, *error)

        def count_active(join: Any) -> int:
            return self._count_active(join)

        return [
            (Join, "notify_join_context", staticmethod(self._notify)),
            (Join, "__exit__", leave),
            (Join, COUNT_NOT_JOINED, count_active),
            (DistributedDataParallel, FIND_SYNC, _find_sync),
            (DistributedDataParallel, FIND_COMMON_RANK, _find_common_rank),
        ]

    def _notify(self, joinable: Any) -> Any:
        work = _notify(joinable)
        self._num_batches += work is not None
        return work

    def _leave(self, join: Any, kind: Any, *error: Any) -> None:
        if is_enabled(join) and kind is None:
            self._num_left = self._missing(dist.get_process_group_ranks(group_of(join)))
        self._num_batches = 0
        _leave(join, kind, *error)

    def _missing(self, ranks: list[int]) -> int:
        mine, ends = dist.get_rank(), {ranks[0], ranks[-1]}
        for receiver in ranks if mine in ends else ():
            if receiver != mine:
                self._box.send(mine, receiver, [self._num_batches])
        try:
            theirs = [self._box.receive(sender, mine)[0] for sender in sorted(ends - {mine})]
        except RankNeededError:
            raise
        except MemlintError:  # that rank cannot run, or does not get this far
            state.assume_once("a rank that leaves join() mirrors one batch of others, whose number is not known")
            return 1
        return max(0, max(theirs, default=0) - self._num_batches)

    def _count_active(self, join: Any) -> int:
        count_not_joined(join)
        self._num_left -= 1
        return int(self._num_left >= 0)


def _find_sync(module: Any, is_joined_rank: bool) -> bool | None:
    """Report that other ranks reduce their gradients in each batch."""
    find_sync(module, is_joined_rank=is_joined_rank)
    return True if is_joined_rank else None


def _find_common_rank(module: Any, rank: int, rank_cond: bool) -> Any:  # noqa: ARG001 -- where it is false, another's
    return find_common_rank(module, rank, True)
