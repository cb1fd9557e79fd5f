"""How a child ended, or why it was stopped: one clear error for each way."""

import signal
import traceback
from collections.abc import Sequence
from typing import Literal

from memlint.base import errors
from memlint.base.errors import GUARD, MemlintError, WorkerError
from memlint.base.exchange import Exchange
from memlint.base.frames import innermost_user_line, is_in_function
from memlint.base.temporary import NO_SPACE
from memlint.base.units import format_nbytes
from memlint.report.model import Skipped
from memlint.worker.child import SMALLER, STACK, STDERR
from memlint.worker.protocol import Answer, Failure, Limits

Limit = Literal["seconds", "nbytes", "processes", "output_nbytes"]

_OURS = "This is a mistake in memlint: please report it with the output of -v."
_TOO_DEEP = "Something in the model is nested deeper than Python follows, such as modules: try it on its own."
_SLOW = "The model's own Python takes that long: "
_AGAIN = "Run the same command again: what was finished is not done anew."
_FEWER_RULES = "Allow more with --time-limit SECONDS, or choose fewer rules with --select."
_MOST_CODES = 12
_FULL_NBYTES = 2**20
"""The free space below which no useful answer can be written."""
_READ_NBYTES = 2**20


def unreadable(error: Exception) -> WorkerError:
    """Give the error for a reply that makes no sense."""
    return WorkerError(f"the answer of the child process cannot be read: {error}", _OURS)


def of_asking(error: Exception) -> WorkerError:
    """Give the error for a mistake that was made with the answers of a child."""
    return WorkerError("".join(traceback.format_exception_only(error)).strip(), _OURS)


def stopped(broken: Limit, exchange: Exchange, limits: Limits, *, is_script: bool = False) -> WorkerError:
    """Give the error of a child that was stopped because it broke a limit."""
    guard = "" if is_script else GUARD
    match broken:
        case "seconds":
            option = "--time-limit" if is_script else "--timeout"
            smaller = _last_line(exchange)
            if guard and (smaller or is_in_function(text_of(exchange, STACK))):
                guard = _SLOW + (f"type {smaller}," if smaller else "give less to do, such as --batch 1 or --no-sweep.")
            return WorkerError(
                f"no answer within {limits.seconds:g} s{_place(exchange)}",
                f"{guard} {'or' if smaller else 'If it only needs longer,'} allow more with {option} SECONDS.".lstrip(),
            )
        case "nbytes":
            return _out_of_memory(limits)
        case "processes":
            return WorkerError(f"the code started more than {limits.processes} processes{_place(exchange)}", guard)
        case "output_nbytes":
            return WorkerError(
                f"the code wrote more than {format_nbytes(limits.output_nbytes)} to stdout and stderr",
                "See how it begins with -v.",
            )


def rules_missing(reason: str, codes: Sequence[str]) -> Skipped:
    """Say that rules were stopped while they looked at a script, and why; `codes` are those of the rules left."""
    more = f" and {len(codes) - _MOST_CODES} more" if len(codes) > _MOST_CODES else ""
    missing = f"{', '.join(codes[:_MOST_CODES])}{more}" if codes else "rules"
    text = f"the rules were not through: {reason}: findings of {missing} may be missing"
    return Skipped(reason=text, hint=_FEWER_RULES)


def stop_reason(broken: Limit, limits: Limits) -> str:
    """Why a script was asked to end, as the reason of its Ending, and on a line of its own what to do, if anything."""
    match broken:
        case "seconds":
            reason = f"it was stopped after {limits.seconds:g} s, which is the time limit"
            return f"{reason}\nAllow more with --time-limit SECONDS."
        case "nbytes":
            reason = f"it was stopped because it took more than {format_nbytes(limits.nbytes)} of host memory"
            return f"{reason}\nLet it load less, or allow more with --memory-limit SIZE."
        case "processes":
            return f"it was stopped because it started more than {limits.processes} processes"
        case "output_nbytes":
            written = format_nbytes(limits.output_nbytes)
            return f"it was stopped because it wrote more than {written} to stdout and stderr"


def interrupted(seconds: float, exchange: Exchange) -> WorkerError:
    """Give the error of a child that was stopped after `seconds` because nobody waits for it any more."""
    return WorkerError(f"interrupted after {seconds:.1f} s{_place(exchange)}", _AGAIN)


def not_begun() -> WorkerError:
    """Give the error of a request that nobody had taken up when all was interrupted."""
    return WorkerError("interrupted before there was an answer", _AGAIN)


def unanswered() -> Answer:
    """The Answer to a request that no child had taken up, or of which nothing is known, when all was interrupted."""
    return Answer(error=not_begun())


class OutOfMemoryError(WorkerError):
    """The memory of the host did not suffice."""


def _out_of_memory(limits: Limits) -> WorkerError:
    return OutOfMemoryError(
        f"the code took more than {format_nbytes(limits.nbytes)} of host memory",
        "The tensors of a model cost none here, but data and weights that are loaded do: load them only under "
        "`if __name__ == '__main__':`, or allow more with --memory-limit SIZE.",
    )


def vanished(exchange: Exchange, status: int, limits: Limits, *, is_script: bool) -> WorkerError:
    """Give the error of a child that ended with `status`, negative for a signal, and left no reply."""
    if "bad_alloc" in text_of(exchange, STDERR):
        return _out_of_memory(limits)
    if exchange.free_nbytes() < _FULL_NBYTES:
        return WorkerError(f"no temporary file can be written: {exchange.folder.parent} is full", NO_SPACE)
    if status >= 0:
        hint = f"Something in it calls os._exit. {'' if is_script else GUARD}".rstrip()
        return WorkerError(f"the code ended the process with exit status {status}", hint)
    name = signal.Signals(-status).name
    ends = {"SIGSEGV": "crashed with a segmentation fault", "SIGABRT": "was aborted", "SIGKILL": "was killed"}
    hint = "Compiled code failed, PyTorch's own or an extension's: see what it wrote with -v, and try the code alone."
    if name == "SIGKILL":
        hint = "The system may have been out of memory: close other programs, or give a lower --memory-limit."
    return WorkerError(f"the code {ends.get(name, 'was ended by a signal')} ({name}){_place(exchange)}", hint)


def reported(failure: Failure, limits: Limits) -> MemlintError:
    """Give the error for what the child caught."""
    if failure.memory:
        return _out_of_memory(limits)
    if failure.kind == "SystemExit":
        return WorkerError(f"the code called {failure.message}", GUARD)
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, MemlintError):
        return kind(failure.message, failure.hint)
    if failure.traceback:
        return WorkerError(failure.message, "Correct it, or see the whole traceback with -v.")
    return WorkerError(failure.message, _TOO_DEEP if failure.kind == RecursionError.__name__ else _OURS)


def is_of_child(failure: Failure) -> bool:
    """Say whether a failure ends a child, and not only a job: memlint does not know what its code raised."""
    kind = getattr(errors, failure.kind, None)
    return failure.memory or not (isinstance(kind, type) and issubclass(kind, MemlintError))


def _place(exchange: Exchange) -> str:
    """Return the line of the child's crash or of the last request for its stack, as the end of a sentence."""
    line = innermost_user_line(text_of(exchange, STACK))
    return f", at {line}" if line else ""


def _last_line(exchange: Exchange) -> str:
    """Give what to type instead of the step that was begun last, empty if there is none."""
    return text_of(exchange, SMALLER).rstrip("\n").rpartition("\n")[2]


def text_of(exchange: Exchange, name: str) -> str:
    """The beginning of a file."""
    return exchange.beginning(name, _READ_NBYTES).decode(errors="replace")
