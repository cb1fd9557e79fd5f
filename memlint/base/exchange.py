"""Files for messages between a process and its child, each opened before the child runs a line of user code.

After that the file's name no longer matters: user code may remove the file, or put a pipe, a folder or a link in its
place, and reads still go to the file that was opened, and never block. If user code writes into the file itself, at
most a fixed number of bytes is read.
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
"""Largest message in bytes: many times the size of a Report with its timeline."""
_RENEWED_NBYTES = 2**26
"""A file of several messages starts again from the beginning once it is larger than this: only the last message counts.
"""
_FIRST_HANDLE = 512
"""Lowest number for file handles: programs that close low-numbered handles, as daemons do, leave these open."""
_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_BY_NAME = _FLAGS | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_open, _close, _fstat, _dup = os.open, os.close, os.fstat, os.dup
_lseek, _read, _write, _truncate = os.lseek, os.read, os.write, os.ftruncate
_pread: Callable[[int, int, int], bytes] | None = getattr(os, "pread", None)
"""The original `os.pread`; scripts may replace it."""


class Exchange:
    """Files opened by name. Handles that user code closed, or pointed at another file, are opened again if possible.

    A message is one line: JSON contains no line breaks.
    """

    def __init__(self, folder: Path, names: Iterable[str], *, new: bool) -> None:
        """Open the files `names` of `folder`, creating them if `new`. Raises OSError."""
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
        """Return another handle of the same file, which the caller closes."""
        return _far(_dup(self._handle(name)), keep=False)

    def nbytes(self, name: str) -> int:
        """Return the size of the opened file, even if another file has its name by now."""
        return _fstat(self._handle(name)).st_size

    def free_nbytes(self) -> int:
        """Return the free space in bytes where the files are."""
        handle = next(iter(self._handles.values()))
        if not hasattr(os, "fstatvfs"):
            return shutil.disk_usage(self.folder).free
        system = os.fstatvfs(handle)
        return system.f_bavail * system.f_frsize

    def beginning(self, name: str, most: int) -> bytes:
        """Read at most the first `most` bytes."""
        return self.since(name, 0, most)

    def since(self, name: str, offset: int, most: int | None = None) -> bytes:
        """Read the bytes from `offset` on, or `most` of them. Raises ValueError if there are far too many."""
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
        """Append bytes that are no message; return the offset of the first. Raises OSError."""
        handle = self._handle(name)
        offset = _fstat(handle).st_size
        left = memoryview(content)
        while left:
            left = left[_write(handle, left) :]
        return offset

    def is_said(self, name: str) -> bool:
        """Return True if the file holds a complete message with no partial one after it."""
        handle = self._handle(name)
        nbytes = _fstat(handle).st_size
        if not nbytes:
            return False
        return _read_at(handle, 1, nbytes - 1) == b"\n"

    def last(self, name: str) -> bytes | None:
        """Read the last complete message, None if there is none. Raises ValueError if the file is far too large."""
        nbytes = self.nbytes(name)
        if nbytes > MOST_NBYTES:
            raise ValueError(f"it has {nbytes:,} bytes")
        whole, _, _ = self.since(name, 0).rpartition(b"\n")
        return whole.rpartition(b"\n")[2] or None

    def say(self, name: str, message: bytes) -> None:
        """Append a message; does nothing if user code has closed the file and removed it."""
        with suppress(OSError):
            handle = self._handle(name)
            if _fstat(handle).st_size > _RENEWED_NBYTES:
                _truncate(handle, 0)
            before = b"" if self.is_said(name) or not _fstat(handle).st_size else b"\n"  # a partial message
            rest = memoryview(before + message + b"\n")
            while rest:
                rest = rest[_write(handle, rest) :]

    def _handle(self, name: str) -> int:
        """Return a handle of the file that was opened at first. Raises OSError if it can no longer be opened."""
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
    """Read from an offset in a file without moving the file's own offset, which a writing child may share."""
    if _pread is not None:
        return _pread(handle, nbytes, position)
    _lseek(handle, position, os.SEEK_SET)  # Windows
    return _read(handle, nbytes)


def _identity(handle: int) -> tuple[int, int]:
    status = _fstat(handle)
    return status.st_dev, status.st_ino


def _far(handle: int, *, keep: bool) -> int:
    """Return `handle`, or a copy of it with a high number, as far as the system allows that."""
    if keep or fcntl is None:
        return handle
    with suppress(OSError, ValueError):
        far = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _FIRST_HANDLE)
        _close(handle)
        return far
    return handle
