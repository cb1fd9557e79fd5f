"""Exceptions that leave a backward on the virtual device.

PyTorch switches streams back while such an exception passes through its C++ engine, and for a device made in Python it
calls a Python method for the device type then. Python treats a result returned while an exception is pending as an
error, and PyTorch ends the process. The guard here stores the pending exception, and the engine raises it in the end.
"""

import ctypes
from typing import Any

import torch

from memlint.base.uninterrupted import uninterrupted

_TYPE, _VALUE, _TRACEBACK = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
_PENDING = (ctypes.byref(_TYPE), ctypes.byref(_VALUE), ctypes.byref(_TRACEBACK))
_fetch = ctypes.pythonapi.PyErr_Fetch
_normalize = ctypes.pythonapi.PyErr_NormalizeException
_fetch.restype = _normalize.restype = None  # no argtypes: ctypes would call into CPython to convert

taken: list[BaseException] = []
"""Exceptions that wait for the end of their backward."""
_DEVICE_TYPE = torch._C._autograd.DeviceType.PrivateUse1


class DeviceGuard(torch._C._acc.DeviceGuard):
    """Answers PyTorch's queries about the virtual device while it changes devices and streams."""

    @uninterrupted
    def type_(self) -> Any:
        """Return the device type; called for every node of a backward, so it does only what is necessary."""
        _fetch(*_PENDING)  # nothing else may run before: CPython calls with an exception pending fail
        if _TYPE.value is not None:
            taken.append(_exception())
        return _DEVICE_TYPE


def _exception() -> BaseException:
    """Return the exception that was just fetched."""
    _normalize(*_PENDING)
    exception: BaseException = ctypes.cast(_VALUE, ctypes.py_object).value
    if _TRACEBACK.value is not None:
        exception.__traceback__ = ctypes.cast(_TRACEBACK, ctypes.py_object).value
    for reference in (_TYPE, _VALUE, _TRACEBACK):  # PyErr_Fetch gave us these references
        if reference.value is not None:
            ctypes.pythonapi.Py_DecRef(reference)
            reference.value = None
    return exception
