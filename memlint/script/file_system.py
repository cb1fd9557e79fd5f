"""`open` and the functions of `os` over an Overlay: they have the originals' signatures, and take a script's paths."""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, cast

from memlint.script.overlay import Overlay, failure, real

Path = str | bytes | os.PathLike[Any] | int
Function = TypeVar("Function", bound=Callable[..., Any])

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ANONYMOUS = getattr(os, "O_TMPFILE", 0)
_FLAGS = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}
_real_open = builtins.open
_KEEPS_FOLDERS = re.compile(r"\.|(?:readme|placeholder)\b", re.IGNORECASE)
"""Names of files that a folder of data holds in a repository, which has the folder without its data."""


class _Thread(threading.local):
    inside = False
    """True if the system's own functions are needed: the overlay itself is at work."""


_thread = _Thread()


def _guarded(function: Function) -> Function:
    """Make inner calls use the system's functions, and errors show the script's paths."""
    original = getattr(real, function.__name__, None)

    @functools.wraps(function)
    def guarded(self: FileSystem, *args: Any, **kwargs: Any) -> Any:
        if _thread.inside:
            return function(self, *args, **kwargs) if original is None else original(*args, **kwargs)
        _thread.inside = True
        try:
            return function(self, *args, **kwargs)
        except OSError as error:
            for name in ("filename", "filename2"):
                path = getattr(error, name)
                if isinstance(path, str):
                    setattr(error, name, self.overlay.outside(path))
            raise
        finally:
            _thread.inside = False

    return cast("Function", guarded)


class Missing(Protocol):
    """The interface that is told about files and folders that are not there."""

    def make(self, place: str, error: OSError | None) -> bool:
        """Return True if a file was made at `place`, which is opened for reading."""

    def fill(self, place: str, error: OSError | None) -> bool:
        """Return True if files were made in the folder `place`, which is listed: it has none, or is not there."""

    def note(self, place: str) -> bool:
        """`place` was looked for; return True if it was made, as the script does not go on without it."""


class FileSystem:
    """The functions, as methods of their names."""

    def __init__(self, overlay: Overlay) -> None:
        """All methods see and change `overlay`."""
        self.overlay = overlay
        self.missing: Missing | None = None
        """The interface that is told about files that are not there, and may make them."""

    # --- paths

    def place(self, path: Path, dir_fd: int | None = None, *, follow: bool = True) -> str:
        """Return the place of `path`, which may be a file descriptor."""
        if isinstance(path, int):
            return self.overlay.outside(os.readlink(f"/proc/self/fd/{path}"))
        if not os.fspath(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        folder = None if dir_fd is None else self.place(dir_fd)
        known = self.overlay.known(os.fsdecode(path), folder)
        return self.overlay.followed(known) if follow else self.overlay.unfollowed(known)

    def _read(self, path: Path, dir_fd: int | None = None, *, follow: bool = True) -> str | int:
        return path if isinstance(path, int) else self.overlay.physical(self.place(path, dir_fd, follow=follow))

    def _is_untouched(self, path: Path | None) -> bool:
        return isinstance(path, int) or self.overlay.is_untouched

    # --- reading

    @_guarded
    def stat(self, path: Path, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        """`os.stat`."""
        try:
            if self._is_untouched(path):
                return cast("os.stat_result", real.stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks))
            physical = self._read(path, dir_fd, follow=follow_symlinks)
            return cast("os.stat_result", real.stat(physical, follow_symlinks=follow_symlinks))
        except FileNotFoundError:
            if self.missing is not None and dir_fd is None and self.missing.note(self.place(path)):
                return cast("os.stat_result", real.stat(self._read(path)))
            raise

    @_guarded
    def lstat(self, path: Path, *, dir_fd: int | None = None) -> os.stat_result:
        """`os.lstat`."""
        if self._is_untouched(path):
            return cast("os.stat_result", real.lstat(path, dir_fd=dir_fd))
        return cast("os.stat_result", real.lstat(self._read(path, dir_fd, follow=False)))

    @_guarded
    def access(self, path: Path, mode: int, *, dir_fd: int | None = None, **options: bool) -> bool:
        """`os.access`."""
        if self._is_untouched(path) and not mode & os.W_OK:
            return bool(real.access(path, mode, dir_fd=dir_fd, **options))
        follow = options.get("follow_symlinks", True)
        physical = self._read(path, dir_fd, follow=follow)
        is_machines = physical == self.place(path, dir_fd, follow=follow) and not self.overlay.is_free(str(physical))
        if mode & os.W_OK and is_machines and hasattr(os, "geteuid"):
            is_there = bool(real.access(physical, mode & ~os.W_OK, **options))
            return is_there and _lets_write(real.stat(physical, follow_symlinks=follow))
        return bool(real.access(physical, mode, **options))

    @_guarded
    def readlink(self, path: Path, *, dir_fd: int | None = None) -> Any:
        """`os.readlink`."""
        if self._is_untouched(path):
            return real.readlink(path, dir_fd=dir_fd)
        target = real.readlink(self._read(path, dir_fd, follow=False))
        return os.fsencode(target) if isinstance(path, bytes) else target

    @_guarded
    def statvfs(self, path: Path) -> os.statvfs_result:
        """`os.statvfs`."""
        return cast("os.statvfs_result", real.statvfs(self._read(path)))

    @_guarded
    def getxattr(self, path: Path, attribute: Any, *, follow_symlinks: bool = True) -> bytes:
        """`os.getxattr`."""
        physical = self._read(path, follow=follow_symlinks)
        return cast("bytes", real.getxattr(physical, attribute, follow_symlinks=follow_symlinks))

    @_guarded
    def listxattr(self, path: Path | None = None, *, follow_symlinks: bool = True) -> list[str]:
        """`os.listxattr`."""
        physical = self._read("." if path is None else path, follow=follow_symlinks)
        return cast("list[str]", real.listxattr(physical, follow_symlinks=follow_symlinks))

    @_guarded
    def listdir(self, path: Path | None = None) -> list[Any]:
        """`os.listdir`."""
        if isinstance(path, int) or (self.overlay.is_untouched and self.missing is None):
            return cast("list[Any]", real.listdir(path))
        return self.listdir_of("." if path is None else path)

    @_guarded
    def scandir(self, path: Path | None = None) -> Any:
        """`os.scandir`."""
        if isinstance(path, int):
            return real.scandir(path)
        folder = "." if path is None else os.fspath(cast("str", path))
        physical = os.path.abspath(os.fsdecode(folder))
        is_of_script = self.overlay.outside(physical) == physical
        if self.overlay.is_untouched and (self.missing is None or not is_of_script or _has_data(path)):
            return real.scandir(path)
        return _Entries(Entry(self, name, os.path.join(folder, name)) for name in self.listdir_of(folder))

    def listdir_of(self, path: Path) -> list[Any]:
        """Return the names in a folder, of the type of its path."""
        place = self.place(path)
        try:
            names = self.overlay.names(place)
        except FileNotFoundError as raised:
            if self.missing is None or not self.missing.fill(place, raised):
                raise
            names = self.overlay.names(place)
        else:
            is_empty = all(map(_KEEPS_FOLDERS.match, names))
            if is_empty and self.missing is not None and self.missing.fill(place, None):
                names = self.overlay.names(place)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    @_guarded
    def chdir(self, path: Path) -> None:
        """`os.chdir`, also into a folder that the script created."""
        real.chdir(path if isinstance(path, int) else self._folder(path))

    @_guarded
    def getcwd(self) -> str:
        """`os.getcwd`."""
        return self.overlay.outside(real.getcwd())

    @_guarded
    def getcwdb(self) -> bytes:
        """`os.getcwdb`."""
        return os.fsencode(self.overlay.outside(real.getcwd()))

    # --- opening

    @_guarded
    def open(self, path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """`os.open`."""
        if not flags & _WRITING and self._is_untouched(path):
            return cast("int", real.open(path, flags, mode, dir_fd=dir_fd))
        if _ANONYMOUS and flags & _ANONYMOUS == _ANONYMOUS:
            return cast("int", real.open(self.overlay.temporary, flags, mode))
        return cast("int", real.open(self._opened(path, flags, dir_fd), flags, mode))

    def open_file(
        self,
        file: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[Any, int], int] | None = None,
    ) -> Any:
        """`open`. With an `opener`, that function opens the file."""
        text = buffering, encoding, errors, newline, closefd
        flags = _flags(mode)
        if _thread.inside or isinstance(file, int) or (not flags and self.overlay.is_untouched):
            try:
                return _real_open(file, mode, *text, opener)
            except FileNotFoundError:
                if _thread.inside or flags or opener is not None or self.missing is None:
                    raise
        opened: Any
        if opener is None:
            opened = self._open_path(file, flags, mode, *text)
        else:
            opened = _real_open(opener(file, flags | getattr(os, "O_CLOEXEC", 0)), mode, *text)
        raw = getattr(opened, "buffer", opened)
        getattr(raw, "raw", raw).name = file
        return opened

    @_guarded
    def _open_path(self, file: Path, flags: int, mode: str, *text: Any) -> Any:
        self._fill_blank(file)
        try:
            return _real_open(self._opened(file, flags), mode, *text)
        except FileNotFoundError as error:
            if flags & os.O_CREAT or not self._makes(file, error):
                raise
            return _real_open(self._opened(file, flags), mode, *text)

    def _opened(self, path: Path, flags: int, dir_fd: int | None = None) -> str:
        place = self.place(path, dir_fd, follow=not flags & os.O_EXCL)
        if not flags & _WRITING or self.overlay.is_free(place):
            return self.overlay.physical(place)
        return self.overlay.written(place, flags)

    def writing(self, path: Path) -> str:
        """Return where a writer outside Python must write the file `path` anew."""
        return str(self._within(lambda: self._opened(path, _FLAGS["w"])))

    def updating(self, path: Path) -> str:
        """Return where a writer outside Python must change or create the file `path`."""
        return str(self._within(lambda: self._opened(path, os.O_RDWR | os.O_CREAT)))

    def reading(self, path: Path) -> str:
        """Return where a reader outside Python finds the file `path`."""

        def place() -> str | int:
            self._fill_blank(path)
            found = self._read(path)
            return self._read(path) if not os.path.lexists(found) and self._makes(path, None) else found

        return str(self._within(place))

    def _fill_blank(self, path: Path) -> None:
        if self.overlay.blank and (place := self.place(path)) in self.overlay.blank:
            assert self.missing is not None, "who has made it"
            self.missing.make(place, None)

    def _makes(self, path: Path, error: OSError | None) -> bool:
        return self.missing is not None and self.missing.make(self.place(path), error)

    def folder(self, path: Path) -> str:
        """Return where a process must start that was given the folder `path`."""
        return str(self._within(lambda: self._folder(path)))

    def _folder(self, path: Path) -> str:
        """Return the machine's folder if the script sees one: code outside Python sees only one of the two."""
        place = self.place(path)
        return place if os.path.isdir(place) and not self.overlay.is_removed(place) else self.overlay.physical(place)

    def is_machines(self, path: Path) -> bool:
        """Return True if the script sees a file at `path` that it did not write: the machine's, or a fake one."""

        def machines() -> bool:
            place = self.place(path)
            physical = self.overlay.physical(place)
            is_others = physical in (place, self.overlay.fake.get(place))
            return is_others and not self.overlay.is_free(place) and os.path.lexists(physical)

        return bool(self._within(machines))

    def within(self, function: Callable[[Overlay], Any]) -> Any:
        """Make `function` see the overlay, while its inner calls use the system's own functions."""
        return self._within(lambda: function(self.overlay))

    @_guarded
    def _within(self, function: Callable[[], Any]) -> Any:
        return function()

    # --- changing

    @_guarded
    def mkdir(self, path: Path, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """`os.mkdir`."""
        self._make(real.mkdir, path, mode, dir_fd=dir_fd)

    @_guarded
    def mkfifo(self, path: Path, mode: int = 0o666, *, dir_fd: int | None = None) -> None:
        """`os.mkfifo`."""
        self._make(real.mkfifo, path, mode, dir_fd=dir_fd)

    @_guarded
    def mknod(self, path: Path, mode: int = 0o600, device: int = 0, *, dir_fd: int | None = None) -> None:
        """`os.mknod`."""
        self._make(real.mknod, path, mode, device, dir_fd=dir_fd)

    def _make(self, make: Callable[..., None], path: Path, *args: Any, dir_fd: int | None) -> None:
        place = self.place(path, dir_fd, follow=False)
        make(place if self.overlay.is_free(place) else self.overlay.made(place), *args)

    @_guarded
    def remove(self, path: Path, *, dir_fd: int | None = None) -> None:
        """`os.remove`."""
        place = self.place(path, dir_fd, follow=False)
        if self.overlay.is_free(place):
            real.unlink(place)
        else:
            self.overlay.unlinked(place)

    unlink = remove

    @_guarded
    def rmdir(self, path: Path, *, dir_fd: int | None = None) -> None:
        """`os.rmdir`."""
        place = self.place(path, dir_fd, follow=False)
        if self.overlay.is_free(place):
            real.rmdir(place)
        else:
            self.overlay.unlinked(place, is_folder=True)

    @_guarded
    def replace(self, src: Path, dst: Path, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        """`os.replace`."""
        source, target = (self.place(p, fd, follow=False) for p, fd in ((src, src_dir_fd), (dst, dst_dir_fd)))
        if self.overlay.is_free(source) and self.overlay.is_free(target):
            real.replace(source, target)
        elif self.overlay.is_free(source):
            real.replace(source, self.overlay.written(target, _FLAGS["w"]))
        elif self.overlay.is_free(target):
            self.overlay.copy_up(source)
            real.replace(self.overlay.upper(source), target)
            self.overlay.hide(source)
        else:
            self.overlay.moved(source, target)

    rename = replace

    @_guarded
    def link(
        self,
        src: Path,
        dst: Path,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """`os.link`."""
        source = self.place(src, src_dir_fd, follow=follow_symlinks)
        self.overlay.linked(source, self.place(dst, dst_dir_fd, follow=False))

    @_guarded
    def symlink(self, src: Any, dst: Path, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
        """`os.symlink`."""
        place = self.place(dst, dir_fd, follow=False)
        made = place if self.overlay.is_free(place) else self.overlay.made(place)
        real.symlink(self.overlay.outside(os.fsdecode(src)), made, target_is_directory)

    @_guarded
    def truncate(self, path: Path, length: int) -> None:
        """`os.truncate`."""
        real.truncate(path if isinstance(path, int) else self._opened(path, os.O_RDWR), length)

    @_guarded
    def chmod(self, path: Path, mode: int, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> None:
        """`os.chmod`."""
        self._describe(real.chmod, path, mode, dir_fd=dir_fd, follow=follow_symlinks)

    @_guarded
    def fchmod(self, fd: int, mode: int) -> None:
        """`os.fchmod`."""
        self._describe(real.chmod, fd, mode)

    @_guarded
    def chown(self, path: Path, uid: int, gid: int, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> None:
        """`os.chown`."""
        self._describe(real.chown, path, uid, gid, dir_fd=dir_fd, follow=follow_symlinks)

    @_guarded
    def utime(
        self, path: Path, times: Any = None, *, dir_fd: int | None = None, follow_symlinks: bool = True, **ns: Any
    ) -> None:
        """`os.utime`."""
        arguments = () if times is None else (times,)
        self._describe(real.utime, path, *arguments, dir_fd=dir_fd, follow=follow_symlinks, **ns)

    @_guarded
    def setxattr(self, path: Path, attribute: Any, value: Any, flags: int = 0, *, follow_symlinks: bool = True) -> None:
        """`os.setxattr`."""
        self._describe(real.setxattr, path, attribute, value, flags, follow=follow_symlinks)

    @_guarded
    def removexattr(self, path: Path, attribute: Any, *, follow_symlinks: bool = True) -> None:
        """`os.removexattr`."""
        self._describe(real.removexattr, path, attribute, follow=follow_symlinks)

    def _describe(
        self,
        change: Callable[..., None],
        path: Path,
        *args: Any,
        dir_fd: int | None = None,
        follow: bool = True,
        **kwargs: Any,
    ) -> None:
        """Change mode, owner, times or attributes of files that the script wrote; the machine's files stay as is."""
        place = self.place(path, dir_fd, follow=follow)
        if self.overlay.status(place) is None:
            raise failure(errno.ENOENT, place)
        physical = self.overlay.physical(place)
        if physical != place or self.overlay.is_free(place):
            change(physical, *args, **kwargs)

    def functions(self) -> Iterator[tuple[Any, str, Callable[..., Any], Callable[..., Any]]]:
        """Yield each replaced function: its owner, its name, the system's function, and its replacement."""
        for name in vars(type(self)):
            if name in vars(os) and callable(original := getattr(real, name)):
                yield os, name, original, getattr(self, name)
        for owner in (builtins, io):
            yield owner, "open", _real_open, self.open_file


def _has_data(path: Path | None) -> bool:
    """Return True if a folder of the machine has more than what keeps a folder in git."""
    try:
        with real.scandir(path) as entries:
            return any(_KEEPS_FOLDERS.match(os.fsdecode(entry.name)) is None for entry in entries)
    except OSError:
        return False


def _lets_write(status: os.stat_result) -> bool:
    """Return True if this user could write to a file of the machine without memlint's restrictions."""
    if os.geteuid() == 0:
        return True
    if status.st_uid == os.geteuid():
        return bool(status.st_mode & stat.S_IWUSR)
    of_group = status.st_gid in (os.getegid(), *os.getgroups())
    return bool(status.st_mode & (stat.S_IWGRP if of_group else stat.S_IWOTH))


def _flags(mode: str) -> int:
    """Return the flags of `os.open` for a mode of `open`; 0 if it only reads."""
    kind = next((c for c in mode if c in _FLAGS), "r")
    return _FLAGS[kind] | (os.O_RDWR if "+" in mode else 0 if kind == "r" else os.O_WRONLY)


class _Entries:
    """The result of `os.scandir`: an iterator that can be closed."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = iter(list(entries))

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """`ScandirIterator.close`."""
        self._entries = iter(())


class Entry(os.PathLike[Any]):
    """An `os.DirEntry`."""

    def __init__(self, files: FileSystem, name: Any, path: Any) -> None:
        """Represents the file `name` at `path`."""
        self._files, self.name, self.path = files, name, path

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """`DirEntry.stat`."""
        return self._files.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        """`DirEntry.inode`."""
        return self.stat(follow_symlinks=False).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """`DirEntry.is_dir`."""
        return stat.S_ISDIR(self._mode(follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """`DirEntry.is_file`."""
        return stat.S_ISREG(self._mode(follow_symlinks))

    def is_symlink(self) -> bool:
        """`DirEntry.is_symlink`."""
        return stat.S_ISLNK(self._mode(follow=False))

    def is_junction(self) -> bool:
        """`DirEntry.is_junction`."""
        return False

    def _mode(self, follow: bool) -> int:
        try:
            return self.stat(follow_symlinks=follow).st_mode
        except FileNotFoundError:
            return 0
