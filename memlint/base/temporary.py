"""Folders for files that processes exchange, and removal of folders."""

import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memlint.base.errors import WorkerError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX = "memlint-exchange-"
_DAY = 24 * 3600.0
NO_SPACE = "Free space there, or name another place: TMPDIR=/a/larger/disk memlint ..."
SCRATCH_TEMPORARY = ".temporary"
"""Folder inside a script's scratch folder that serves as the system's temporary folder."""
_SET_FLAGS = 0x40086602  # FS_IOC_SETFLAGS of linux/fs.h on 64 bits: with none, nothing is immutable or append-only
_AS_A_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_MOST_LOOKED_AT = 100_000


@contextmanager
def exchange_folder(place: Path | None = None) -> Iterator[str]:
    """Provide a folder in `place` that is removed after the block.

    Without a place, the folder is in the system's temporary folder; folders there that killed processes left a day ago
    or earlier are removed first. Raises WorkerError if nothing can be written.
    """
    with suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()) if place is None else ():
            with suppress(OSError):
                if entry.name.startswith(_PREFIX) and _is_left(entry):
                    remove(Path(entry.path))
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    except OSError as error:
        raise WorkerError(f"no temporary file can be written: {error.strerror}", NO_SPACE) from error
    try:
        yield str(folder)
    finally:
        remove(folder)
        if os.path.lexists(folder):
            logging.getLogger(__name__).warning("%s cannot be removed: something in it is held", folder)


def remove(folder: Path) -> None:
    """Remove as much of `folder` as possible, however deep it is and whatever permissions a script has set.

    Nested folders are first moved to the top of it: then no path is too long, and few are open at a time.
    """
    if os.rename not in os.supports_dir_fd:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):
        _allow(None, str(folder), is_folder=True)
        root = os.open(folder, os.O_RDONLY | _AS_A_FOLDER)
        try:
            stuck: set[str] = set()
            number = 0
            while names := _names(root) - stuck:
                for name in names:
                    number = _flatten(root, name, number)
                stuck.update(names & _names(root))
        finally:
            os.close(root)
        folder.rmdir()


def _flatten(root: int, name: str, number: int) -> int:
    """Remove an entry of `root` and move its folders to `root`, numbered from `number` on; return the last number."""
    with suppress(OSError):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=root).st_mode):
            _unlink(root, name)
            return number
        _allow(root, name, is_folder=True)
        folder = os.open(name, os.O_RDONLY | _AS_A_FOLDER, dir_fd=root)
        try:
            for inner in _names(folder):
                with suppress(OSError):
                    if not stat.S_ISDIR(os.lstat(inner, dir_fd=folder).st_mode):
                        _unlink(folder, inner)
                        continue
                    _allow(folder, inner, is_folder=True)
                    while True:
                        number += 1
                        if not _exists(root, f"{_PREFIX}{number}"):
                            break
                    os.rename(inner, f"{_PREFIX}{number}", src_dir_fd=folder, dst_dir_fd=root)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=root)
    return number


def _names(folder: int) -> set[str]:
    return set(os.listdir(folder))


def _unlink(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except PermissionError:
        _allow(folder, name, is_folder=False)
        os.unlink(name, dir_fd=folder)


def _exists(folder: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def _allow(folder: int | None, name: str, *, is_folder: bool) -> None:
    """Give the owner of a folder access to it, and clear the flags that forbid changes from it or a regular file."""
    status = os.lstat(name, dir_fd=folder)
    with suppress(OSError):
        if is_folder and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(name, stat.S_IRWXU, dir_fd=folder)
    with suppress(OSError):
        if fcntl is not None and (is_folder or stat.S_ISREG(status.st_mode)):
            opened = os.open(name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0), dir_fd=folder)
            try:
                fcntl.ioctl(opened, _SET_FLAGS, bytes(8))
            finally:
                os.close(opened)


def _is_left(entry: os.DirEntry[str]) -> bool:
    """Return True if it is a folder of this user in which nothing has happened for a day."""
    about = entry.stat(follow_symlinks=False)
    is_own = not hasattr(os, "getuid") or about.st_uid == os.getuid()
    if not is_own or not entry.is_dir(follow_symlinks=False):
        return False
    newest, folders, num = about.st_mtime, [entry.path], 0
    while folders and num < _MOST_LOOKED_AT:
        with suppress(OSError), os.scandir(folders.pop()) as entries:  # a path may be too long: then it is old
            for each in entries:
                num += 1
                newest = max(newest, each.stat(follow_symlinks=False).st_mtime)
                if each.is_dir(follow_symlinks=False):
                    folders.append(each.path)
    return newest < time.time() - _DAY
