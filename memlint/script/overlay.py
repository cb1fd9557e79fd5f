"""A file system over that of the machine: a script's writes and removals change only a scratch folder.

A file that the script writes is stored at `scratch/<absolute path>`. It reads the file there, or else the machine's
file unless it has removed that. Paths are those that the script sees, absolute and with links followed up to their
folder; `physical` returns where the bytes of a path are.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from memlint.base.temporary import SCRATCH_TEMPORARY
from memlint.script.pointers import is_pointer
from memlint.workloads.notes import LACKS_FOLDER, script_frame

if TYPE_CHECKING:
    from memlint.memory.records import Frame

_MAX_LINKS = 40  # as Linux: path_resolution(7)


real: Any = SimpleNamespace(**{name: function for name, function in vars(os).items() if callable(function)})
"""The original functions of `os`, while others replace them during a script."""


def failure(number: int, path: str) -> OSError:
    """Return the system's error with this number for `path`."""
    return OSError(number, os.strerror(number), path)


class Overlay:
    """The file system that a script sees, and the place where its changes are kept."""

    def __init__(self, scratch: Path, free: tuple[Path, ...]) -> None:
        """`scratch` is an existing folder; files in one of the folders `free` are written in place."""
        self.scratch = os.path.realpath(scratch)
        self.temporary = os.path.join(self.scratch, SCRATCH_TEMPORARY)
        self.free = (*tuple(os.path.realpath(folder) + os.sep for folder in free), self.temporary + os.sep)
        self.lines: dict[str, Frame | None] = {}
        """The line of the script that first changed each path."""
        self.removed: set[str] = set()
        """Paths at which the machine's files are hidden."""
        self.fake: dict[str, str] = {}
        """Paths at which the script sees files and folders that memlint made, and where these are stored."""
        self.blank: set[str] = set()
        """Those of them that are still empty: whoever opens one decides what it holds."""
        self.makes_folders = False
        """True if a folder that is not there is made where the script writes in it."""
        self._folders: dict[str, str] = {}
        self._settle(os.path.realpath(scratch))

    def _settle(self, scratch: str) -> None:
        self.scratch, self.temporary = scratch, os.path.join(scratch, SCRATCH_TEMPORARY)
        Path(self.temporary).mkdir(parents=True, exist_ok=True)

    def move(self, scratch: str) -> None:
        """Continue in a copy of the scratch folder at `scratch`, or in a new folder if nothing was changed."""
        folder = self.outside(real.getcwd())
        if self.lines:
            shutil.copytree(self.scratch, scratch, symlinks=True, ignore=self._of_others)
        self._settle(scratch)
        if not os.path.isdir(folder):
            real.chdir(self.upper(folder))

    def _of_others(self, folder: str, names: list[str]) -> list[str]:
        """Return the files in a scratch folder that another process has made, which has continued."""
        places = ((name, os.path.join(folder, name)) for name in names)
        return [name for name, place in places if os.path.isfile(place) and self.outside(place) not in self.lines]

    # --- paths

    def known(self, path: str, folder: str | None = None) -> str:
        """Return `path`, relative to `folder` or the current one, as the script sees it: absolute, without dots."""
        path = os.path.normpath(os.path.join(self.outside(real.getcwd()) if folder is None else folder, path))
        return self.outside(path[1:] if path.startswith("//") else path)

    def outside(self, path: str) -> str:
        """Return the script's name for a path, which may be one in the scratch folder."""
        if path == self.scratch or (path.startswith(self.scratch + os.sep) and not self.is_free(path)):
            return path[len(self.scratch) :] or os.sep
        return path

    def is_free(self, path: str) -> bool:
        """Return True if `path` may be written in place."""
        path += os.sep
        if path.startswith(self.scratch + os.sep):
            return path.startswith(self.temporary + os.sep)
        return path.startswith(self.free)

    def followed(self, path: str, num_links: int = 0) -> str:
        """Return a known path with all links followed, the last too. Raises OSError for links in a circle."""
        folder, name = os.path.split(path)
        if not name or self.is_free(path):
            return path
        place = os.path.join(self._folder(folder, num_links), name)
        if self.is_free(place):
            return place
        try:
            target = real.readlink(self.physical(place))
        except OSError:
            return place
        if num_links == _MAX_LINKS:
            raise failure(errno.ELOOP, path)
        return self.followed(os.path.normpath(os.path.join(os.path.dirname(place), target)), num_links + 1)

    def unfollowed(self, path: str) -> str:
        """Return a known path with the links of its folder followed, but not its own."""
        folder, name = os.path.split(path)
        return os.path.join(self._folder(folder), name)

    def _folder(self, path: str, num_links: int = 0) -> str:
        folder = self._folders.get(path)
        if folder is None:
            folder = self._folders[path] = self.followed(path, num_links)
        return folder

    def upper(self, place: str) -> str:
        """Return where `place` is stored once it was written."""
        return self.scratch + place

    def physical(self, place: str) -> str:
        """Return where the file that the script sees at `place` is stored; a path without a file if it sees nothing."""
        if self.is_free(place):
            return place
        upper = self.upper(place)
        is_machines = (place in self.fake or not self.is_removed(place)) and not os.path.lexists(upper)
        return self.fake.get(place, place) if is_machines else upper

    @property
    def is_untouched(self) -> bool:
        """True if the script sees the machine's files alone."""
        return not (self.lines or self.fake or self.removed)

    def is_removed(self, place: str) -> bool:
        """Return True if the machine's file at `place` is hidden."""
        if not self.removed:
            return False
        while place not in self.removed:
            folder = os.path.dirname(place)
            if folder == place:
                return False
            place = folder
        return True

    def status(self, place: str) -> os.stat_result | None:
        """Return the status of what the script sees at `place`, links not followed."""
        try:
            status: os.stat_result = real.lstat(self.physical(place))
        except OSError:
            return None
        return status

    def names(self, place: str) -> list[str]:
        """Return the names that the script sees in a folder. Raises OSError if there is none."""
        physical = self.physical(place)
        names = real.listdir(physical)
        names += [os.path.basename(made) for made in self.fake if os.path.dirname(made) == place != made]
        names = list(dict.fromkeys(names))
        if physical != place and not self.is_free(place):
            names = [name for name in names if os.path.join(physical, name) != self.temporary]
            if not self.is_removed(place) and os.path.isdir(place):
                names = list(dict.fromkeys([*real.listdir(place), *names]))
        return [name for name in names if not self.removed or self.status(os.path.join(place, name)) is not None]

    # --- changes: each takes places and returns where the bytes of the changed one are stored

    def made(self, place: str) -> str:
        """Prepare for the creation of `place`."""
        if self.status(place) is not None:
            raise failure(errno.EEXIST, place)
        return self._changed(place)

    def written(self, place: str, flags: int) -> str:
        """Prepare for opening the file `place` with `flags` of `os.open`."""
        status = self.status(place)
        if status is None and not flags & os.O_CREAT:
            raise failure(errno.ENOENT, place)
        if status is not None and flags & os.O_CREAT and flags & os.O_EXCL:
            raise failure(errno.EEXIST, place)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise failure(errno.EISDIR, place)
        upper = self._changed(place)
        if status is not None and not flags & os.O_TRUNC:
            self.copy_up(place)
        return upper

    def unlinked(self, place: str, *, is_folder: bool = False) -> None:
        """Remove a file, or an empty folder."""
        status = self.status(place)
        if status is None:
            raise failure(errno.ENOENT, place)
        if stat.S_ISDIR(status.st_mode) is not is_folder:
            raise failure(errno.ENOTDIR if is_folder else errno.EISDIR, place)
        if is_folder and self.names(place):
            raise failure(errno.ENOTEMPTY, place)
        upper = self._changed(place)
        if os.path.lexists(upper):
            (real.rmdir if is_folder else real.unlink)(upper)
        self.hide(place)

    def moved(self, source: str, target: str) -> None:
        """Rename, replacing the file at `target`."""
        status, before = self.status(source), self.status(target)
        if status is None:
            raise failure(errno.ENOENT, source)
        if source == target:
            return
        if target.startswith(source + os.sep):
            raise failure(errno.EINVAL, target)
        is_folder = stat.S_ISDIR(status.st_mode)
        if before is not None and stat.S_ISDIR(before.st_mode) is not is_folder:
            raise failure(errno.ENOTDIR if is_folder else errno.EISDIR, target)
        if before is not None and is_folder and self.names(target):
            raise failure(errno.ENOTEMPTY, target)
        self._changed(source)
        self.copy_up(source)
        upper = self._changed(target)
        self.hide(target)
        real.replace(self.upper(source), upper)
        self.hide(source)

    def linked(self, source: str, target: str) -> None:
        """Make a hard link to a file that the script wrote; of the machine's file, a copy."""
        status = self.status(source)
        if status is None:
            raise failure(errno.ENOENT, source)
        upper = self.made(target)
        if stat.S_ISDIR(status.st_mode):
            raise failure(errno.EPERM, source)
        physical = self.physical(source)
        if physical in (source, self.fake.get(source)) and not self.is_free(source):
            shutil.copy2(physical, upper, follow_symlinks=False)
        else:
            real.link(physical, upper, follow_symlinks=False)

    def copy_up(self, place: str) -> None:
        """Copy everything that the script sees at `place` into the scratch folder."""
        upper = self.upper(place)
        status = self.status(place)
        assert status is not None, "what is copied is there"
        if stat.S_ISDIR(status.st_mode):
            Path(upper).mkdir(parents=True, exist_ok=True)
            for name in self.names(place):
                self.copy_up(os.path.join(place, name))
        elif not os.path.lexists(upper):
            Path(upper).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.fake.get(place, place), upper, follow_symlinks=False)

    def note(self, place: str) -> None:
        """Keep the line that changes `place`, if it is the first."""
        if place not in self.lines:
            self.lines[place] = script_frame()

    def _changed(self, place: str) -> str:
        folder = os.path.dirname(place)
        status = self.status(folder)
        if status is None and not self.makes_folders:
            error = failure(errno.ENOENT, place)
            vars(error)[LACKS_FOLDER] = folder
            raise error
        if status is not None and not stat.S_ISDIR(status.st_mode):
            raise failure(errno.ENOTDIR, place)
        upper = self.upper(place)
        Path(upper).parent.mkdir(parents=True, exist_ok=True)
        self.note(place)
        self._folders.clear()
        return upper

    def hide(self, place: str) -> None:
        """Hide the machine's files at `place`."""
        self.fake.pop(place, None)
        if os.path.lexists(place):
            self.removed.add(place)

    # --- afterwards

    def lost(self) -> Iterator[str]:
        """Yield each file of the machine that the script has hidden."""
        for place in self.removed:
            if os.path.islink(place) or not os.path.isdir(place):
                files = [place]
            else:
                files = [os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names]
            yield from (file for file in files if self.status(file) is None and not is_pointer(Path(file)))

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield each file that the script wrote into the scratch folder: its place, and where it is stored."""
        for folder, folders, names in os.walk(self.scratch):
            if folder == self.scratch and SCRATCH_TEMPORARY in folders:
                folders.remove(SCRATCH_TEMPORARY)
            for name in names:
                physical = os.path.join(folder, name)
                if os.path.isfile(physical) and not os.path.islink(physical):
                    yield physical[len(self.scratch) :], physical
