"""The kernel's own guard: which files this process and its children may write, and whom they may reach, whoever asks.

Linux 5.13 and later for files, 6.7 for TCP and 6.12 for signals, if it is built and switched on; no privileges are
needed, and nothing takes it back. Numbers are those of linux/landlock.h and linux/prctl.h; the system calls have the
same on every architecture.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1  # LANDLOCK_RULE_PATH_BENEATH
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_FOLDERS = sum(1 << bit for bit in range(4, 13))
"""REMOVE_DIR, REMOVE_FILE and MAKE_CHAR to MAKE_SYM."""
_CONNECT_TCP = 1 << 1
_SCOPE_SIGNAL = 1 << 1
_VERSION_OF_TCP, _VERSION_OF_SIGNALS = 4, 6

_library: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_version: int = _library.syscall(_CREATE_RULESET, None, 0, _VERSION) if _library is not None else -1
can_refuse_tcp = _version >= _VERSION_OF_TCP
"""Whether `refuse_tcp` does what it says."""


def only_writes_beneath(folders: Iterable[Path]) -> bool:
    """Let this thread, and what it starts from now on, change files beneath `folders` only; False if it cannot be.

    Reading stays as it is. Mode, owner and times of files are not guarded: the kernel does not. Where it can, it also
    keeps them from sending signals to other processes than their own.
    """
    if _version < 1:
        return False
    files = _WRITE_FILE | (_TRUNCATE if _version >= 3 else 0)
    handled = files | _FOLDERS | (_REFER if _version >= 2 else 0)
    ruleset = _ruleset(files=handled, scoped=_SCOPE_SIGNAL)
    if ruleset < 0:
        return False
    try:
        for folder in folders:
            beneath = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", handled if folder.is_dir() else files, beneath)
                if _library.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) != 0:
                    return False
            finally:
                os.close(beneath)
        return _restrict(ruleset)
    finally:
        os.close(ruleset)


def refuse_tcp() -> None:
    """Let this process connect to nothing by TCP, other sockets of this machine included: the kernel tells ports alone.

    Called in a process that is about to become another program. Listening stays as it is, and so does UDP.
    """
    if can_refuse_tcp:
        _restrict(_ruleset(net=_CONNECT_TCP))


def _ruleset(files: int = 0, net: int = 0, scoped: int = 0) -> int:
    """`struct landlock_ruleset_attr`, as long as this kernel's; a file descriptor, or -1."""
    sizes = {_VERSION_OF_TCP: 16, _VERSION_OF_TCP + 1: 16}
    size = sizes.get(_version, 8 if _version < _VERSION_OF_TCP else 24)
    return int(_library.syscall(_CREATE_RULESET, struct.pack("QQQ", files, net, scoped), size, 0))


def _restrict(ruleset: int) -> bool:
    return bool(
        _library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and _library.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    )
