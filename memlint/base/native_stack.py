"""The shared libraries whose functions are on the C stack of the interpreter."""

import ctypes
from typing import Any

_MOST_FRAMES = 256


class _Library(ctypes.Structure):
    """The C struct `Dl_info` of dlfcn.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_functions: Any = ctypes.CDLL(None) if hasattr(ctypes, "RTLD_GLOBAL") and not hasattr(ctypes, "windll") else None
_backtrace, _dladdr = getattr(_functions, "backtrace", None), getattr(_functions, "dladdr", None)


def is_within_library(part: str) -> bool:
    """Return True if a function of a shared library with `part` in its path is on the C stack.

    Else, or if unreadable, False.
    """
    if _backtrace is None or _dladdr is None:
        return False
    addresses, library = (ctypes.c_void_p * _MOST_FRAMES)(), _Library()
    names = set()
    for address in addresses[: _backtrace(addresses, _MOST_FRAMES)]:
        if _dladdr(ctypes.c_void_p(address), ctypes.byref(library)):
            names.add(library.name or b"")
    return any(part.encode() in name for name in names)
