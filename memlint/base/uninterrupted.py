"""Functions that C code calls where nothing may raise: no signal handler runs before their first line.

CPython checks for signals when a function begins, and passes the handler the frame of the function's caller, which may
be the program's. An exception raised there is lost after a finalizer, and ends the process inside PyTorch's C++.
"""

import dis
from types import FunctionType
from typing import Any

_AFTER_YIELD_FROM = 2
"""Argument of the instruction `RESUME` with which CPython does not check for signals."""


def uninterrupted(function: Any) -> Any:
    """Return `function` without the signal check at its beginning; later checks see the function's own frame."""
    assert isinstance(function, FunctionType), "it has bytecode"
    code = bytearray(function.__code__.co_code)
    start = next(each.offset for each in dis.get_instructions(function) if each.opname == "RESUME")
    code[start + 1] = _AFTER_YIELD_FROM
    function.__code__ = function.__code__.replace(co_code=bytes(code))
    return function
