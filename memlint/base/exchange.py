"""The files through which a process and its child speak, each opened before the child runs a line of user code.

From then on names mean nothing: user code may remove such a file, or put a pipe, a folder or a link in its place, and
what is read is still what was opened, which nobody waits for. What it writes into the file itself is read to a limit.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MOST_NBYTES = 2**29
"""The largest message: many times what a Report with its timeline takes."""
_RENEWED_NBYTES = 2**26
"""A file of several messages begins anew beyond that: the last one counts."""
_FIRST_HANDLE = 512
"""Programs that close what is open below a small number, as daemons do, leave those from here on."""
_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_BY_NAME = _FLAGS | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_open, _close, _fstat, _dup = os.open, os.close, os.fstat, os.dup
_lseek, _read, _write, _truncate = os.lseek, os.read, os.write, os.ftruncate
_pread: Callable[[int, int, int], bytes] | None = getattr(os, "pread", None)
"""Not what a script makes of them."""


class Exchange:
    """Open files by name. Handles that user code has closed, or put another file on, are opened once more if possible.

    A message is a line: JSON has no line break of its own.
    """

    def __init__(self, folder: Path, names: Iterable[str], *, new: bool) -> None:
        """Open the files `names` of `folder`, as `new` ones or as those that are there. Raises OSError."""
        self.folder = folder
        flags = _BY_NAME | (os.O_CREAT | os.O_EXCL if new else 0)
        self._handles: dict[str, int] = {}
        for name in names:
            self._handles[name] = _far(_open(folder / name, flags, 0o600), keep=new)
        self._inodes = {name: _identity(handle) for name, handle in self._handles.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for handle in self._handles.values():
            _close(handle)

    def duplicate(self, name: str) -> int:
        """Give another handle of the same file, which the caller closes."""
        return _far(_dup(self._handle(name)), keep=False)

    def nbytes(self, name: str) -> int:
        """Give the size of a file, whatever stands under its name by now."""
        return _fstat(self._handle(name)).st_size

    def free_nbytes(self) -> int:
        """Give how much may be written where the files are."""
        handle = next(iter(self._handles.values()))
        if not hasattr(os, "fstatvfs"):
            return shutil.disk_usage(self.folder).free
        system = os.fstatvfs(handle)
        return system.f_bavail * system.f_frsize

    def beginning(self, name: str, most: int) -> bytes:
        """Read not more than the first `most` bytes."""
        return self.since(name, 0, most)

    def since(self, name: str, offset: int, most: int | None = None) -> bytes:
        """Read what stands behind the first `offset` bytes, or `most` of it. Raises ValueError for far too much."""
        nbytes = self.nbytes(name) - offset
        if most is None and nbytes > MOST_NBYTES:
            raise ValueError(f"it has {nbytes:,} bytes")
        handle = self._handle(name)
        left = nbytes if most is None else min(most, nbytes)
        parts: list[bytes] = []
        while left > 0 and (part := _read_at(handle, min(left, 2**24), offset)):
            parts.append(part)
            offset += len(part)
            left -= len(part)
        return b"".join(parts)

    def append(self, name: str, content: bytes) -> int:
        """Add bytes that are no message; give where they begin. Raises OSError."""
        handle = self._handle(name)
        offset = _fstat(handle).st_size
        left = memoryview(content)
        while left:
            left = left[_write(handle, left) :]
        return offset

    def is_said(self, name: str) -> bool:
        """Say whether there is a whole message, and nothing half behind it."""
        handle = self._handle(name)
        nbytes = _fstat(handle).st_size
        if not nbytes:
            return False
        return _read_at(handle, 1, nbytes - 1) == b"\n"

    def last(self, name: str) -> bytes | None:
        """Read the last whole message, None if there is none. Raises ValueError if the file is far too large."""
        nbytes = self.nbytes(name)
        if nbytes > MOST_NBYTES:
            raise ValueError(f"it has {nbytes:,} bytes")
        whole, _, _ = self.since(name, 0).rpartition(b"\n")
        return whole.rpartition(b"\n")[2] or None

    def say(self, name: str, message: bytes) -> None:
        """Add a message; nothing happens where user code has closed the file and removed it."""
        with suppress(OSError):
            handle = self._handle(name)
            if _fstat(handle).st_size > _RENEWED_NBYTES:
                _truncate(handle, 0)
            before = b"" if self.is_said(name) or not _fstat(handle).st_size else b"\n"  # half a message of a copy
            left = memoryview(before + message + b"\n")
            while left:
                left = left[_write(handle, left) :]

    def _handle(self, name: str) -> int:
        """The file that was opened at first. Raises OSError where it cannot be had any more."""
        handle = self._handles[name]
        with suppress(OSError):
            if _identity(handle) == self._inodes[name]:
                return handle
        handle = _open(self.folder / name, _BY_NAME)
        if _identity(handle) != self._inodes[name]:
            _close(handle)
            raise FileNotFoundError(f"{name} was replaced")
        self._handles[name] = handle
        return handle


def _read_at(handle: int, nbytes: int, position: int) -> bytes:
    """Read from a place in a file. A child that writes there may have the same offset, which this leaves alone."""
    if _pread is not None:
        return _pread(handle, nbytes, position)
    _lseek(handle, position, os.SEEK_SET)  # Windows
    return _read(handle, nbytes)


def _identity(handle: int) -> tuple[int, int]:
    status = _fstat(handle)
    return status.st_dev, status.st_ino


def _far(handle: int, *, keep: bool) -> int:
    """`handle`, or one with a high number in its place, as far as the system allows that."""
    if keep or fcntl is None:
        return handle
    with suppress(OSError, ValueError):
        far = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _FIRST_HANDLE)
        _close(handle)
        return far
    return handle
