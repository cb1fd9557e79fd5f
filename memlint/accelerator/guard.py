"""Exceptions that leave a backward on the virtual device.

PyTorch switches streams back while such an exception passes through its C++ engine, and for a device made in Python it
asks a Python method for the device type then. Python takes an answer given while an exception is pending for a mistake,
and PyTorch ends the process. The guard here takes the pending exception away and the engine raises it in the end.
"""

import ctypes
from typing import Any

from memlint.accelerator import private
from memlint.accelerator.private import DEVICE_TYPE
from memlint.base.uninterrupted import uninterrupted

_TYPE, _VALUE, _TRACEBACK = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
_PENDING = (ctypes.byref(_TYPE), ctypes.byref(_VALUE), ctypes.byref(_TRACEBACK))
_fetch = ctypes.pythonapi.PyErr_Fetch
_normalize = ctypes.pythonapi.PyErr_NormalizeException
_fetch.restype = _normalize.restype = None  # no argtypes: ctypes would call into CPython to convert

taken: list[BaseException] = []
"""Those that wait for the end of their backward."""


class DeviceGuard(private.DeviceGuard):  # type: ignore[misc]
    """What PyTorch asks about the virtual device while it changes devices and streams."""

    @uninterrupted
    def type_(self) -> Any:
        """The device type; called for every node of a backward, so it only does what it must."""
        _fetch(*_PENDING)  # nothing else may run before: CPython calls with an exception pending fail
        if _TYPE.value is not None:
            taken.append(_exception())
        return DEVICE_TYPE


def _exception() -> BaseException:
    """The exception that was just fetched."""
    _normalize(*_PENDING)
    exception: BaseException = ctypes.cast(_VALUE, ctypes.py_object).value
    if _TRACEBACK.value is not None:
        exception.__traceback__ = ctypes.cast(_TRACEBACK, ctypes.py_object).value
    for reference in (_TYPE, _VALUE, _TRACEBACK):  # PyErr_Fetch gave them to us
        if reference.value is not None:
            ctypes.pythonapi.Py_DecRef(reference)
            reference.value = None
    return exception
