"""The dependencies of a child's answer besides the request: the files, packages and variables that it reads."""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from memlint.base import broken_plugins, cache
from memlint.base.environment import hear_reads
from memlint.base.ownership import is_installed, is_memlint
from memlint.source.word_index import READS_EVENT

if TYPE_CHECKING:
    from memlint.worker.protocol import Dependencies

_CHILD_VARIABLES = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "PYTHONDONTWRITEBYTECODE"), "1"),
    "HF_DEACTIVATE_ASYNC_LOAD": "1",  # in the order of the threads that load weights an answer would be chance
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "CUDA_VISIBLE_DEVICES": "",
    "TOKENIZERS_PARALLELISM": "false",
    "WANDB_MODE": "disabled",
    "HYDRA_FULL_ERROR": "1",  # raise errors, and do not only exit
    "JSONARGPARSE_DEBUG": "true",  # likewise; later versions take no other word for it
    "MPLBACKEND": "Agg",
}
_PSEUDO = ("/dev/", "/proc/", "/sys/")
_OF_THE_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
"""Variables that change with every command, and that code which copies all variables reads, too."""
ALL = "*"
"""Stands for the names of all variables."""
_HARMLESS = (f"{os.sep}tqdm{os.sep}", f"{os.sep}networkx{os.sep}")
"""Packages that are nearly always imported, and that search all variables for their own."""
_COMPILED = (".pyc", ".pyo")
_OWN_CACHE = f"{os.sep}{cache.NAME}{os.sep}"
"""Entries are only used while the files that it was made of are the same."""
_IN_DOUBT_NS = 2 * 10**9
"""A file changed so shortly before may change again without another time: it gets no seal."""
_CODE = (".py", ".ipynb", ".yaml", ".yml")
"""Files that may say how a model is used: a new one in a folder that was searched may change an answer."""


def child_environment(environment: Mapping[str, str | None]) -> dict[str, str]:
    """The variables of a child; those in `environment` override the usual ones, None leaves one as it is here."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MEMLINT_")}
    ordered: dict[str, str | None] = {**_CHILD_VARIABLES, **environment}
    return inherited | {key: value for key, value in ordered.items() if value is not None}


class Reads(NamedTuple):
    """Paths that a process has read, paths that it made before, variables, and names and files of modules."""

    files: frozenset[str]
    made: frozenset[str]
    variables: frozenset[str]
    modules: frozenset[tuple[str, str]]
    imports: frozenset[str]
    """Outermost names of modules that it asked for, whether there are such or not."""


class Watch:
    """Records what this process reads, until it ends: no audit hook can be removed."""

    def __init__(self, exchange: Path) -> None:
        """Files in `exchange` do not count: those are messages from and to the parent."""
        self.counts_imports = False
        """True if modules that are asked for count: those of memlint and PyTorch, before user code runs, do not."""
        self.paused = False
        """True if nothing is recorded: what a server does after its imports is not what its copies read."""
        self._start = self._resumed = time.time_ns()
        self._before: frozenset[str] = frozenset()
        """Files that were read before it was resumed."""
        self._ignored = (str(exchange) + os.sep, *_PSEUDO)
        """Beginnings of paths that do not count."""
        self._read: set[str] = set()
        self._made: set[str] = set()
        """Files that the program wrote before it read them."""
        self._variables: set[str] = set()
        self._modules: set[tuple[str, str]] = set()
        """Names and files of modules of copies."""
        self._imports: set[str] = set()
        self._environment = dict(os.environ)
        sys.addaudithook(_passing_on(self._audit))
        self._watch_variables()

    def resume(self) -> None:
        """Record again: of a server that is kept, whose copy has not read yet what changed meanwhile."""
        self._before = frozenset(self._read).union(filter(None, map(_file_of, list(sys.modules.values()))))
        self._resumed = time.time_ns()
        self.paused = False

    def _watch_variables(self) -> None:
        iterate, variables = os._Environ.__iter__, self._variables
        num_harmless = 0

        def record(name: Any) -> None:
            if isinstance(name, str) and not num_harmless and not self.paused:
                variables.add(name)

        def recording_iterate(environment: os._Environ[Any]) -> Iterator[Any]:
            nonlocal num_harmless
            harmless = _is_harmless(sys._getframe(1))
            if not harmless and not self.paused:
                variables.add(ALL)
            num_harmless += harmless
            try:
                yield from iterate(environment)
            finally:
                num_harmless -= harmless

        hear_reads(record)
        os._Environ.__iter__ = recording_iterate  # type: ignore[method-assign]

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.paused or not isinstance(arguments[0], str):
            return
        if event == "import":
            if self.counts_imports:
                self._imports.add(arguments[0].partition(".")[0])
            return
        if event != "open":
            self._read.add(os.path.abspath(arguments[0]))  # noqa: PTH100
            return
        name, mode, flags = arguments
        path = os.path.abspath(name)  # noqa: PTH100 -- links are followed when it is read
        makes = any(c in mode for c in "wax") if isinstance(mode, str) else bool(flags & (os.O_CREAT | os.O_TRUNC))
        if makes and path not in self._read:
            self._made.add(path)
        elif path not in self._made:
            self._read.add(path)

    @property
    def reads(self) -> Reads:
        """The files read so far, for the process that this one is a copy of."""
        return Reads(
            files=frozenset(self._read),
            made=frozenset(self._made),
            variables=frozenset(self._variables),
            modules=frozenset(_modules()),
            imports=frozenset(self._imports),
        )

    def add(self, reads: Reads) -> None:
        """Count what a copy of this process has read."""
        self._read.update(reads.files)
        self._made.update(reads.made - self._read)
        self._variables.update(reads.variables)
        self._modules.update(reads.modules)
        self._imports.update(reads.imports)

    def dependencies(self) -> Dependencies | None:
        """Return what was read so far; None if that does not say enough to keep the answer.

        It is None if a file has changed meanwhile, so that the content that was read is unknown, or a plugin is broken.
        """
        if broken_plugins.reasons():
            return None
        from memlint.worker.protocol import Dependencies  # noqa: PLC0415  (this module is there before pydantic)

        modules = self._modules.union(_modules())
        files: dict[str, str | None] = {}
        seals: dict[str, str] = {}
        for path in sorted((self._read | {file for _name, file in modules}) - self._made):
            if f"{path}{os.sep}".startswith(self._ignored) or path.endswith(_COMPILED) or _OWN_CACHE in path:
                continue
            if is_installed(path) or is_memlint(path, rules=True):
                continue
            status = _status(path)
            start = self._start if path in self._before else self._resumed
            if status is not None and _changed_at(status) >= start and not stat.S_ISDIR(status.st_mode):
                return None
            files[path] = digest_of_path(path)
            if status is not None and time.time_ns() - _changed_at(status) > _IN_DOUBT_NS:
                seals[path] = _seal(status)
        packages: dict[str, str | None] = {
            file: mark for name, file in modules if "." not in name and is_installed(file) and (mark := mark_of(file))
        }
        packages |= dict.fromkeys(self._absent({name.partition(".")[0] for name, _file in modules}))
        variables = {
            name: digest_of_variable(name, self._environment) for name in sorted(self._variables - _OF_THE_SHELL)
        }
        return Dependencies(files=files, packages=packages, variables=variables, seals=seals)

    def _absent(self, there: Collection[str]) -> Iterator[str]:
        """Yield the places where modules that were asked for in vain would stand, and where nothing is."""
        names = self._imports.difference(there, sys.stdlib_module_names, sys.builtin_module_names)
        for folder, name in itertools.product(filter(os.path.isdir, sys.path), sorted(names)):
            places = os.path.join(folder, name), os.path.join(folder, f"{name}.py")  # noqa: PTH118 -- thousands
            yield from (each for each in places if _status(each) is None)


def _passing_on(take: Callable[[str, tuple[Any, ...]], None]) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook for the few events of reads: others come by tens of thousands a second."""
    events = frozenset(("open", "import", "os.scandir", READS_EVENT))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in events:
            take(event, arguments)

    return hook


def digest_of_path(path: str) -> str | None:
    """Digest what a file holds, or which files of code a folder does; None if there is neither."""
    status = _status(path)
    with suppress(OSError):
        if status is not None and stat.S_ISREG(status.st_mode):
            return hashlib.sha256(Path(path).read_bytes()).hexdigest()
        if status is not None and stat.S_ISDIR(status.st_mode):
            names = sorted(name for name in os.listdir(path) if name.endswith(_CODE))  # noqa: PTH208 -- few of many
            return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()
    return None


def seal_of(path: str) -> str | None:
    """Return what tells that a file, or the names in a folder, are the same as under the same seal; None if not there.

    Another one tells nothing: the content may be the same.
    """
    status = _status(path)
    return None if status is None else _seal(status)


def mark_of(path: str) -> str | None:
    """Tell versions of an installed file apart without reading it; None if it is not there."""
    status = _status(path)
    return None if status is None else f"{status.st_mtime_ns} {status.st_size}"


def digest_of_variable(name: str, environment: Mapping[str, str]) -> str | None:
    """Digest the value of an environment variable, which may be a secret; None if it is not set.

    That of `ALL` is the names of those that are set.
    """
    value = environment.get(name) if name != ALL else "\0".join(sorted({*environment} - _OF_THE_SHELL))
    return None if value is None else hashlib.sha256(f"{name}={value}".encode(errors="surrogateescape")).hexdigest()


def _is_harmless(frame: FrameType | None) -> bool:
    """Return True if one of the innermost callers is in a package of `_HARMLESS`."""
    for _caller in range(4):
        if frame is None:
            break
        if any(package in frame.f_code.co_filename for package in _HARMLESS):
            return True
        frame = frame.f_back
    return False


def _status(path: str) -> os.stat_result | None:
    with suppress(OSError):
        return os.stat(path)  # noqa: PTH116 -- thousands of them
    return None


def _seal(status: os.stat_result) -> str:
    return f"{_changed_at(status)} {status.st_size}"


def _changed_at(status: os.stat_result) -> int:
    """Nanoseconds at which a file was changed, as the system counts them: anybody may date a file as he likes."""
    return status.st_mtime_ns if sys.platform == "win32" else status.st_ctime_ns


def _modules() -> Iterator[tuple[str, str]]:
    """Yield names and files of the modules that are imported."""
    for name, module in list(sys.modules.items()):
        if file := _file_of(module):
            yield name, file


def _file_of(module: object) -> str | None:
    file = getattr(module, "__dict__", {}).get("__file__")
    return file if isinstance(file, str) else None
