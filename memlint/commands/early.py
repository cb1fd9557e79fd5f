"""A child that imports PyTorch while the command still finds out what to ask it."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from memlint.base import cache as cachedir
from memlint.worker.start import Started, start_python, started
from memlint.worker.task import CHILD, Task

if TYPE_CHECKING:
    import subprocess

    from memlint.worker.protocol import Request, Result
    from memlint.worker.session import Session

_OF_THE_ANSWER = "numpy", "memlint.report.terminal"
"""Modules that the first answer is looked at with: imported while the child imports PyTorch, which takes longer."""


@contextmanager
def early_child(targets: Sequence[str], *, cache: bool) -> Iterator[Started | None]:
    """Start the child of an only target before what the command itself needs is imported; None where that is in doubt.

    It is where answers may be kept: with `cache`, in a project that has some which are newer than the target's file.
    """
    if len(targets) != 1 or not _may_help() or not _is_new(targets[0], cache=cache):
        yield None
        return
    with started(_start) as running:
        yield running


def _start(exchange: Path, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    return start_python(CHILD, str(exchange), str(os.getpid()), "0", stdout=stdout, stderr=stderr)


def _is_new(target: str, *, cache: bool) -> bool:
    """Return True if it names a file, or a module and something in it, of which no answer can be kept."""
    place, _, name = target.partition("::")
    file = Path(place)
    is_module = bool(name) and file.suffix != ".py" and place.replace(".", "").isidentifier()
    if not is_module and not (file.suffix == ".py" and file.is_file()):
        return False
    folders = [Path.cwd(), *Path.cwd().parents] if is_module else file.resolve().parents
    kept = next((each for folder in folders if (each := folder / cachedir.NAME).is_dir()), None)
    if kept is None or not cache:
        return True
    # Times that nobody sets: of a file that was changed, and of folders in which entries were replaced.
    return not is_module and file.stat().st_ctime > max(entry.stat().st_mtime for entry in os.scandir(kept))


@contextmanager
def early_session(
    requests: Sequence[Request], *, cache: bool, child: Started | None = None
) -> Iterator[Session | None]:
    """Give the Session of an only request; None for several, for a script, and on a machine with one core.

    Its child is started, unless answers are kept or a script is known that is asked before. On one core two processes
    are no faster than one. A `child` that runs already becomes the Session's, or is killed.
    """
    request = requests[0] if len(requests) == 1 else None
    if request is None or not _may_start(request):
        if child is not None:
            child.kill()
        yield None
        return
    from memlint.commands.asking import has_known_scripts  # noqa: PLC0415 -- the first child starts without these
    from memlint.worker.supervise import new_session  # noqa: PLC0415
    from memlint.worker.supervisor_pool import store_of  # noqa: PLC0415

    task = Task(request, request.limits(), _nothing, cache)
    store = store_of(task)
    is_known = store is not None and store.is_valid
    with new_session(task, store=store) as session:
        if not is_known and not has_known_scripts(request, cache=cache):
            session.start(child)
            for name in _OF_THE_ANSWER:
                importlib.import_module(name)
        elif child is not None:
            child.kill()
        yield session


def _may_start(request: Request) -> bool:
    from memlint.capture.files import is_capture  # noqa: PLC0415

    is_plain = request.script is None and not request.settings.rule_paths and request.is_utf8
    return is_plain and not is_capture(request.path or "") and _may_help()


def _may_help() -> bool:
    return (os.cpu_count() or 1) > 1 and importlib.util.find_spec("torch") is not None


def _nothing(_session: Session) -> Result:
    """Ask nothing: the command asks what it wants to know."""
    from memlint.worker.protocol import Result  # noqa: PLC0415

    return Result()
