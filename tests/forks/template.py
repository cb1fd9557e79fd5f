"""A Python that has imported PyTorch and memlint, and whose copies become the programs that tests start.

A copy goes on as a new Python does: it has the arguments, variables, working directory and open files that it was asked
for, fresh standard streams, an empty `__main__` and none of the tests' modules. What differs: PyTorch and memlint are
there already, as in a copy of memlint's own server (`memlint.worker.server`), one thread computes, the seed of hashes
is the template's, and so are the variables and the command line under /proc. A copy that runs a module (`-m memlint`)
has a child more: the template of what it starts in turn.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import sys
import threading
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import BaseModel

from memlint.base.garbage import frozen_by_owner
from memlint.base.own_process import die_with
from memlint.cuda.session import virtual_device
from memlint.distributed.group import become
from memlint.distributed.rank import Rank
from memlint.memory.devices import device_named
from tests.forks.pythons import READY, Template, use_copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_FILES = 64
"""Descriptors in one order: what it says, and those that the copy gets."""
_IMPORTED = (
    "memlint.cli",
    "memlint.commands",
    "memlint.compile",
    "memlint.distributed",
    "memlint.libraries",
    "memlint.report",
    "memlint.script",
    "memlint.session",
    "memlint.whatif",
    "memlint.worker",
    "memlint_rules",
)
"""Packages that commands and their children import sooner or later, with all modules in them."""

_own_templates: list[int] = []
"""Processes that this process' children are copies of."""


def begin(parent: int, handle: int) -> Callable[[], None]:
    """Import, and carry out the orders of process `parent`; returns only in copies, with the program that each is."""
    die_with(parent)
    for name in _IMPORTED:
        for each in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(each.name)
    for record in _descendants(BaseModel):
        record.model_rebuild()  # its first use would
    _simulate_once()
    gc.freeze()  # a copy that searches these objects for cycles would copy them
    frozen_by_owner()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        sys.exit("PyTorch or memlint start a thread when they are imported, which copies would lack")
    return _serve(socket.socket(fileno=handle))


def _simulate_once() -> None:
    """Let the search of all modules for functions of PyTorch be done: in each copy it would copy every object."""
    with virtual_device(device_named("a100-80gb")):
        become(Rank(2, 0))


def _descendants(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        yield each
        yield from _descendants(each)


def _serve(orders: socket.socket) -> Callable[[], None]:
    orders.send(READY)
    while True:
        try:
            said, files, _flags, _address = socket.recv_fds(orders, 1, MOST_FILES)
        except ConnectionError:  # nobody ever asked
            os._exit(0)
        if not said:
            os._exit(0)
        reading, writing = os.pipe()
        adopted, tells = os.pipe()
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)  # which makes an orphan of the copy, and a child of the process that asked for it
            return _begin_copy(files, writing, adopted)
        os.close(writing)
        os.waitpid(between, 0)
        os.write(tells, b"!")
        for each in (*files, adopted, tells):
            os.close(each)
        with os.fdopen(reading, "rb") as answer:
            orders.send(answer.read())


def _begin_copy(files: list[int], writing: int, adopted: int) -> Callable[[], None]:
    with os.fdopen(files[0], "rb") as said:
        said.seek(0)
        order = json.load(said)
    os.read(adopted, 1)
    assert os.getppid() == order["parent"]
    os.write(writing, str(os.getpid()).encode())
    os.close(writing)
    arguments, variables = order["arguments"], order["variables"]
    _take_files(files[1:], order["descriptors"])
    os.chdir(order["folder"])
    os.umask(order["umask"])
    if order["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(variables)
    if _is_module(arguments) and (program := _start_template(order["descriptors"])):
        return program
    _renew()
    for name in [name for name in sys.modules if name == "tests" or name.startswith("tests.")]:
        del sys.modules[name]
    return _program(arguments)


def _is_module(arguments: list[str]) -> bool:
    return "-m" in arguments[: 1 + (arguments[0] == "-P")]


def _start_template(descriptors: list[int]) -> Callable[[], None] | None:
    """Let a child be the template of what this process starts; returns in its copies, and None in this process."""
    orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if child := os.fork():
        theirs.close()
        use_copies(Template(orders, os.environ))
        _own_templates.append(child)
        return None
    orders.close()
    die_with(parent)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for each in descriptors:  # the end of the process, not of its template, is that of its pipes
        os.dup2(nowhere, each)
    return _serve(theirs)


def _take_files(files: list[int], descriptors: list[int]) -> None:
    """Let `files` have these numbers, and close all that is open besides."""
    high = max(files + descriptors) + 1
    held = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, high) for file in files]
    for file, descriptor in zip(held, descriptors, strict=True):
        os.dup2(file, descriptor)
    for each in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        if each not in descriptors:
            with contextlib.suppress(OSError):
                os.close(each)


def _renew() -> None:
    """Make the standard streams and draw the seeds that a new Python does."""
    errors = {"encoding": sys.__stdin__.encoding, "errors": sys.__stdin__.errors}
    sys.stdin = sys.__stdin__ = open(0, closefd=False, **errors)  # noqa: SIM115 -- as long as the process
    sys.stdout = sys.__stdout__ = _stream(1, sys.__stdout__)
    sys.stderr = sys.__stderr__ = _stream(2, sys.__stderr__)
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.modules["torch"].default_generator.seed()
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed()


def _stream(descriptor: int, like: Any) -> io.TextIOWrapper:
    binary = open(descriptor, "wb", closefd=False)  # noqa: SIM115 -- as long as the process
    lines = descriptor == 2 or os.isatty(descriptor)
    return io.TextIOWrapper(binary, encoding=like.encoding, errors=like.errors, line_buffering=lines)


def _program(arguments: list[str]) -> Callable[[], None]:
    """The program that a Python runs with these arguments: `-c`, `-m` or a file, `-P` before it or not."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    sys.orig_argv = [sys.executable, *arguments]
    is_safe = arguments[0] == "-P"
    kind, *rest = arguments[is_safe:]
    sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if kind == "-c":
        first, sys.argv = "", [kind, *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
    elif kind == "-m":
        first, sys.argv = str(Path.cwd()), [kind, *rest[1:]]
        code = compile(f"import runpy; runpy._run_module_as_main({rest[0]!r})", "<module>", "exec")
    else:
        first, sys.argv = str(Path(kind).resolve().parent), [kind, *rest]
        code = compile(Path(kind).read_bytes(), kind, "exec")
        main.__dict__["__file__"] = kind
    if not is_safe:
        sys.path.insert(0, first)
    return lambda: exec(code, main.__dict__)


def end_of(error: SystemExit) -> int:
    """The exit status that Python gives for it, after what it prints."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def leave(status: int) -> NoReturn:
    """End this process as Python does, but for taking its modules apart, which takes a copy as long as the imports."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    for each in _own_templates:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)
    os._exit(status)
