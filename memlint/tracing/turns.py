"""Programs of several ranks that wait for each other's objects: other ranks run first, as far as they are needed."""

from collections.abc import Callable
from typing import Any, TypeVar

from memlint.base.errors import MemlintError, RankNeededError
from memlint.cuda.session import virtual_device
from memlint.memory.devices import Device

T = TypeVar("T")


class Delivered(BaseException):
    """Control flow: another rank has sent the awaited object, and need not go on."""


def in_turns(run: Callable[[], T], program: Any, device: Device) -> T:
    """Return the result of `run`, which runs `program` from its beginning, as often as it waits for another rank.

    A program of one rank has `as_rank(number)`, which gives the program of another rank, and `box`, which keeps sent
    objects. Raises what `run` raises, and RankNeededError if ranks wait for each other.
    """
    while True:
        try:
            return run()
        except RankNeededError as needed:
            if getattr(program, "box", None) is None:
                raise
            _run_until_sent(program, device, needed, ())


def _run_until_sent(program: Any, device: Device, needed: RankNeededError, waiting: tuple[int, ...]) -> None:
    """Run the needed rank, which is not one of those that wait, until it has sent the object."""
    if needed.rank in waiting:
        raise MemlintError(
            f"rank {needed.receiver} waits for an object of rank {needed.rank}, which waits for another as well",
            "With every other rank alike, nobody sends first: see docs/distributed.md.",
        ) from needed
    other = program.as_rank(needed.rank)
    program.box.wanted = needed.key
    while needed.key not in program.box:
        try:
            with virtual_device(device):
                other.setup()
                before = -1
                while before < program.box.num_sent:  # the awaited object may be of a later step
                    before = program.box.num_sent
                    other.step()
            raise MemlintError(
                f"rank {needed.receiver} waits for an object that rank {needed.rank} never sends",
                "Check `dst` and `src`: both are ranks in the whole world, and have to name each other.",
            )
        except Delivered:
            return
        except RankNeededError as further:
            _run_until_sent(program, device, further, (*waiting, needed.receiver))
            program.box.wanted = needed.key
