"""Landlock, the kernel's own restriction of the files that this process and its children write and of their contacts.

It needs Linux 5.13 or later for files, 6.7 for TCP and 6.12 for signals, if it is built and switched on; it needs no
privileges, and nothing can revoke it. Numbers are those of linux/landlock.h; the system calls have the same on every
architecture.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH, _PORT = 1, 2  # LANDLOCK_RULE_PATH_BENEATH, LANDLOCK_RULE_NET_PORT
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_FOLDERS = sum(1 << bit for bit in range(4, 13))
"""REMOVE_DIR, REMOVE_FILE and MAKE_CHAR to MAKE_SYM."""
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1
_ANY_FREE_PORT = 0

OF_TRUNCATION, OF_TCP, OF_SIGNALS = 3, 4, 6
"""The first versions that cover truncation of files, that refuse TCP, and that limit signals to one's own processes."""

_library: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def version() -> int:
    """Return the version of Landlock in this kernel; 0 without it."""
    return max(0, int(_library.syscall(_CREATE_RULESET, None, 0, _VERSION))) if _library is not None else 0


def restrict(writable: Iterable[Path] | None, *, refuse_tcp: bool) -> int:
    """Restrict this thread and its later children, and return the version of Landlock in force; 0 without it.

    The thread can then change only files beneath `writable`, unless that is None. Reading is not restricted. Neither
    are mode, owner and times of files, because the kernel does not cover them. With `refuse_tcp` the thread cannot
    connect by TCP to anything, this machine included, since the kernel distinguishes only ports, and can listen only at
    ports that the system chooses. If the kernel supports it, signals and abstract sockets reach only its own processes.
    The process must not be able to gain privileges any more (`drop_privileges`).
    """
    found = version()
    files = _WRITE_FILE | (_TRUNCATE if found >= OF_TRUNCATION else 0)
    handled = files | _FOLDERS | (_REFER if found >= 2 else 0) if writable is not None else 0
    network = _BIND_TCP | _CONNECT_TCP if refuse_tcp and found >= OF_TCP else 0
    scoped = _SCOPE_ABSTRACT_SOCKET | _SCOPE_SIGNAL if found >= OF_SIGNALS else 0
    if not (handled | network | scoped) or found < 1:
        return 0
    size = 8 if found < OF_TCP else 16 if found < OF_SIGNALS else 24
    ruleset = int(_library.syscall(_CREATE_RULESET, struct.pack("QQQ", handled, network, scoped), size, 0))
    if ruleset < 0:
        return 0
    try:
        for path in writable or ():
            with suppress(FileNotFoundError):
                _allow(ruleset, path, handled if path.is_dir() else files)
        if network:
            _library.syscall(_ADD_RULE, ruleset, _PORT, struct.pack("=QQ", _BIND_TCP, _ANY_FREE_PORT), 0)
        return found if _library.syscall(_RESTRICT_SELF, ruleset, 0) == 0 else 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, access: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _library.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, beneath), 0)
    finally:
        os.close(beneath)
