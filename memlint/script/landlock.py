"""The kernel's own guard of files: what this process and its children may write, whoever writes it.

Linux 5.13 and later, if it is built and switched on; no privileges are needed, and nothing takes it back. Numbers are
those of linux/landlock.h and linux/prctl.h; the system calls have the same on every architecture.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1  # LANDLOCK_RULE_PATH_BENEATH
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_FOLDERS = sum(1 << bit for bit in range(4, 13))
"""REMOVE_DIR, REMOVE_FILE and MAKE_CHAR to MAKE_SYM."""


def only_writes_beneath(folders: Iterable[Path]) -> bool:
    """Let this thread, and what it starts from now on, change files beneath `folders` only; False if it cannot be.

    Reading stays as it is. Mode, owner and times of files are not guarded: the kernel does not.
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return False
    files = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0)
    handled = files | _FOLDERS | (_REFER if version >= 2 else 0)
    ruleset = library.syscall(_CREATE_RULESET, struct.pack("Q", handled), 8, 0)
    if ruleset < 0:
        return False
    try:
        for folder in folders:
            beneath = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", handled if folder.is_dir() else files, beneath)
                if library.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) != 0:
                    return False
            finally:
                os.close(beneath)
        if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            return False
        return bool(library.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)
