"""The process in which user code runs: reads one request, writes one reply, ends.

It talks through files in a directory of its parent, opened before the user's code runs, never through stdout, which
belongs to that.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from memlint.base.errors import MemlintError
from memlint.base.exchange import Exchange
from memlint.base.frames import is_out_of_host_memory, user_lines
from memlint.base.own_process import die_with, limit_memory
from memlint.worker.dependencies import Watch

if TYPE_CHECKING:
    from pydantic import BaseModel

    from memlint.worker.protocol import Failure, Reply, Request, Result

REQUEST, REPLY, PARTIAL, SMALLER = "request.json", "reply.json", "partial.json", "smaller.txt"
STACK, STDOUT, STDERR = "stack.txt", "stdout.txt", "stderr.txt"
REASON, MARKS = "ending.txt", "marks.txt"
FILES = (REPLY, PARTIAL, SMALLER, STACK, STDOUT, STDERR, REASON, MARKS)
"""Files of the exchange; `STACK` is where faulthandler writes on a crash and when the parent asks (SIGUSR1), `REASON`
why the parent asks a script to end, and `MARKS` how far the child is, as lines of these:"""
HEARD, RULES = "heard", "rules"
"""A script was reached by the request to end; the program is over, and rules look at what it did."""
_REASON_NBYTES = 2**16

_exit = os._exit
"""Not what a script that runs here makes of it."""
_exchange: tuple[Exchange, int] | None = None
"""The exchange and the process that may write there, once `main` has begun."""


def exchange_folder() -> Path:
    """Where a child may write."""
    assert _exchange is not None, "only a child has one"
    return _exchange[0].folder


def write_partial(result: Result) -> None:
    """Write what there is so far, in place of the last partial result: it counts if this process is stopped or fails.

    Outside of a child nothing happens.
    """
    _write(PARTIAL, result)


def write_smaller(command: str) -> None:
    """Write what to type instead if this process is stopped in the step that it begins with now.

    Outside of a child nothing happens.
    """
    _say(SMALLER, command)


def rules_begin() -> None:
    """Say that the program is over: from here on the time limit is that of the rules."""
    _say(MARKS, RULES)


def reason_to_end() -> str:
    """Read why the parent asks a script to end, which tells the parent that it was heard; empty where it did not say.

    The first line is the reason, the second one what to do, if anything.
    """
    assert _exchange is not None, "only a child is asked"
    _exchange[0].say(MARKS, HEARD.encode())
    with suppress(OSError):
        return _exchange[0].beginning(REASON, _REASON_NBYTES).decode(errors="replace").strip()
    return ""


def write_here() -> None:
    """Let this copy of the child write into the exchange."""
    global _exchange  # noqa: PLW0603 -- as in `run`
    assert _exchange is not None, "only a child has one"
    _exchange = (_exchange[0], os.getpid())


def main(exchange: str, parent: str, memory_limit: str, analyse: str, bytecode: str) -> NoReturn:
    """Carry out the request in the directory `exchange` with the function `analyse`, named as `module:function`.

    `parent` is the process to die with, `memory_limit` in bytes; with `bytecode` the compiled modules of memlint and
    PyTorch are kept, as Python does, but never those of user code.
    """
    run(Path(exchange), int(parent), int(memory_limit), analyse, bytecode=bool(bytecode))


def run(
    directory: Path,
    parent: int,
    nbytes: int,
    analyse: str,
    watch: Watch | None = None,
    *,
    bytecode: bool,
    ready: Callable[[], None] = lambda: None,
) -> NoReturn:
    """As `main`. A copy of another process has a `watch`, and calls `ready` within its limits."""
    die_with(parent)
    limit_memory(nbytes)
    global _exchange  # noqa: PLW0603 -- a process is a child once and for all
    exchange = Exchange(directory, FILES, new=False)
    _exchange = (exchange, os.getpid())
    stack = os.fdopen(exchange.duplicate(STACK), "ab", buffering=0)
    faulthandler.enable(stack, all_threads=False)
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
    if watch is None:
        watch = Watch(directory)
    watch.paused = False
    sys.dont_write_bytecode = not bytecode
    ready()
    _answer(_reply((directory / REQUEST).read_text(encoding="utf-8"), analyse, watch))


def answer_now(result: Result) -> NoReturn:
    """Answer with `result` and end the process, from wherever this is called."""
    from memlint.worker.protocol import Reply  # noqa: PLC0415  (limits first)

    _answer(Reply(result=result))


def fail_now(error: BaseException) -> NoReturn:
    """Answer with what has gone wrong, as `answer_now` does with a result."""
    from memlint.worker.protocol import Reply  # noqa: PLC0415  (limits first)

    _answer(Reply(failure=_failure(error)))


def _answer(reply: Reply) -> NoReturn:
    _write(REPLY, reply)
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(BaseException):  # user code may have closed it, or put anything in its place
            stream.flush()  # type: ignore[union-attr]
    _exit(0)  # threads and exit handlers of user code could hold the process up for ever


def _write(name: str, message: BaseModel) -> None:
    """Put a message into the exchange at once. User code that forks and runs on comes here twice: the first writes."""
    if _exchange is not None:
        _say(name, _json(message))


def _say(name: str, text: str) -> None:
    if _exchange is not None and _exchange[1] == os.getpid():
        _exchange[0].say(name, text.encode())


def _json(message: BaseModel) -> str:
    """The message as JSON. What user code calls things may be no text: such characters are escaped."""
    from pydantic_core import PydanticSerializationError  # noqa: PLC0415  (limits first)

    try:
        return message.model_dump_json()
    except PydanticSerializationError:
        return type(message).model_validate(_as_text(message.model_dump())).model_dump_json()


def _as_text(value: object) -> object:
    """`value` with an escape for each lone surrogate in its strings."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_text(key): _as_text(item) for key, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, list | tuple) else value


def _reply(request: str, analyse: str, watch: Watch) -> Reply:
    from memlint.worker.protocol import Failure, Reply, Request  # noqa: PLC0415  (limits first)

    module, _, name = analyse.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        sys.dont_write_bytecode = True
        parsed = Request.model_validate_json(request)
        _enter_project(parsed)
        return Reply(result=function(parsed), dependencies=watch.dependencies())
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        text = f": {error.code}" if isinstance(error.code, str) else ""
        return Reply(failure=Failure(kind="SystemExit", message=f"sys.exit({code}){text}", traceback=user_lines(error)))
    except BaseException as error:
        return Reply(failure=_failure(error))


def _failure(error: BaseException) -> Failure:
    from memlint.worker.protocol import Failure  # noqa: PLC0415  (limits first)

    with suppress(Exception):  # stderr may be closed
        traceback.print_exception(error)
    memory = is_out_of_host_memory(error)
    if isinstance(error, MemlintError):
        message, hint = error.message, error.hint
    else:
        message, hint = "".join(traceback.format_exception_only(error)).strip(), ""
    return Failure(kind=type(error).__name__, message=message, hint=hint, traceback=user_lines(error), memory=memory)


def _enter_project(request: Request) -> None:
    """Arguments and import path as for a script of the project: its own directory first, then the project's.

    Of a file in a package it is the directory around the package: in the package's own, a module called like the
    package would hide it.
    """
    root = Path(request.root)
    script = request.script
    if script is not None:  # as Python itself starts one
        sys.argv = [script.path or script.module, *script.arguments]
        sys.path.insert(0, str(Path(script.path).parent) if script.path else str(Path.cwd()))
        return
    own = [_folder_of_imports(Path(request.path))] if request.path else []
    places = [str(place) for place in (*own, root, root / "src") if place.is_dir()]
    sys.argv = [request.path or request.module]
    sys.path[:0] = [place for place in dict.fromkeys(places) if place not in sys.path]


def _folder_of_imports(file: Path) -> Path:
    from memlint.source.imports import module_name  # noqa: PLC0415  (limits first)

    return module_name(file)[1] if file.suffix == ".py" else file.parent
