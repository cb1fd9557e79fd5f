"""A failed run by its log: the message that tells the cause, its verdict, and what to type next."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from memlint.base.errors import TargetError
from memlint.explain.log import Surroundings, surroundings_of
from memlint.explain.messages import Amount, Message, messages_in
from memlint.explain.verdicts import Fragmentation, Verdict, fragmentation_of, others_of, verdict_of


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure for want of memory, as a log has it."""

    cause: Message
    """The first message; of a process that was killed, what its killer wrote."""
    verdict: Verdict
    fragmentation: Fragmentation
    others: Amount | None
    """Memory of the GPU that other processes hold; None if the message does not tell."""
    surroundings: Surroundings
    later: tuple[Message, ...] = ()
    """The other messages, in their order: of other ranks, and what followed from the first."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that failed, in order."""
        return tuple(sorted({each.rank for each in (self.cause, *self.later) if each.rank is not None}))

    @property
    def command(self) -> str:
        """The command that takes the same step without a GPU; with placeholders if the log does not name the script."""
        return self.surroundings.command or "memlint run SCRIPT ARGUMENTS"

    def document(self) -> dict[str, Any]:
        """Return the failure for JSON: amounts in bytes, with the rounding of the message beside them."""
        cause = asdict(self.cause)
        del cause["position"]
        place = self.surroundings.place
        return {
            "verdict": self.verdict,
            "fragmentation": self.fragmentation,
            "message": cause,
            "other_processes": None if self.others is None else self.others.nbytes,
            "place": None if place is None else asdict(place),
            "command": self.surroundings.command or None,
            "ranks": list(self.ranks),
            "later": [
                {"wording": wording, "rank": rank, "count": count}
                for (wording, rank), count in Counter((each.wording, each.rank) for each in self.later).items()
            ],
        }


def failure_in(log: str) -> Failure:
    """Explain the failure in `log`, which is a message alone or the whole output of a run.

    Raises TargetError if no message in it is about memory.
    """
    messages = messages_in(log)
    if not messages:
        raise TargetError(
            "no message about memory is in this text",
            "Give the whole output of the run: python train.py 2>&1 | tee train.log, then memlint explain train.log.",
        )
    cause = min(messages, key=lambda each: (each.wording == "killed", each.position))
    return Failure(
        cause,
        verdict_of(cause),
        fragmentation_of(cause),
        others_of(cause),
        surroundings_of(log, cause.position),
        tuple(each for each in messages if each is not cause),
    )
