"""Folders of files that processes exchange, and of those that they throw away."""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_PREFIX = "memlint-exchange-"
_DAY = 24 * 3600.0
SCRATCH_TEMPORARY = ".temporary"
"""In the scratch folder of a script, what stands for the system's temporary one."""


def exchange_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is gone after its block; those that killed processes have left a day ago and longer go first."""
    with suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            with suppress(OSError):
                if entry.name.startswith(_PREFIX) and _is_left(entry):
                    shutil.rmtree(entry.path, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=_PREFIX)


def _is_left(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder of this user in which nothing has happened for a day."""
    about = entry.stat(follow_symlinks=False)
    is_own = not hasattr(os, "getuid") or about.st_uid == os.getuid()
    if not is_own or not entry.is_dir(follow_symlinks=False):
        return False
    newest = max((file.stat(follow_symlinks=False).st_mtime for file in Path(entry.path).rglob("*")), default=0.0)
    return max(newest, about.st_mtime) < time.time() - _DAY
