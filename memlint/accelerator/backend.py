"""Registration of kernels in PyTorch's dispatcher, once per process: factories, and kernels that need no code."""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import torch
from torch._ops import OpOverload

from memlint.accelerator import accumulation, hand_written, lazy_imports, state, values
from memlint.accelerator.device import META_KEYS, NAME, allocate, entry_of, real, set_geometry, strides
from memlint.accelerator.dispatch import fallback, run
from memlint.accelerator.kernel import Kernel, kernel_of
from memlint.accelerator.registration import KEY, as_one_kernel, everything, implement, implemented, overload
from memlint.base.errors import TraceError

_NAMES = """
    _fused_rms_norm _stack add.Scalar addr all.dims any.dims clone constant_pad_nd empty_like div.Scalar linalg__powsum
    mish_backward mul.Scalar native_channel_shuffle native_layer_norm new_empty new_empty_strided new_full new_ones
    new_zeros repeat silu_backward sub.Scalar
"""
ONE_KERNEL = _NAMES.split()
"""Ops that PyTorch would compose for a new device and CUDA runs as one kernel; they need no code of their own."""
COMPOSED = frozenset(("aten::_trilinear", "aten::linalg_pinv.atol_rtol_tensor"))
"""Ops that take memory between the kernels they are composed of, on every device."""

_EMPTY = kernel_of(torch.ops.aten.empty.memory_format)
_EMPTY_STRIDED = kernel_of(torch.ops.aten.empty_strided.default)
_TO_COPY = kernel_of(torch.ops.aten._to_copy.default)
_ADD = torch.ops.aten.add.Tensor
_AS_STRIDED_ = torch.ops.aten.as_strided_.default


def empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> torch.Tensor:
    """Run `aten::empty_strided` on the device."""
    return _make(_EMPTY_STRIDED, size, stride, dtype)


def empty(size: Any, dtype: Any = None, memory_format: Any = None, **_: Any) -> torch.Tensor:
    """Run `aten::empty.memory_format` on the device."""
    return _make(_EMPTY, size, strides(size, memory_format or torch.contiguous_format), dtype)


def _make(kernel: Kernel, size: Any, stride: Any, dtype: torch.dtype | None) -> torch.Tensor:
    with state.turn:
        now = state.current
        for observer in now.observers:
            observer.started(kernel)
        tensor = allocate(size, stride, dtype or torch.get_default_dtype())
        now.of_thread.last_host = entry_of(tensor).host
        for observer in now.observers:
            observer.finished([], [tensor])
        return tensor


def cuda_factories() -> AbstractContextManager[None]:
    """Allocate the memory that PyTorch's own code asks of CUDA.

    Functions that a program imported early (`from torch import zeros`) are not replaced, and neither are those that
    PyTorch composes of others; both end here.
    """

    def on_gpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(*args: Any, **kwargs: Any) -> torch.Tensor:
            with state.current.placed(on_host=False):
                return make(*args, **kwargs)

        return call

    return implemented({"empty.memory_format": on_gpu(empty), "empty_strided": on_gpu(empty_strided)}, "CUDA")


def _to_copy(x: torch.Tensor, **kwargs: Any) -> Any:
    device = kwargs.get("device")
    if device is None or device.type == NAME:
        return run(_TO_COPY, (x,), kwargs)
    if device.type == "cpu":
        return values.real_copy(x).to(kwargs.get("dtype") or x.dtype)
    return real.empty_strided(x.shape, x.stride(), dtype=kwargs.get("dtype") or x.dtype, device=device)


def _as_strided_in_place(x: torch.Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> torch.Tensor:
    """Run `squeeze_`, `transpose_` and their siblings: another view of the same storage."""
    offset = x.storage_offset() if storage_offset is None else storage_offset
    set_geometry(META_KEYS, x, x.untyped_storage(), offset, size, stride)
    return x


_NESTED = (
    "_nested_tensor_from_tensor_list", "_nested_view_from_buffer", "_nested_from_padded", "_nested_tensor_from_mask",
)  # fmt: skip
"""Ops that make nested tensors of the older, strided layout. PyTorch's C++ asks each for its sizes with kernels that
only CPU and CUDA have, also where it cannot raise: that would end the process. Those of layout torch.jagged are made of
ordinary tensors by PyTorch's Python and need nothing here."""


def _refuse_nested(*_: Any, **__: Any) -> NoReturn:
    raise TraceError(
        "nested tensors of layout torch.strided cannot be traced, nor attention on those of layout torch.jagged, "
        "which makes them",
        "Use layout=torch.jagged, and padded tensors with a mask for attention.",
    )


def _register() -> None:
    everything.fallback(fallback, KEY)
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::") and not n.endswith("out")]
    # A dict, as these overlap in ways that differ between versions of PyTorch.
    direct = dict.fromkeys(n for n in names if has_kernel(n, "CompositeExplicitAutogradNonFunctional"))
    foreach = (n for n in names if n.startswith("aten::_foreach_"))
    direct |= dict.fromkeys(n for n in foreach if has_kernel(n, "CompositeExplicitAutograd"))
    existing = (n for n in ONE_KERNEL if hasattr(torch.ops.aten, n.split(".")[0]))  # some came in later versions
    direct |= dict.fromkeys(f"aten::{n}" for n in existing)
    for name in direct.keys() - COMPOSED:
        as_one_kernel(name.removeprefix("aten::"))
    functions: tuple[tuple[OpOverload, Callable[..., Any]], ...] = (
        (_ADD, accumulation.add),
        (_TO_COPY.op, _to_copy),
        (_EMPTY.op, empty),
        (_EMPTY_STRIDED.op, empty_strided),
        (_AS_STRIDED_, _as_strided_in_place),
        *((overload(name), _refuse_nested) for name in _NESTED),
    )
    for op, function in functions:
        implement(op, KEY, function)


lazy_imports.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # PyTorch warns that some kernels are replaced, which is intended
    _register()

assert hand_written
