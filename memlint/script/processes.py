"""The processes beside a script, as it sees them: torchrun's variables, and groups without other running members."""

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
    """Set torchrun's variables for the script's rank, and those of a machine with one GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    if script.ranks is not None:
        os.environ.update(Rank(script.ranks, script.rank).variables())
        from memlint.distributed.group import import_strategies  # noqa: PLC0415 -- as below

        import_strategies()
    else:
        after_import("deepspeed.comm.comm", _ask_no_mpi)


def _ask_no_mpi(deepspeed: Any) -> None:
    """Set the rank's variables where deepspeed, without a launcher's variables, would ask mpi4py for its rank."""
    deepspeed.mpi_discovery = lambda **_: os.environ.update(Rank.current().variables())


def become_rank(script: Script) -> bool:
    """Make the script its rank; without `--ranks`, from joining a group on, a rank of the world that it names there.

    Returns True in a copy that runs only for the objects that it sends to that rank.
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
    # The import of all strategies takes PyTorch a second, and most scripts do without them.
    from memlint.distributed.group import become  # noqa: PLC0415

    return become


def _joining(function: Callable[..., Any]) -> list[Patch]:
    """Return patches that make `function` the `init_process_group`."""
    return [(owner, "init_process_group", function) for owner in (dist, dist.distributed_c10d)]


class _Unasked:
    """Ranks that do not run, since their number was unknown before the script named it."""

    def sent(self, key: Key, objects: list[Any]) -> None:
        """Do nothing: nobody receives the objects."""

    def needed(self, key: Key) -> list[Any]:
        """Raise MemlintError: nobody has sent any objects."""
        sender, receiver, _number = key
        raise MemlintError(
            f"rank {receiver} waits for an object of rank {sender}, which does not run",
            f"Let it run as far as it is needed: memlint run --ranks {dist.get_world_size()}.",
        )


def _join(*args: Any, **options: Any) -> None:
    with patched(_joining(_real_join)):  # later imports keep PyTorch's own
        become = _become()
    from memlint.distributed.mailbox import Mailbox  # noqa: PLC0415 -- as there

    become(Rank.current(), Mailbox(_Unasked()))
    dist.init_process_group(*args, **options)
