"""`subprocess.Popen` for tests that start many Pythons: copies of one that has imported PyTorch and memlint.

Both imports take longer than most of what such tests look at. A command that a copy may stand for is not executed; all
others are.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlint.base.own_process import adopt_orphans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

READY = b"ready"
"""The first message of a template."""
_ROOT = Path(__file__).parents[2]
_BOOT = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.forks.template import begin, end_of, leave
del sys.path[0]
program = begin(int(sys.argv[2]), int(sys.argv[3]))
status = 0
try:
    program()
except KeyboardInterrupt:
    raise
except SystemExit as error:
    status = end_of(error)
except BaseException as error:
    trace = error.__traceback__.tb_next.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    status = 1
leave(status)
"""
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "TORCH", "PYTORCH", "TZ")
"""Beginnings of names of variables that Python, the C library and PyTorch read when they start."""
_OF_EACH = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR")
"""Variables that a copy takes from its own environment. PyTorch sets the last one in each process that compiles."""
_PRISTINE = subprocess.Popen


def _read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(_AT_START) and name not in _OF_EACH}


class Template:
    """A process that is copied, a child of this one."""

    def __init__(self, orders: socket.socket, variables: Mapping[str, str]) -> None:
        """It was started with these variables and answers on `orders`."""
        self._orders, self._read_at_start = orders, _read_at_start(variables)
        self._process, self._is_ready = os.getpid(), False
        self._lock = threading.Lock()

    def is_like(self, variables: Mapping[str, str]) -> bool:
        """Return True if a copy for this process may stand for a new Python with these variables."""
        return self._process == os.getpid() and self._read_at_start == _read_at_start(variables)

    def copy(self, order: Mapping[str, object], files: list[int]) -> int:
        """Start a copy, a child of this process that has these open files; its process id."""
        with self._lock, os.fdopen(os.memfd_create("order"), "wb") as said:
            if not self._is_ready:
                assert self._orders.recv(len(READY)) == READY, "the template of Pythons has not started"
                self._is_ready = True
            said.write(json.dumps(order).encode())
            said.flush()
            before = adopt_orphans(True)
            try:
                socket.send_fds(self._orders, [b"!"], [said.fileno(), *files])
                return int(self._orders.recv(32))
            finally:
                adopt_orphans(before)


def start_template() -> Template:
    """Start one; it is there until this process ends."""
    variables = {name: value for name, value in os.environ.items() if name not in _OF_EACH}
    orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        handle = theirs.fileno()
        subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, str(_ROOT), str(os.getpid()), str(handle)],
            env={**variables, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(handle,),
        )
    return Template(orders, variables)


@contextmanager
def copies_used(template: Template | None) -> Iterator[None]:
    """Let `subprocess` start copies of `template` in place of Pythons, or Pythons if it is None."""
    before = subprocess.Popen
    if template is not None:
        use_copies(template)
    else:
        subprocess.Popen = _PRISTINE  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]


def use_copies(template: Template) -> None:
    """Let `subprocess` start copies of `template` from now on."""

    class Popen(_PRISTINE):  # type: ignore[misc, valid-type]
        def _execute_child(self, *given: Any) -> None:
            if not _start_copy(self, template, *given):
                super()._execute_child(*given)

    subprocess.Popen = Popen  # type: ignore[misc]


def _start_copy(
    popen: Any, template: Template, args: Any, executable: Any, preexec_fn: Any, close_fds: bool, pass_fds: Any,
    cwd: Any, env: Any, startupinfo: Any, creationflags: int, shell: bool, p2cread: int, p2cwrite: int, c2pread: int,
    c2pwrite: int, errread: int, errwrite: int, restore_signals: bool, gid: Any, gids: Any, uid: Any, umask: int,
    start_new_session: bool, process_group: int,
) -> bool:  # fmt: skip
    """`Popen._execute_child` by a copy; False where the command has to be executed."""
    if shell or not close_fds or umask >= 0 or process_group >= 0:
        return False
    if any(each is not None for each in (executable, preexec_fn, gid, gids, uid)):
        return False
    variables = dict(os.environ if env is None else env)
    if not _is_program(args) or not template.is_like(variables):
        return False
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    order = {
        "arguments": [os.fspath(each) for each in args[1:]],
        "parent": os.getpid(),
        "folder": os.path.abspath(cwd or "."),  # noqa: PTH100 -- cwd may be text or bytes
        "umask": int(status.partition("Umask:")[2].split()[0], 8),
        "session": start_new_session,
        "variables": variables,
        "descriptors": [0, 1, 2, *pass_fds],
    }
    streams = [given if given >= 0 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
    popen.pid = template.copy(order, [*streams, *pass_fds])
    popen._child_created = True
    popen._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
    return True


def _is_program(command: Any) -> bool:
    """Return True if it is this Python, with a program that copies know how to begin."""
    if isinstance(command, str | bytes | os.PathLike) or not all(isinstance(each, str | Path) for each in command):
        return False
    first, *rest = [str(each) for each in command]
    rest = rest[1:] if rest[:1] == ["-P"] else rest
    if first != sys.executable or not rest:
        return False
    if rest[0] == "-m":
        return rest[1:2] == ["memlint"]
    return len(rest) > 1 if rest[0] == "-c" else not rest[0].startswith("-")
