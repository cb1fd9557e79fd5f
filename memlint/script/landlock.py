"""The kernel's own guard: which files this process and its children may write, and whom they may reach, whoever asks.

Linux 5.13 and later for files, 6.7 for TCP and 6.12 for signals, if it is built and switched on; no privileges are
needed, and nothing takes it back. Numbers are those of linux/landlock.h; the system calls have the
same on every architecture.
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
"""The first versions that keep files from being cut, that refuse TCP, and that keep signals to one's own processes."""

_library: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def version() -> int:
    """The version of Landlock that this kernel has; 0 without one."""
    return max(0, int(_library.syscall(_CREATE_RULESET, None, 0, _VERSION))) if _library is not None else 0


def restrict(writable: Iterable[Path] | None, *, refuse_tcp: bool) -> int:
    """Restrict this thread, and what it starts from now on, and give the version that does; 0 if none does.

    It changes files beneath `writable` only, unless that is None. Reading stays as it is. Mode, owner and times of
    files are not guarded: the kernel does not. With `refuse_tcp` it connects to nothing by TCP, this machine included,
    since the kernel tells ports alone, and listens at ports alone that the system chooses. Where the kernel can, it
    also sends signals to its own processes alone, and speaks with them alone by abstract sockets. The process must not
    be able to gain privileges any more (`drop_privileges`).
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
