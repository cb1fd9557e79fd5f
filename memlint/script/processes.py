"""What a script sees of the processes beside it: what torchrun sets, and groups in which nobody else is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from memlint.base.after_import import after_import
from memlint.base.errors import MemlintError
from memlint.base.patching import patched
from memlint.cuda.facade.early_names import patched_everywhere
from memlint.cuda.simulated import simulated
from memlint.distributed.rank import Rank

if TYPE_CHECKING:
    from memlint.base.patching import Patch
    from memlint.distributed.mailbox import Key
    from memlint.targets.script import Script

_real_join: Callable[..., Any] = getattr(dist, "init_process_group", None)  # type: ignore[assignment]


def set_variables(script: Script) -> None:
    """Set what torchrun sets for the script's rank, and what a machine with one GPU has."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    if script.ranks is not None:
        os.environ.update(Rank(script.ranks, script.rank).variables())
        from memlint.distributed.group import import_strategies  # noqa: PLC0415 -- as below

        import_strategies()
    else:
        after_import("deepspeed.comm.comm", _ask_no_mpi)


def _ask_no_mpi(deepspeed: Any) -> None:
    """Without a launcher's variables, as the deepspeed command sets them, it would have mpi4py say which rank it is."""
    deepspeed.mpi_discovery = lambda **_: os.environ.update(Rank.current().variables())


def become_rank(script: Script) -> bool:
    """Let the script be its rank, or from where it joins a group, of the world that it names.

    Gives whether it is a copy that runs for what it sends to that rank alone.
    """
    if script.ranks is not None:
        become = _become()
        from memlint.distributed.copies import take_turns  # noqa: PLC0415 -- as there

        turn = take_turns(Rank.current())
        become(turn.rank, turn.box)
        return turn.is_copy
    if dist.is_available():  # not every build has it
        simulated().exits.enter_context(patched_everywhere(_joining(_join)))
    return False


def _become() -> Callable[..., None]:
    # it takes PyTorch a second to import all strategies, which most scripts do without
    from memlint.distributed.group import become  # noqa: PLC0415

    return become


def _joining(function: Callable[..., Any]) -> list[Patch]:
    """What lets `function` be `init_process_group`."""
    return [(owner, "init_process_group", function) for owner in (dist, dist.distributed_c10d)]


class _Unasked:
    """Ranks that do not run, since nobody has said how many there are before the script did."""

    def sent(self, key: Key, objects: list[Any]) -> None:
        """Nobody takes them."""

    def needed(self, key: Key) -> list[Any]:
        """There is none. Raises MemlintError."""
        sender, receiver, _number = key
        raise MemlintError(
            f"rank {receiver} waits for an object of rank {sender}, which does not run",
            f"Let it run as far as it is needed: memlint run --ranks {dist.get_world_size()}.",
        )


def _join(*args: Any, **options: Any) -> None:
    with patched(_joining(_real_join)):  # what is imported now keeps PyTorch's own
        become = _become()
    from memlint.distributed.mailbox import Mailbox  # noqa: PLC0415 -- as there

    become(Rank.current(), Mailbox(_Unasked()))
    dist.init_process_group(*args, **options)
