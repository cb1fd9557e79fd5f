"""Protection of a script's files and of other machines: its writes go to a scratch folder."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from multiprocessing import util
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from memlint.base.after_import import after_import
from memlint.script.confinement import DEVICES, Confinement, confine, confine_files
from memlint.script.file_system import FileSystem
from memlint.script.guard import Connection, Guard, Program
from memlint.script.overlay import Overlay
from memlint.script.replacing import Replacing
from memlint.script.saving import nbytes_of, replace_writers
from memlint.script.uploads import replace_uploads

if TYPE_CHECKING:
    from memlint.memory.records import Frame

_posixshmem: Any = importlib.import_module("_posixshmem") if os.name == "posix" else None
_OF_THE_SYSTEM = tuple(Path(folder) for folder in ("/dev", "/proc", "/sys"))
_AGAIN = "--multiprocessing-fork"
"""Argument of a Python that multiprocessing starts to call a function of the script."""
_WITHOUT_OVERLAY = frozenset({"posix", "nt", "_io", "importlib._bootstrap", "importlib._bootstrap_external"})
"""Modules that keep the system's functions: the import system finds installed packages with them."""


@dataclass(frozen=True)
class Write:
    """A file that the script would have written, or removed."""

    path: str
    nbytes: int | None
    """Bytes that it would have on a real device; None if it would be removed."""
    frame: Frame | None
    """The line that first changed it."""


class Writes:
    """Everything that the script has written, removed and requested from the network so far."""

    def __init__(
        self,
        scratch: Path,
        free: Sequence[Path],
        guard: Guard,
        confinement: Confinement,
        files: FileSystem | None = None,
    ) -> None:
        """Prepare the writes; without `files` the script writes in place, and its writes are unknown."""
        self._scratch, self._free, self._guard = os.path.realpath(scratch), free, guard
        self.files = files
        """The files as the script sees them; None if it writes in place."""
        self.made = Path(f"{self._scratch}-made")
        """The folder of files that memlint makes for the script."""
        self.confinement = confinement
        """Names what the kernel refuses to writers outside Python, and to other processes."""

    def records(self) -> tuple[Write, ...]:
        """Return the files, by their paths."""
        if self.files is None:
            return ()
        return self.files.within(lambda overlay: tuple(_records(overlay)))  # type: ignore[no-any-return]

    def apart(self) -> None:
        """Separate a copy of the process that ran so far: its changes from now on are not visible to the script."""
        scratch = f"{self._scratch}-{os.getpid()}"
        if self.files is not None:
            self.files.within(lambda overlay: overlay.move(scratch))
        else:
            self._guard.active = False
            overlay = Overlay(Path(scratch), (*self._free, *_OF_THE_SYSTEM))
            other = _redirected(Replacing(), overlay, self._free, self.confinement)
            confine_files((Path(overlay.scratch), *self._free))
            other._guard.active = True

    def connections(self) -> tuple[Connection, ...]:
        """Return the other machines that the script tried to reach; none was reached."""
        return self._guard.connections()

    def remove_segments(self) -> None:
        """Remove the segments that Python's shared memory has left where those of other programs are, too."""
        if not self.confinement.isolation.shared_memory:
            for name in self._guard.made_segments():
                with contextlib.suppress(OSError):
                    _posixshmem.shm_unlink(name)

    def programs(self) -> tuple[Program, ...]:
        """Return the other programs that the script started."""
        return self._guard.programs()


def _records(overlay: Overlay) -> Iterator[Write]:
    written = dict(overlay.files())
    for place in sorted({*written, *overlay.lost()}):
        nbytes = nbytes_of(written[place]) if place in written else None
        yield Write(place, nbytes, _line(overlay, place))


def _line(overlay: Overlay, place: str) -> Frame | None:
    """Return the line that changed `place`, or else the folder that it came with."""
    while place not in overlay.lines and place != os.path.dirname(place):  # noqa: PTH120
        place = os.path.dirname(place)  # noqa: PTH120
    return overlay.lines.get(place)


@contextlib.contextmanager
def scratch_writes(
    scratch: Path, kept: bool = False, free: Sequence[Path] = (), *, makes_folders: bool = False
) -> Iterator[Writes]:
    """Redirect everything that the script writes, moves and removes to `scratch`, and keep it from other machines.

    The script reads back what it wrote. Folders in `free` are written in place. With `kept` nothing is redirected, and
    only the network is refused. The process can never write elsewhere again, even after this context. `makes_folders`
    lets the script write in folders that are not there.
    """
    with Replacing() as replacing:
        if kept:
            replace_writers(replacing, None)
            writes = Writes(scratch, free, Guard(None), confine(None))
        else:
            overlay = Overlay(scratch, (*free, *_OF_THE_SYSTEM))
            overlay.makes_folders = makes_folders
            writes = _redirected(replacing, overlay, free, confine((Path(overlay.scratch), *free)))
            replacing.put(subprocess.Popen, "__init__", _started(subprocess.Popen.__init__, FileSystem(overlay)))
        writes._guard.reaches_itself = writes.confinement.reaches_itself
        _note_new_interpreters(replacing, writes._guard)
        _note_segments(replacing, writes._guard)
        after_import(
            "huggingface_hub.hf_api", lambda module: replace_uploads(module, replacing, writes._guard.note_host)
        )
        writes._guard.active = True
        try:
            yield writes
        finally:
            writes._guard.active = False
            writes.remove_segments()


def _replace_openers_of_numpy(replacing: Replacing, files: FileSystem) -> None:
    """Let `loadtxt`, `savetxt` and their like open files as the script does, whatever `open` was before."""
    openers = getattr(sys.modules.get("numpy.lib._datasource"), "_file_openers", None)
    if openers is not None:
        replacing.put(openers, "_file_openers", openers._file_openers | {None: files.open_file})


def _redirected(replacing: Replacing, overlay: Overlay, free: Sequence[Path], confinement: Confinement) -> Writes:
    files = FileSystem(overlay)
    replace_writers(replacing, files)
    _replace_openers_of_numpy(replacing, files)
    functions = {original: replacement for _, _, original, replacement in files.functions()}
    kinds = frozenset(map(type, functions))  # to ask each value for its `id` is told to the hook that records reads
    for module_name, module in list(sys.modules.items()):
        if module_name not in _WITHOUT_OVERLAY and not module_name.startswith("memlint.script"):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if type(value) in kinds and value in functions:
                    replacing.put(module, name, functions[value])
    closer = tempfile._TemporaryFileCloser  # type: ignore[attr-defined]  # its methods have functions of os as defaults
    for name, method in list(vars(closer).items()):
        if isinstance(method, FunctionType) and method.__defaults__:
            defaults = tuple(
                functions.get(value, value) if type(value) in kinds else value for value in method.__defaults__
            )
            code = method.__code__, method.__globals__, name, defaults, method.__closure__
            replacing.put(closer, name, FunctionType(*code))
    replacing.put(shutil, "_use_fd_functions", False)
    if sys.version_info >= (3, 14):  # what `rmtree` calls, chosen when shutil is imported
        replacing.put(shutil, "_rmtree_impl", shutil._rmtree_unsafe)  # type: ignore[attr-defined]
    replacing.put(tempfile, "tempdir", overlay.temporary)
    os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), overlay.temporary))
    for names in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        names.update({functions[function] for function in names if function in functions})
    sys.meta_path.append(_Written(overlay))
    places = tuple(os.path.realpath(folder) + os.sep for folder in (*free, *DEVICES))

    def may_write(path: str) -> bool:
        inside = (path + os.sep).startswith((overlay.scratch + os.sep, *places))
        return inside or _is_open(path)

    return Writes(Path(overlay.scratch), free, Guard(may_write), confinement, files)


def _is_open(path: str) -> bool:
    """Return True if `path`, links followed, is a process's descriptor of a pipe or the like, or of memory."""
    is_descriptor = path.startswith("/proc/") and os.path.basename(os.path.dirname(path)) == "fd"  # noqa: PTH119, PTH120
    return is_descriptor or path.startswith("/memfd:")


def _started(init: Any, files: FileSystem) -> Any:
    """Replace `subprocess.Popen`, which may start a process in a folder that the script created."""
    parameters = inspect.signature(init)

    @functools.wraps(init)
    def start(*args: Any, **kwargs: Any) -> None:
        arguments = parameters.bind(*args, **kwargs).arguments
        if arguments.get("cwd") is not None:
            arguments["cwd"] = files.folder(arguments["cwd"])
        init(**arguments)

    return start


def _note_new_interpreters(replacing: Replacing, guard: Guard) -> None:
    """Tell `guard` about processes of multiprocessing that run the script again, which no event of Python reports."""
    if sys.platform == "win32":
        return
    start = util.spawnv_passfds

    def starting(path: Any, args: Any, passfds: Any) -> Any:
        if _AGAIN in args:
            guard.note_program(args)
        return start(path, args, passfds)

    replacing.put(util, "spawnv_passfds", starting)


def _note_segments(replacing: Replacing, guard: Guard) -> None:
    """Tell `guard` about shared memory, which outlives its creators."""
    if _posixshmem is None:
        return
    opened = _posixshmem.shm_open

    def opening(name: str, flags: int, mode: int = 0o777) -> int:
        handle: int = opened(name, flags, mode=mode)
        if flags & os.O_CREAT:
            guard.note_segment(name)
        return handle

    replacing.put(_posixshmem, "shm_open", opening)


class _Written:
    """Import hook that finds modules that the script wrote."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Look where the module would be, in the scratch folder."""
        if not self._overlay.lines:
            return None
        folders = [self._overlay.upper(self._overlay.known(folder)) for folder in (sys.path if path is None else path)]
        return PathFinder.find_spec(name, [folder for folder in folders if Path(folder).is_dir()], target)
