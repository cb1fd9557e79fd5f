"""What a child left behind, read as an Answer: its result, or one clear error for the way it ended without one."""

import signal
from contextlib import suppress
from typing import Literal

from memlint.base import errors
from memlint.base.errors import GUARD, MemlintError, WorkerError
from memlint.base.exchange import Exchange
from memlint.base.frames import innermost_user_line, is_in_function
from memlint.base.temporary import NO_SPACE
from memlint.base.units import format_nbytes
from memlint.report.model import Skipped
from memlint.worker.child import PARTIAL, REPLY, SMALLER, STACK, STDERR, STDOUT
from memlint.worker.protocol import Answer, Failure, Limits, Reply, Result

Limit = Literal["seconds", "nbytes", "processes", "output_nbytes"]

_OURS = "This is a mistake in memlint: please report it with the output of -v."
_TOO_DEEP = "Something in the model is nested deeper than Python follows, such as modules: try it on its own."
_SLOW = "The model's own Python takes that long: "
_AGAIN = "Run the same command again: what was finished is not done anew."
_FEWER_RULES = "Allow more with --time-limit SECONDS, or choose fewer rules with --select."
_FULL_NBYTES = 2**20
"""With less free space than that no answer of any use can be written."""
_READ_NBYTES = 2**20


def read_answer(exchange: Exchange, status: int, limits: Limits, *, is_script: bool = False) -> Answer:
    """The Answer of a child that ended by itself with `status`, negative for a signal."""
    try:
        message = exchange.last(REPLY)
        if message is None:
            return _failed(exchange, _vanished(exchange, status, limits, is_script))
        reply = Reply.model_validate_json(message)
    except ValueError as error:
        return _failed(exchange, WorkerError(f"the answer of the child process cannot be read: {error}", _OURS))
    if reply.failure is not None:
        return _failed(exchange, _reported(reply.failure, limits), tuple(reply.failure.traceback))
    texts = _text(exchange, STDOUT), _text(exchange, STDERR)
    return Answer(reply.result, None, (), *texts, dependencies=reply.dependencies)


def stopped(broken: Limit, exchange: Exchange, limits: Limits, *, is_script: bool = False) -> Answer:
    """The Answer of a child that was stopped because it broke a limit."""
    guard = "" if is_script else GUARD
    match broken:
        case "seconds":
            option = "--time-limit" if is_script else "--timeout"
            smaller = _last_line(exchange)
            if guard and (smaller or is_in_function(_text(exchange, STACK))):
                guard = _SLOW + (f"type {smaller}," if smaller else "give less to do, such as --batch 1 or --no-sweep.")
            error = WorkerError(
                f"no answer within {limits.seconds:g} s{_place(exchange)}",
                f"{guard} {'or' if smaller else 'If it only needs longer,'} allow more with {option} SECONDS.".lstrip(),
            )
        case "nbytes":
            error = _out_of_memory(limits)
        case "processes":
            error = WorkerError(f"the code started more than {limits.processes} processes{_place(exchange)}", guard)
        case "output_nbytes":
            error = WorkerError(
                f"the code wrote more than {format_nbytes(limits.output_nbytes)} to stdout and stderr",
                "See how it begins with -v.",
            )
    return _failed(exchange, error)


def rules_stopped(broken: Limit, exchange: Exchange, limits: Limits) -> Answer:
    """The Answer of a child that was stopped while rules looked at its program: what is known without those."""
    partial = _partial(exchange)
    if partial is None:
        return stopped(broken, exchange, limits, is_script=True)
    texts = _text(exchange, STDOUT), _text(exchange, STDERR)
    reason = f"{stop_reason(broken, limits).partition(chr(10))[0]}: findings of rules may be missing"
    skipped = Skipped(reason=f"the rules were not through: {reason}", hint=_FEWER_RULES)
    return Answer(partial.model_copy(update={"skipped": [*partial.skipped, skipped]}), None, (), *texts)


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


def interrupted(seconds: float, exchange: Exchange) -> Answer:
    """The Answer of a child that was stopped after `seconds` because nobody waits for it any more."""
    return _failed(exchange, WorkerError(f"interrupted after {seconds:.1f} s{_place(exchange)}", _AGAIN))


def unanswered() -> Answer:
    """The Answer to a request that no child had taken up, or of which nothing is known, when all was interrupted."""
    return Answer(error=WorkerError("interrupted before there was an answer", _AGAIN))


def _failed(exchange: Exchange, error: MemlintError, traceback: tuple[str, ...] = ()) -> Answer:
    out_of_memory = isinstance(error, _OutOfMemoryError)
    if out_of_memory:
        error = WorkerError(error.message, error.hint)
    texts = _text(exchange, STDOUT), _text(exchange, STDERR)
    return Answer(None, error, traceback, *texts, out_of_memory, partial=_partial(exchange))


def _partial(exchange: Exchange) -> Result | None:
    with suppress(ValueError):  # user code can write there
        if message := exchange.last(PARTIAL):
            return Result.model_validate_json(message)
    return None


class _OutOfMemoryError(WorkerError):
    """A WorkerError elsewhere; here it sets `out_of_memory`."""


def _out_of_memory(limits: Limits) -> WorkerError:
    return _OutOfMemoryError(
        f"the code took more than {format_nbytes(limits.nbytes)} of host memory",
        "The tensors of a model cost none here, but data and weights that are loaded do: load them only under "
        "`if __name__ == '__main__':`, or allow more with --memory-limit SIZE.",
    )


def _vanished(exchange: Exchange, status: int, limits: Limits, is_script: bool) -> WorkerError:
    """Why a child ended with `status` and left no reply."""
    if "bad_alloc" in _text(exchange, STDERR):
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


def _reported(failure: Failure, limits: Limits) -> MemlintError:
    """The error for what the child caught."""
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


def _place(exchange: Exchange) -> str:
    """Where the child was when it crashed or was asked, as the end of a sentence."""
    line = innermost_user_line(_text(exchange, STACK))
    return f", at {line}" if line else ""


def _last_line(exchange: Exchange) -> str:
    """Give what to type instead of the step that was begun last, empty if there is none."""
    return _text(exchange, SMALLER).rstrip("\n").rpartition("\n")[2]


def _text(exchange: Exchange, name: str) -> str:
    """The beginning of a file."""
    return exchange.beginning(name, _READ_NBYTES).decode(errors="replace")
