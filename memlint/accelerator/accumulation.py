"""Accumulation of gradients that reach one tensor by several paths: in place, as on a device without Python objects.

Autograd adds into a gradient in place if nobody else holds it. It counts the references to the storage, and the Python
object that carries a storage's ledger entry is one, so on the virtual device it always asks for a new tensor
(torch/csrc/autograd/input_buffer.cpp). The kernel here recognises such a sum by the same reference counts, measured
once on a sum that is known to be of this kind, and by the calling code: derivative formulas add temporaries too, out of
place, such as those of `var_mean` and `linalg.eigh` (torch/csrc/autograd/FunctionsManual.cpp).
"""

import ctypes
import os
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks

from memlint.accelerator import state
from memlint.accelerator.device import NAME, real_device_of
from memlint.accelerator.dispatch import run
from memlint.accelerator.kernel import kernel_of
from memlint.accelerator.private import (
    disable_dispatch_modes,
    graph_task,
    storage_address,
    storage_use_count,
    takes_saved_tensor_hooks,
    use_count,
    without_functorch,
    without_python_dispatcher,
)

Tensor = torch.Tensor
aten = torch.ops.aten
_ADD, _ADD_IN_PLACE = kernel_of(aten.add.Tensor), kernel_of(aten.add_.Tensor)


_MAX_FRAMES = 64
_frames = (ctypes.c_void_p * _MAX_FRAMES)()
_backtrace: Any = getattr(ctypes.CDLL(None), "backtrace", None)  # glibc and macOS have it


class _Sum(NamedTuple):
    """The properties of one sum in a backward by which it is recognised."""

    counts: tuple[int, int]
    """Reference counts of the first operand and of its storage."""
    callers: frozenset[int]
    """Return addresses of the C++ functions that call it; empty if they cannot be read."""


class _Unshared:
    """Properties of sums by which autograd accumulates gradients that it alone holds; None until measured."""

    counts: tuple[int, int] | None = None
    is_measured = False
    callers: frozenset[int] = frozenset()
    """Addresses, some of which are among the callers of each such sum; empty if they cannot be read."""
    measuring: list[_Sum] | None = None


def _callers() -> frozenset[int]:
    if _backtrace is None:
        return frozenset()
    return frozenset(address or 0 for address in _frames[: _backtrace(_frames, _MAX_FRAMES)])


class _Origin(ctypes.Structure):
    """Result of `dladdr` for an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("start", ctypes.c_void_p),
    )


def _is_pytorchs(address: int) -> bool:
    """Return True if the address is in PyTorch's code; Python's own path varies, as it specialises its bytecode."""
    origin = _Origin()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(origin))
    return Path(os.fsdecode(origin.file or b"")).name.startswith("libtorch")


def _is_engines(callers: frozenset[int]) -> bool:
    return not _Unshared.callers or not _Unshared.callers.isdisjoint(callers)


def add(*args: Any, **kwargs: Any) -> Any:
    """Run `aten::add.Tensor`."""
    is_sum = len(args) == 2 and not kwargs and isinstance(args[1], Tensor)
    if is_sum and graph_task() != -1 and not torch.is_grad_enabled():
        x, y = args
        counts = use_count(x), storage_use_count(storage_address(x.untyped_storage()))
        if _Unshared.measuring is not None:
            _Unshared.measuring.append(_Sum(counts, _callers()))
        elif (
            _Unshared.counts is not None
            and counts[0] == _Unshared.counts[0]
            and counts[1] <= _Unshared.counts[1]
            and x.shape == y.shape
            and x.dtype == y.dtype
            and real_device_of(x).type == NAME
            and x.layout is torch.strided
            and _is_dense(x)
            and _is_engines(_callers())
        ):
            return run(_ADD_IN_PLACE, args, kwargs)
    return run(_ADD, args, kwargs)


def _is_dense(x: Tensor) -> bool:
    """Return True if `x` covers its memory without gaps or overlaps, in any order of dimensions."""
    step = 1
    for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n != 1):
        if stride != step:
            return False
        step *= size
    return True


def has_run_backward() -> bool:
    """Return True if this process has run a backward while a device is simulated: autograd has threads since then."""
    return _Unshared.is_measured


def measure_once() -> None:
    """Let autograd add two gradients that nobody else holds, and a formula add two of its own; store the difference.

    Call it right before the first backward, not earlier: after a backward, no fork of the process can run another, as
    autograd has threads then.
    """
    if _Unshared.is_measured:
        return
    _Unshared.measuring, _Unshared.is_measured = [], True
    with ExitStack() as apart:
        apart.callback(setattr, _Unshared, "measuring", None)
        for context in (
            torch.autograd.set_multithreading_enabled(False),
            without_functorch(),
            disable_dispatch_modes(),
            without_python_dispatcher(),  # the first backward may be one that a compiler traces with it
            _without_saved_tensors_hooks(),
            state.installed(state.State()),
            torch.enable_grad(),
        ):
            apart.enter_context(context)
        x = torch.zeros(2, 2, device=NAME, requires_grad=True).exp()
        (x.mul(2) + x.mul(3)).sum().backward()
        engines = _Unshared.measuring.copy()
        torch.mul(*torch.var_mean(x.detach().requires_grad_())).backward()
        formulas = _Unshared.measuring[len(engines) :]
        _Unshared.counts = engines[0].counts if engines else None
        if engines and formulas:
            _Unshared.callers = frozenset(filter(_is_pytorchs, engines[0].callers - formulas[0].callers))


def _without_saved_tensors_hooks() -> AbstractContextManager[None]:
    """Keep tensors that are saved inside the block away from a checkpoint's hooks around it.

    If hooks are refused there are none.
    """
    return saved_tensors_hooks(_itself, _itself) if takes_saved_tensor_hooks() else nullcontext()


def _itself(tensor: Tensor) -> Tensor:
    return tensor
