"""Functions that are called from C where nothing can raise: no handler of a signal runs before their first line.

CPython looks for signals as a function begins, and gives a handler the frame of its caller, which may be the program's.
What the handler raises there is lost after a finalizer, and ends the process inside of PyTorch's C++.
"""

import dis
from types import FunctionType
from typing import Any

_AFTER_YIELD_FROM = 2
"""Argument of the instruction `RESUME` with which it does not look for signals."""


def uninterrupted(function: Any) -> Any:
    """`function` without a look for signals as it begins; later ones find its own frame."""
    assert isinstance(function, FunctionType), "it has bytecode"
    code = bytearray(function.__code__.co_code)
    start = next(each.offset for each in dis.get_instructions(function) if each.opname == "RESUME")
    code[start + 1] = _AFTER_YIELD_FROM
    function.__code__ = function.__code__.replace(co_code=bytes(code))
    return function
