"""The process in which user code runs: it reads a request, then does one job after the other until it is ended.

It talks through files in a directory of its parent, opened before the user's code runs, never through stdout, which
belongs to that.
"""

from __future__ import annotations

import base64
import faulthandler
import json
import os
import pickle
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from memlint.base import errors
from memlint.base.errors import MemlintError
from memlint.base.exchange import Exchange
from memlint.base.frames import is_out_of_host_memory, user_lines
from memlint.base.garbage import long_lived
from memlint.base.own_process import die_with, flush_output, limit_memory, signals_end
from memlint.worker.dependencies import Watch

if TYPE_CHECKING:
    from pydantic import BaseModel

    from memlint.capture.capture import Capture
    from memlint.worker.jobs import Job
    from memlint.worker.protocol import Request

REQUEST, JOBS, REPLY, CAPTURES = "request.json", "jobs.txt", "reply.json", "captures"
PARTIAL, SMALLER, COMPILING = "partial.json", "smaller.txt", "compiling.txt"
STACK, STDOUT, STDERR = "stack.txt", "stdout.txt", "stderr.txt"
REASON, HEARD = "ending.txt", "heard.txt"
FILES = (JOBS, REPLY, CAPTURES, PARTIAL, SMALLER, COMPILING, STACK, STDOUT, STDERR, REASON, HEARD)
"""Files of the exchange; `STACK` is where faulthandler writes on a crash and when the parent asks (SIGUSR1), `REASON`
why the parent asks a script to end, and `HEARD` is written to once the script was reached."""
_IDLE_SECONDS = 0.001, 0.02
"""Between two looks for a job: at first, and after a while."""
_REASON_NBYTES = 2**16

_exit, _sleep = os._exit, time.sleep
"""The original functions; scripts may replace them."""
_watch: Watch | None = None
_exchange: tuple[Exchange, int] | None = None
"""The exchange and the process that may write there, once `main` has begun."""


def exchange_folder() -> Path:
    """Return the folder in which a child may write."""
    assert _exchange is not None, "only a child has one"
    return _exchange[0].folder


def write_partial(answer: BaseModel) -> None:
    """Write what there is so far, in place of the last partial answer: it counts if this process is stopped or fails.

    Outside of a child nothing happens.
    """
    _say(PARTIAL, _json(answer))


def write_partial_capture(capture: Capture) -> None:
    """Write what was seen so far of a script, as `write_partial` does with a record."""
    from memlint.capture.codec import encode  # noqa: PLC0415  (limits first)

    _say(PARTIAL, base64.b64encode(zlib.compress(encode(capture), 1)).decode())


def write_smaller(command: str) -> None:
    """Write what to type instead if this process is stopped in the step that it begins with now.

    Outside of a child nothing happens.
    """
    _say(SMALLER, command)


def write_compiling(doing: str) -> None:
    """Write that this process compiles, or empty that it does no more; meanwhile its time limit waits.

    Outside of a child nothing happens.
    """
    _say(COMPILING, doing)


def reason_to_end() -> str:
    """Read why the parent asks a script to end, which tells the parent that it was heard; empty where it did not say.

    The first line is the reason, the second one what to do, if anything.
    """
    assert _exchange is not None, "only a child is asked"
    _exchange[0].say(HEARD, b"heard")
    with suppress(OSError):
        return _exchange[0].beginning(REASON, _REASON_NBYTES).decode(errors="replace").strip()
    return ""


def is_child() -> bool:
    """Return True in a process that answers jobs, and in copies of it."""
    return _watch is not None


def watch_of_child() -> Watch:
    """Return what records the reads of this child."""
    assert _watch is not None, "a child has one"
    return _watch


def write_here() -> None:
    """Let this copy of the child write into the exchange."""
    global _exchange  # noqa: PLW0603 -- as in `run`
    assert _exchange is not None, "only a child has one"
    _exchange = (_exchange[0], os.getpid())


def run(
    directory: Path,
    parent: int,
    nbytes: int,
    serve: Callable[[Request], NoReturn],
    watch: Watch | None = None,
    *,
    bytecode: bool,
    ready: Callable[[], None] = lambda: None,
    preload: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Be the child of `parent` that takes at most `nbytes` and speaks through `directory`: `serve` its request.

    With 0 bytes the limit is that of the request. If the request is not there yet, `preload` imports what it may need,
    and then it is waited for. With `bytecode` the compiled modules of memlint and PyTorch are kept, as Python does, but
    never those of user code. A copy of another process has a `watch`, and calls `ready` within its limits.
    """
    die_with(parent)
    signals_end()
    if nbytes:
        limit_memory(nbytes)
    global _exchange, _watch  # noqa: PLW0603 -- a process is a child once and for all
    exchange = Exchange(directory, FILES, new=False)
    _exchange = (exchange, os.getpid())
    stack = os.fdopen(exchange.duplicate(STACK), "ab", buffering=0)
    faulthandler.enable(stack, all_threads=False)
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
    if watch is None:
        watch = Watch(directory)
    else:
        watch.resume()
    _Jobs.keeps_bytecode = bytecode
    sys.dont_write_bytecode = not bytecode
    ready()
    if not (directory / REQUEST).exists():
        with suppress(Exception):  # what fails now fails again for the request, which is answered with it
            preload()
        while not (directory / REQUEST).exists():
            _sleep(_IDLE_SECONDS[0])
    from memlint.worker.protocol import Request  # noqa: PLC0415  (limits first)

    _watch = watch
    request = Request.model_validate_json((directory / REQUEST).read_text(encoding="utf-8"))
    try:
        if not nbytes:
            limit_memory(request.limits().nbytes)
        sys.dont_write_bytecode = True
        _enter_project(request)
        watch.counts_imports = True
        serve(request)
    except BaseException as error:
        fail_now(error)


@contextmanager
def own_imports() -> Iterator[None]:
    """Keep the compiled modules that are imported inside the block, as Python does: memlint's and PyTorch's."""
    sys.dont_write_bytecode = not _Jobs.keeps_bytecode
    counts_imports = _watch is not None and _watch.counts_imports
    _count_imports(counts=False)
    try:
        with long_lived():
            yield
    finally:
        sys.dont_write_bytecode = True
        _count_imports(counts=counts_imports)


def _count_imports(*, counts: bool) -> None:
    if _watch is not None:
        _watch.counts_imports = counts


def answer_jobs(answer: Callable[[Job], BaseModel | Capture | None]) -> NoReturn:
    """Answer every job that the parent asks for, until it ends this process."""
    from memlint.worker.jobs import Finish  # noqa: PLC0415  (limits first)

    while True:
        message = _next_job()
        try:
            job = _unpickled(message)
            if isinstance(job, Finish):
                _say_reply(dependencies=watch_of_child().dependencies())
                _exit(0)  # threads and exit handlers of user code could hold the process up for ever
            _reply_with(answer(job))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            text = f": {error.code}" if isinstance(error.code, str) else ""
            _reply_with_failure("SystemExit", f"sys.exit({code}){text}", user_lines(error))
        except BaseException as error:
            _reply_with_error(error)


def fail_now(error: BaseException) -> NoReturn:
    """Answer the job that is asked for, and all others, with what has gone wrong, from wherever this is called."""

    def fail(_job: Job) -> NoReturn:
        raise error

    answer_jobs(fail)


class _Jobs:
    """How many jobs were taken up, and where the next one begins; module state of a child."""

    number = 0
    offset = 0
    keeps_bytecode = False
    """True if compiled modules are kept that are no user's."""


def _next_job() -> bytes:
    """Wait for a job."""
    assert _exchange is not None
    if _exchange[1] != os.getpid():
        _exit(0)  # user code has forked, and goes on in both
    seconds, most = _IDLE_SECONDS
    while True:
        content = _exchange[0].since(JOBS, _Jobs.offset)
        line, end, _ = content.partition(b"\n")
        if end:
            _Jobs.number += 1
            _Jobs.offset += len(line) + 1
            return line
        _sleep(seconds)
        seconds = min(most, 1.2 * seconds)


def _unpickled(message: bytes) -> Job:
    content = base64.b64decode(message)
    try:
        job: Job = pickle.loads(content)
    except ModuleNotFoundError:  # a Change of the project's own rules
        from memlint.lint.registry import project_rules  # noqa: PLC0415  (limits first)
        from memlint.worker.protocol import Request  # noqa: PLC0415  (limits first)

        assert _exchange is not None
        request = Request.model_validate_json((_exchange[0].folder / REQUEST).read_text(encoding="utf-8"))
        project_rules(request.settings, Path(request.root))
        job = pickle.loads(content)
    return job


def _reply_with(answered: Any) -> None:
    from pydantic import BaseModel  # noqa: PLC0415  (limits first)

    from memlint.capture.capture import Capture  # noqa: PLC0415  (limits first)
    from memlint.capture.codec import encode  # noqa: PLC0415  (limits first)

    record: Any = None
    capture = None
    for each in answered if isinstance(answered, tuple) else (answered,):
        if isinstance(each, Capture):
            content = encode(each)
            if _exchange is not None and _exchange[1] == os.getpid():
                capture = _exchange[0].append(CAPTURES, content), len(content)
        elif isinstance(each, BaseModel):
            record = json.loads(_json(each))
    _say_reply(answer=record, capture=capture)


def _reply_with_error(error: BaseException) -> None:
    with suppress(Exception):  # stderr may be closed
        traceback.print_exception(error)
    memory = is_out_of_host_memory(error)
    if isinstance(error, MemlintError):
        message, hint = error.message, error.hint
    else:
        message, hint = "".join(traceback.format_exception_only(error)).strip(), ""
    _reply_with_failure(_kind_of(error), message, user_lines(error), hint, memory=memory)


def _kind_of(error: BaseException) -> str:
    """Name the class of an error; of memlint's own the closest that the parent knows."""
    if not isinstance(error, MemlintError):
        return type(error).__name__
    return next(each.__name__ for each in type(error).__mro__ if hasattr(errors, each.__name__))


def _reply_with_failure(kind: str, message: str, lines: list[str], hint: str = "", *, memory: bool = False) -> None:
    from memlint.worker.protocol import Failure  # noqa: PLC0415  (limits first)

    _say_reply(failure=Failure(kind=kind, message=message, hint=hint, traceback=lines, memory=memory))


def _say_reply(**fields: Any) -> None:
    from memlint.worker.protocol import Reply  # noqa: PLC0415  (limits first)

    if _exchange is not None and _exchange[1] == os.getpid():
        flush_output()  # before the parent hears of the answer: it may end this process at once
    _say(REPLY, _json(Reply(number=_Jobs.number, **fields)))


def _say(name: str, text: str) -> None:
    """Put a message into the exchange at once. User code that forks and runs on comes here twice: the first writes."""
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


def _enter_project(request: Request) -> None:
    """Arguments and import path as for a script of the project: its own directory first, then the project's.

    Of a file in a package it is the directory around the package: in the package's own, a module called like the
    package would hide it.
    """
    from memlint.source.own_package import folder_of_own_package  # noqa: PLC0415  (limits first)

    root = Path(request.root)
    script = request.script
    if script is not None:  # as Python itself starts one
        if script.folder:
            os.chdir(script.folder)
        calls = ":" in script.module
        sys.argv = [script.path or (script.name if calls else script.module), *script.arguments]
        folder = Path(script.path).parent if script.path else Path(sys.executable).parent if calls else Path.cwd()
        own_package = folder_of_own_package(root)
        sys.path[:0] = [str(folder), *([] if own_package in (None, folder) else [str(own_package)])]
        return
    own = _folders_of_imports(Path(request.path)) if request.path else []
    places = [str(place) for place in (*own, root, root / "src") if place.is_dir()]
    sys.argv = [request.path or request.module]
    sys.path[:0] = [place for place in dict.fromkeys(places) if place not in sys.path]


def _folders_of_imports(file: Path) -> list[Path]:
    from memlint.source.imports import imports_namesake, module_name  # noqa: PLC0415  (limits first)

    if file.suffix != ".py":
        return [file.parent]
    return [] if imports_namesake(file) else [module_name(file)[1]]
