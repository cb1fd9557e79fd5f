"""Puts the kernels in PyTorch's dispatcher, once per process."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator import accumulation, data_dependent, lazy_imports, shapes, values
from memlint.accelerator.device import META_KEYS, NAME, State, allocate, entry_of, real
from memlint.accelerator.kernels import Kernel, fallback, kernel_of, observers, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch._ops import OpOverload

KEY = "PrivateUse1"
everything = torch.library.Library("_", "IMPL")
library = torch.library.Library("aten", "IMPL")

_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key

DIRECT = [
    "_fused_rms_norm",
    "_stack",
    "add.Scalar",
    "addr",
    "all.dims",
    "any.dims",
    "clone",
    "constant_pad_nd",
    "convolution",
    "convolution_backward",
    "cudnn_batch_norm",
    "empty_like",
    "div.Scalar",
    "linalg__powsum",
    "mish_backward",
    "mul.Scalar",
    "native_channel_shuffle",
    "native_group_norm",
    "native_layer_norm",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_zeros",
    "repeat",
    "silu_backward",
    "sub.Scalar",
]
"""Ops that PyTorch would compose for a new device, and CUDA carries out as one kernel."""


def overload(qualified: str) -> OpOverload:
    """The overload called `aten::add.Tensor`."""
    name, _, rest = qualified.removeprefix("aten::").partition(".")
    found: OpOverload = getattr(getattr(torch.ops.aten, name), rest or "default")
    return found


def implement(op: OpOverload, key: str, function: Callable[..., Any]) -> None:
    """Register `function` for `op` under a dispatch key."""
    suffix = "" if op._overloadname == "default" else f".{op._overloadname}"
    # Replacing a kernel of ours is an error by default until torch 2.12.
    library.impl(op._schema.name.split("::")[-1] + suffix, function, key, allow_override=True)


def replace_composite(name: str, function: Callable[..., Any]) -> None:
    """Carry out an op that PyTorch composes of others by `function`, which autograd looks into as it does there."""
    op = overload(name)
    implement(op, KEY, function)
    implement(op, "AutogradPrivateUse1", function)


def _direct(op: OpOverload) -> Callable[..., Any]:
    kernel = kernel_of(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        return run(kernel, args, kwargs)

    return call


def empty_strided(
    size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> torch.Tensor:
    """`aten::empty_strided` on the device."""
    return _make(_EMPTY_STRIDED, size, stride, dtype)


def empty(
    size: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> torch.Tensor:
    """`aten::empty.memory_format` on the device."""
    if memory_format in (None, torch.contiguous_format):
        stride: Any = []
        step = 1
        for n in reversed(size):
            stride.append(step)
            step *= max(n, 1)
        stride.reverse()
    else:
        with torch._C.DisableTorchFunction():
            stride = real.empty(size, device="meta", memory_format=memory_format).stride()
    return _make(_EMPTY, size, stride, dtype)


_EMPTY = kernel_of(torch.ops.aten.empty.memory_format)
_EMPTY_STRIDED = kernel_of(torch.ops.aten.empty_strided.default)


def _make(kernel: Kernel, size: Any, stride: Any, dtype: torch.dtype | None) -> torch.Tensor:
    for observer in observers:
        observer.started(kernel)
    tensor = allocate(size, stride, dtype or torch.get_default_dtype())
    State.last_host = entry_of(tensor).host
    for observer in observers:
        observer.finished([], [tensor])
    return tensor


@contextlib.contextmanager
def cuda_factories() -> Iterator[None]:
    """Give the memory that PyTorch's own code asks of CUDA.

    Functions that a program took from `torch` early (`from torch import zeros`) are not those that the program is shown
    later, nor are the ones that PyTorch composes of others; they all end here.
    """

    def on_gpu(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(*args: Any, **kwargs: Any) -> torch.Tensor:
            before, State.placement = State.placement, False
            try:
                return make(*args, **kwargs)
            finally:
                State.placement = before

        return call

    kernels = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        kernels.impl("empty.memory_format", on_gpu(empty), "CUDA", allow_override=True)
        kernels.impl("empty_strided", on_gpu(empty_strided), "CUDA", allow_override=True)
    try:
        yield
    finally:
        kernels._destroy()


def _to_copy(x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    device = kwargs.get("device")
    if device is None or device.type == NAME:
        copied: torch.Tensor = run(_TO_COPY, (x,), kwargs)
        return copied
    if device.type == "cpu":
        return values.real_copy(x).to(kwargs.get("dtype") or x.dtype)
    return real.empty_strided(x.shape, x.stride(), dtype=kwargs.get("dtype") or x.dtype, device=device)


_TO_COPY = kernel_of(torch.ops.aten._to_copy.default)


def _as_strided_in_place(x: torch.Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> torch.Tensor:
    """`squeeze_`, `transpose_` and their like: another view of the same storage."""
    offset = x.storage_offset() if storage_offset is None else storage_offset
    _SET_GEOMETRY(META_KEYS, x, x.untyped_storage(), offset, size, stride)
    return x


_SET_GEOMETRY = torch.ops.aten.set_.source_Storage_storage_offset._handle.redispatch_boxed


def _register() -> None:
    everything.fallback(fallback, KEY)
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::") and not n.endswith("out")]
    # A dict, as these overlap in ways that differ between versions of PyTorch.
    direct = dict.fromkeys(n for n in names if _has_kernel(n, "CompositeExplicitAutogradNonFunctional"))
    foreach = (n for n in names if n.startswith("aten::_foreach_"))
    direct |= dict.fromkeys(n for n in foreach if _has_kernel(n, "CompositeExplicitAutograd"))
    direct |= dict.fromkeys(f"aten::{n}" for n in DIRECT if hasattr(torch.ops.aten, n.split(".")[0]))  # some came later
    del direct["aten::as_strided_"]
    for name in direct:
        op = overload(name)
        implement(op, KEY, accumulation.add if name == "aten::add.Tensor" else _direct(op))
    implement(_TO_COPY.op, KEY, _to_copy)
    implement(_EMPTY.op, KEY, empty)
    implement(_EMPTY_STRIDED.op, KEY, empty_strided)
    implement(torch.ops.aten.as_strided_.default, KEY, _as_strided_in_place)


lazy_imports.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # PyTorch says that some kernels are replaced, which is the point
    _register()
accumulation.measure()

assert data_dependent
assert shapes
