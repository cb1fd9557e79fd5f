"""Functions that create tensors: on the simulated GPU, as virtual tensors of the host, or as small real ones."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import UninitializedParameter

from memlint.accelerator import state, values
from memlint.accelerator.device import DEVICE, is_virtual, real, real_device_of
from memlint.accelerator.inference import to_meta
from memlint.accelerator.private import (
    FAKE_MODE,
    MAKE_WRAPPER,
    DisableTorchFunction,
    device_contexts,
    dispatch_mode,
    function_modes,
    is_wrapper_subclass,
    make_subclass,
)
from memlint.cuda.facade import queries
from memlint.cuda.facade.placement import CPU, CUDA, device_of, is_cpu, is_gpu, move, pin, real_to, to

Tensor = torch.Tensor
BIG = 1 << 20
"""Bytes from which on host tensors are virtual too; smaller ones compute for real."""
_BIG_DATA = 1 << 28
"""The same for empty tensors of whole numbers: the program reads a file of tokens into them, and looks at these."""
_OF_DATA = frozenset((torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64))

_FACTORIES = """
    _empty_affine_quantized arange bartlett_window blackman_window empty empty_permuted
    empty_strided eye full hamming_window hann_window
    kaiser_window linspace logspace ones rand randint randn randperm range scalar_tensor tril_indices triu_indices zeros
"""
_LIKE = "empty_like full_like ones_like rand_like randint_like randn_like zeros_like"
_NEW = "new_empty new_empty_strided new_full new_ones new_zeros"
_FROM_DATA = "tensor as_tensor asarray"
_SPARSE = """
    sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor
"""
_real_tensor = torch.tensor
_real_wrapper: Callable[..., Any] = getattr(Tensor, MAKE_WRAPPER)
_real_parameter_new = torch.nn.Parameter.__new__


def _context_device() -> Any:
    """Return the device that the innermost `with torch.device(...)` block names, if any."""
    contexts = (mode for mode in reversed(function_modes()) if isinstance(mode, device_contexts.DeviceContext))
    return next((context.device for context in contexts), None)


def _finished(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return the result of `make`, pinned and as a leaf if requested."""

    @functools.wraps(make)
    def call(*args: Any, pin_memory: bool = False, requires_grad: bool = False, **kwargs: Any) -> Any:
        tensor = make(*args, **kwargs)
        tensor = pin(tensor) if pin_memory else tensor
        return tensor.requires_grad_() if requires_grad else tensor

    return call


def _factory(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace `torch.zeros` and its siblings."""

    @_finished
    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            return function(*args, **kwargs)
        device = kwargs.get("device")
        if device is None:
            device = _context_device()
        now = state.current
        if is_gpu(device) and now.cuda:
            on_host = False
        elif device is None or is_cpu(device):
            on_host = now.cuda
            if on_host and not _is_big(function, args, kwargs):
                kwargs["device"] = CPU
                return function(*args, **kwargs)
        else:
            return function(*args, **kwargs)
        kwargs["device"] = DEVICE
        kwargs.pop("generator", None)
        with now.placed(on_host=on_host):
            return function(*args, **kwargs)

    return make


def _after(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace `torch.zeros_like`, `Tensor.new_zeros` and their siblings: on the tensor's device unless one is given."""

    @_finished
    @functools.wraps(function)
    def make(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.pop("device", None)
        if device is None:
            device = device_of(tensor)
        now, virtual = state.current, is_virtual(tensor)
        on_gpu = is_gpu(device) and now.cuda
        if not on_gpu and not is_cpu(device):  # a kernel of the virtual device would ignore the given device
            return function(to_meta(tensor) if virtual else tensor, *args, device=device, **kwargs)
        wrapper: Any = tensor
        if is_wrapper_subclass(wrapper) and real_device_of(tensor).type == "meta":
            names, facts = wrapper.__tensor_flatten__()
            parts = {each: getattr(wrapper, each) for each in names}
            for each, part in parts.items():
                if isinstance(part, Tensor):
                    parts[each] = make(part, *args, device=device, **kwargs)
            return type(wrapper).__tensor_unflatten__(parts, facts, wrapper.size(), wrapper.stride())
        if real_device_of(tensor).type == "meta":  # a kernel that sees it would ignore the given device
            tensor = real.empty((), dtype=tensor.dtype, device=CPU).expand(tensor.shape)
        if virtual and not now.cuda:
            return function(tensor, *args, **kwargs)
        if not on_gpu and not virtual and not _is_big(function, (tensor, *args), kwargs):
            return function(tensor, *args, device=CPU, **kwargs)
        with now.placed(on_host=not on_gpu):
            return function(tensor, *args, device=DEVICE, **kwargs)

    return make


def _is_trying_out() -> bool:
    """Return True if tensors are made only to try out ops, as DTensor does: they take no memory and are not moved."""
    return dispatch_mode(FAKE_MODE) is not None


def _is_big(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if _is_trying_out():
        return False
    keywords = {k: v for k, v in kwargs.items() if k not in ("device", "generator")}
    with DisableTorchFunction():
        try:
            shape = function(*args, device="meta", **keywords)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return False  # the real call raises it, or it has no meta kernel and is small
    is_for_data = function.__name__ == "empty" and shape.dtype in _OF_DATA
    return bool(shape.numel() * shape.element_size() >= (_BIG_DATA if is_for_data else BIG))


def _from_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace `torch.tensor` and its siblings."""

    @_finished
    @functools.wraps(function)
    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.pop("device", None)
        if device is None:
            device = device_of(data) if isinstance(data, Tensor) else _context_device()
        if device is not None and not is_gpu(device) and not is_cpu(device):
            return function(data, *args, device=device, **kwargs)
        if is_virtual(data):
            tensor = data.detach().clone() if function is _real_tensor else data
            tensor = to(tensor, device, kwargs.get("dtype")) if kwargs.get("dtype") else to(tensor, device)
        else:
            tensor = function(data, *args, device=CPU, **kwargs)
            if not state.current.cuda:
                tensor = values.to_host(tensor)
            elif is_gpu(device):
                tensor = to(tensor, CUDA)
        return tensor

    return make


def _sparse_from_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace `torch.sparse_coo_tensor` and its siblings: parts go to the result's device, else to the values'."""
    name = function.__name__
    num_parts = 2 if name == "sparse_coo_tensor" else 3

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        named = [k for k in kwargs if k.endswith("indices") or k == "values"]
        positional = min(len(args), num_parts - len(named)) if len(args) + len(named) >= num_parts else 0
        parts = [*args[:positional], *(kwargs[k] for k in named)]
        values_part = kwargs.get("values", args[num_parts - 1] if positional == num_parts else None)
        kwargs.pop("pin_memory", None)
        device = kwargs.pop("device", None)
        if device is None:
            device = device_of(values_part) if isinstance(values_part, Tensor) else _context_device()
        on_host = state.current.cuda and not is_gpu(device)
        if device is not None and not is_gpu(device) and not is_cpu(device):
            return function(*args, device=device, **kwargs)
        if on_host and not any(map(is_virtual, parts)):
            return function(*args, device=CPU, **kwargs)
        with state.current.placed(on_host=on_host):
            parts = [_virtual(p, on_host=on_host) for p in parts]
            if parts and "size" not in kwargs and len(args) <= positional and values.content(parts[0]) is None:
                state.assume(f"{name}() without a size and with unknown indices is taken to have one row and column")
            kwargs |= dict(zip(named, parts[positional:], strict=True))
            return function(*parts[:positional], *args[positional:], device=DEVICE, **kwargs)

    return make


def _virtual(data: Any, *, on_host: bool) -> Any:
    """Return `data`, a tensor on any device or a function that makes one, on the virtual device."""
    part = data if isinstance(data, Tensor) else _real_tensor(data, device=CPU)
    return move(part, on_host=on_host) if is_virtual(part) else real_to(part, DEVICE)


def _new_tensor(tensor: Tensor, data: Any, **kwargs: Any) -> Tensor:
    return torch.tensor(data, **{"dtype": tensor.dtype, "device": device_of(tensor), **kwargs})


def _parameter_new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
    """Make parameters virtual even on the host: PyTorch can then move them in place, as it does from CPU to CUDA."""
    is_plain = type(data) in (Tensor, torch.nn.Parameter) and data.is_cpu and data.layout is torch.strided
    if is_plain and queries.has_default_type_of_gpu and is_gpu(_context_device()) and not is_virtual(data):
        data = to(data, CUDA)  # of `torch.Tensor(3, 4)`
    return _real_parameter_new(cls, values.to_host(data) if is_plain and not is_virtual(data) else data, requires_grad)


def _lazy_parameter_new(
    cls: Any, requires_grad: bool = True, device: Any = None, dtype: torch.dtype | None = None
) -> Any:
    data = torch.empty(0, device=device, dtype=dtype)
    return make_subclass(cls, values.to_host(data) if data.is_cpu else data, requires_grad)


def _make_wrapper(*args: Any, **kwargs: Any) -> Any:
    """Replace `Tensor._make_wrapper_subclass`, on which nested tensors and other composed tensors are built."""

    def real_device(value: Any) -> Any:
        is_virtual_there = is_gpu(value) if state.current.cuda else is_cpu(value)
        return DEVICE if is_virtual_there and isinstance(value, torch.device) else value

    return _real_wrapper(*map(real_device, args), **{name: real_device(value) for name, value in kwargs.items()})


_REPLACED = [
    (owner, name, wrap(getattr(owner, name)))
    for owner, names, wrap in (
        (torch, _FACTORIES, _factory),
        (torch, _FROM_DATA, _from_data),
        (torch, _SPARSE, _sparse_from_parts),
        (torch, _LIKE, _after),
        (Tensor, _NEW, _after),
    )
    for name in names.split()
]


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a device is simulated: owner, name, replacement."""
    return [
        *_REPLACED,
        (Tensor, "new_tensor", _new_tensor),
        (Tensor, MAKE_WRAPPER, staticmethod(_make_wrapper)),
        (torch.nn.Parameter, "__new__", staticmethod(_parameter_new)),
        (UninitializedParameter, "__new__", staticmethod(_lazy_parameter_new)),
    ]
