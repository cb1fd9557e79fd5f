"""The process in which user code runs: reads one request, writes one reply, ends.

It talks through files in a directory of its parent, never through stdout, which belongs to the user's code.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from memlint.errors import MemlintError
from memlint.worker.dependencies import Watch
from memlint.worker.frames import chain, user_lines
from memlint.worker.limits import die_with, limit_memory

if TYPE_CHECKING:
    from memlint.worker.protocol import Failure, Reply, Request

REQUEST, REPLY, STACK, STDOUT, STDERR = "request.json", "reply.json", "stack.txt", "stdout.txt", "stderr.txt"
"""Files of the exchange; `STACK` is where faulthandler writes on a crash and when the parent asks (SIGUSR1)."""

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc", "Cannot allocate memory")


def main(exchange: str, parent: str, memory_limit: str, analyse: str) -> NoReturn:
    """Carry out the request in the directory `exchange` with the function `analyse`, named as `module:function`.

    `parent` is the process to die with, `memory_limit` in bytes.
    """
    die_with(int(parent))
    limit_memory(int(memory_limit))
    process = os.getpid()
    directory = Path(exchange)
    stack = (directory / STACK).open("ab", buffering=0)
    faulthandler.enable(stack, all_threads=False)
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
    reply = _reply((directory / REQUEST).read_text(encoding="utf-8"), analyse, Watch(directory))
    # User code that forks and lets the copy run on comes here twice; only the first answers.
    if os.getpid() == process:
        partial = directory / f"{REPLY}.partial"
        partial.write_text(reply.model_dump_json(), encoding="utf-8")
        partial.replace(directory / REPLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(0)  # threads and exit handlers of user code could hold the process up for ever


def _reply(request: str, analyse: str, watch: Watch) -> Reply:
    from memlint.worker.protocol import Failure, Reply, Request  # noqa: PLC0415  (limits first)

    module, _, name = analyse.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        parsed = Request.model_validate_json(request)
        _enter_project(parsed)
        return Reply(result=function(parsed), dependencies=watch.dependencies())
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        said = f": {error.code}" if isinstance(error.code, str) else ""
        return Reply(failure=Failure(kind="SystemExit", message=f"sys.exit({code}){said}", traceback=user_lines(error)))
    except BaseException as error:
        return Reply(failure=_failure(error))


def _failure(error: BaseException) -> Failure:
    from memlint.worker.protocol import Failure  # noqa: PLC0415  (limits first)

    traceback.print_exception(error)
    links = list(chain(error))
    memory = any(isinstance(link, MemoryError) or any(text in str(link) for text in _OUT_OF_MEMORY) for link in links)
    if isinstance(error, MemlintError):
        message, hint = error.message, error.hint
    else:
        message, hint = "".join(traceback.format_exception_only(error)).strip(), ""
    return Failure(kind=type(error).__name__, message=message, hint=hint, traceback=user_lines(error), memory=memory)


def _enter_project(request: Request) -> None:
    """Arguments and import path as for a script of the project: its own directory first, then the project's."""
    root = Path(request.root)
    own = [Path(request.path).parent] if request.path else []
    places = [str(place) for place in (*own, root, root / "src") if place.is_dir()]
    sys.argv = [request.path or request.module]
    sys.path[:0] = [place for place in dict.fromkeys(places) if place not in sys.path]
