"""Devices of tensors as the program sees them: a machine with one GPU or, for `--gpu cpu`, with none.

All tensors are virtual. Every name is replaced inside a `with` block only and restored after it.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Self

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.utils import swap_tensors

from memlint.accelerator import state, values
from memlint.accelerator.device import DEVICE, NAME, adopt, alias, allocate, is_virtual, real, real_device_of, unwrapped
from memlint.accelerator.private import (
    DisableTorchFunctionSubclass,
    FakeTensor,
    device_contexts,
    part_of_rank,
    remember_factories,
)
from memlint.accelerator.sparse import is_host, parts_of
from memlint.cuda.facade.random_state import known_state
from memlint.memory.devices import Device

Tensor = torch.Tensor
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")

remember_factories()  # remembers the original factories, with which device contexts compare
real_to: Any = Tensor.to
_real_type: Callable[..., Any] = Tensor.type
_real_data: Any = Tensor.data
_real_grad: Any = Tensor.grad
_real_requires_grad: Any = Tensor.requires_grad
_real_require_grad = Tensor.requires_grad_
_real_default_device = torch.get_default_device
_NO_DISPATCH = Tensor.__torch_dispatch__


def is_gpu(device: Any) -> bool:
    """Return True if `device`, as the program names it, is the simulated GPU."""
    if isinstance(device, torch.device):
        return device.type in ("cuda", NAME)
    if isinstance(device, str):
        return device.split(":")[0] in ("cuda", NAME)
    return isinstance(device, int) and not isinstance(device, bool)


def is_cpu(device: Any) -> bool:
    """Return True if `device`, as the program names it, is the host."""
    return str(device).startswith("cpu") if isinstance(device, (torch.device, str)) else False


def device_of(tensor: Tensor) -> torch.device:
    """Return the device that the program sees."""
    device = real_device_of(tensor)
    if device.type != NAME:
        return device
    return CUDA if state.current.cuda and not _is_hosts(tensor) else CPU


def _is_hosts(tensor: Tensor) -> bool:
    """Return True if a virtual tensor is the host's; a wrapper is on the device of its local part (DTensor)."""
    if type(tensor).__torch_dispatch__ is not _NO_DISPATCH:
        tensor = part_of_rank(tensor, None)
        return tensor is not None and is_virtual(tensor) and _is_hosts(tensor)
    return is_host(unwrapped(tensor))


def move(
    tensor: Tensor, *, on_host: bool, dtype: torch.dtype | None = None, memory_format: Any = None, **rest: Any
) -> Any:
    """Return `tensor` on the simulated GPU or on the host, as `Tensor.to` does."""
    now = state.current
    if isinstance(tensor, UninitializedTensorMixin):  # a parameter of a lazy module has nothing but a device
        with now.placed(on_host=on_host):
            return allocate((0,), (1,), dtype or tensor.dtype).as_subclass(type(tensor))
    if dtype is not None:
        rest["dtype"] = dtype
    if memory_format is not None:
        rest["memory_format"] = memory_format
    kind = real_device_of(tensor).type
    is_plain = type(tensor).__torch_dispatch__ is _NO_DISPATCH
    if kind == "cpu" and not now.cuda and is_plain and tensor.layout is torch.strided:  # older than the simulated host
        tensor, kind = values.to_host(tensor).requires_grad_(tensor.requires_grad), NAME
    if kind == NAME and tensor.layout is torch.strided:
        _adopt(unwrapped(tensor))
    crosses = kind == NAME and now.cuda and _is_hosts(tensor) != on_host
    if crosses:
        rest["copy"] = True
    elif kind == "cpu" and not on_host and now.cuda:
        rest["device"] = DEVICE
    elif kind not in ("cpu", NAME):
        rest["device"] = DEVICE if now.cuda and not on_host else CPU
    if crosses and tensor.requires_grad and torch.is_grad_enabled():
        return _Crossing.apply(tensor, on_host, rest)  # type: ignore[no-untyped-call]
    return _copied(tensor, on_host, rest)


def _adopt(tensor: Tensor) -> None:
    for part in filter(is_virtual, parts_of(tensor)):
        adopt(part.untyped_storage())


def _copied(tensor: Tensor, on_host: bool, rest: dict[str, Any]) -> Any:
    now = state.current
    if now.cuda and not rest.get("non_blocking") and is_cpu(device_of(tensor)) != on_host:
        now.ledger.synchronize(now.ledger.stream)
    with now.placed(on_host=on_host):
        return real_to(tensor, **rest)


class _Crossing(torch.autograd.Function):
    """A copy between host and GPU, whose backward moves the gradient back: PyTorch sees only one device."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, on_host: bool, rest: dict[str, Any]) -> Any:
        ctx.dtype, ctx.from_host = tensor.dtype, not on_host
        return _copied(tensor, on_host, rest)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return move(grad, on_host=ctx.from_host, dtype=ctx.dtype), None, None


def to(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.to` for the devices that the program knows."""
    if isinstance(tensor, FakeTensor):  # DTensor tries out ops on it
        return real_to(tensor, *args, **kwargs)
    if args and isinstance(args[0], Tensor):
        other, *args = args  # type: ignore[assignment]
        args = (device_of(other), other.dtype, *args)
    elif isinstance(kwargs.get("other"), Tensor):
        other = kwargs.pop("other")
        args = (device_of(other), other.dtype, *args)
    device = args[0] if args else kwargs.get("device")
    names_device = is_cpu(device) or (is_gpu(device) and state.current.cuda)
    if (args and isinstance(device, torch.dtype)) or not names_device:
        return real_to(tensor, *args, **kwargs)
    rest = dict(zip(("device", "dtype", "non_blocking", "copy"), args, strict=False)) | kwargs
    del rest["device"]
    return move(tensor, on_host=state.current.cuda and not is_gpu(device), **rest)


def _cuda(tensor: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    return move(tensor, on_host=False, memory_format=memory_format, non_blocking=non_blocking)


def _type(tensor: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    if dtype is None:
        if not is_virtual(tensor):
            return _real_type(tensor)
        name: Any = _real_type(real.empty(0, dtype=tensor.dtype, device="cpu"))
        return name.replace("torch.", "torch.cuda.") if device_of(tensor).type == "cuda" else name
    if isinstance(dtype, torch.dtype):
        return real_to(tensor, dtype)
    name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    plain = getattr(torch, name.split(".")[-1])(0).dtype
    return to(tensor, CUDA if ".cuda." in name else CPU, plain)


def _set_data(tensor: Tensor, value: Tensor) -> None:
    if is_virtual(tensor) and real_device_of(value).type == "cpu":
        value = values.to_host(value)
    elif is_virtual(value) and not is_virtual(tensor) and _is_hosts(value):
        known = values.content(value)  # a host tensor may be real or virtual, and small ones are real
        value = real.full(value.shape, 0, dtype=value.dtype, device="cpu") if known is None else known
    elif values.is_known_kind(value) and not is_virtual(tensor):
        _become(tensor, alias(value))
        return
    elif values.is_known_kind(value) and _is_inference(value) != _is_inference(tensor):  # refused for foreign devices
        with torch.inference_mode(_is_inference(tensor)):
            value = alias(value)
    _real_data.__set__(tensor, value)


def _is_inference(tensor: Tensor) -> bool:
    with DisableTorchFunctionSubclass():  # a lazy module's parameter raises otherwise
        return tensor.is_inference()


def _become(tensor: Tensor, other: Tensor) -> None:
    """Turn `tensor` into `other`, which is of another kind.

    Raises RuntimeError if another object refers to it weakly.
    """
    other = other.as_subclass(type(tensor))
    other.__dict__.update(tensor.__dict__)
    swap_tensors(tensor, other.requires_grad_(tensor.requires_grad))


def _set_grad(tensor: Tensor, value: Tensor | None) -> None:
    if isinstance(value, Tensor) and real_device_of(value).type == "cpu" and is_virtual(tensor) and _is_hosts(tensor):
        value = values.to_host(value)  # C++ compares devices, and a host tensor may be real or virtual
    _real_grad.__set__(tensor, value)


def _set_requires_grad(tensor: Tensor, value: bool) -> None:
    if value:
        _simulate_leaf(tensor)
    _real_requires_grad.__set__(tensor, value)


def _simulate_leaf(tensor: Tensor) -> None:
    if state.current.cuda and type(tensor) is Tensor and _is_real_leaf(tensor):
        with contextlib.suppress(RuntimeError):  # Python or C++ has a weak reference to it
            swap_tensors(tensor, values.to_host(tensor))


def _is_real_leaf(tensor: Tensor) -> bool:
    """Return True if C++ would refuse a gradient of the simulated host for it, as its device differs."""
    is_real = real_device_of(tensor).type == "cpu" and tensor.layout is torch.strided
    has_gradients = tensor.is_floating_point() or tensor.is_complex()
    return is_real and has_gradients and tensor.is_leaf and not tensor.requires_grad


def _require_grad(tensor: Tensor, requires_grad: bool = True) -> Tensor:
    if requires_grad:
        _simulate_leaf(tensor)
    return _real_require_grad(tensor, requires_grad)


class Generator(torch.Generator):
    """`torch.Generator(device="cuda")`: a generator of the host that reports the GPU as its device."""

    def __new__(cls, device: Any = None) -> Self:
        """Make a generator for `device`."""
        return super().__new__(cls, "cpu" if is_gpu(device) else device or "cpu")  # type: ignore[call-arg]

    def __init__(self, device: Any = None) -> None:
        self._shown = CUDA if is_gpu(device) else torch.device(device or "cpu")

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Device that was requested."""
        return self._shown

    def set_state(self, new_state: Tensor) -> Self:
        """Take over a state, such as one that accelerate sends to all ranks, if its content is known."""
        known = known_state(new_state)
        if known is not None:
            super().set_state(known)
        return self


class _Context(device_contexts.DeviceContext):
    """A device context that names the virtual device when the program says cuda."""

    def __init__(self, device: Any) -> None:
        super().__init__(DEVICE if is_gpu(device) and state.current.cuda else device)


def pin(tensor: Tensor) -> Tensor:
    """Mark `tensor` as pinned; only a driver can pin memory. Raises RuntimeError for a GPU tensor."""
    if device_of(tensor).type != "cpu":
        raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
    for part in parts_of(tensor):
        _pin_storage(part.untyped_storage())
    return tensor


_LARGE = 2**26
"""Bytes from which on a batch is not copied on this machine's host only to be called pinned; it is given up for it."""


def _pin_storage(storage: Any, *_: Any, **__: Any) -> Any:
    storage.memlint_pinned = True
    return storage


def _is_pinned_storage(storage: Any, *_: Any) -> bool:
    return getattr(storage, "memlint_pinned", False)


def _pinned(tensor: Tensor, *_: Any) -> Tensor:
    """`Tensor.pin_memory`: a copy, unless the tensor is pinned, or large: then it shares the memory."""
    if _is_pinned(tensor):
        return tensor
    is_copied = is_cpu(device_of(tensor)) and tensor.nbytes < _LARGE
    return pin(tensor.clone() if is_copied else tensor.detach())


def _is_pinned(tensor: Tensor, *_: Any) -> bool:
    return all(_is_pinned_storage(part.untyped_storage()) for part in parts_of(tensor))


def _default_device() -> torch.device:
    device = _real_default_device()
    return CUDA if device.type == NAME else device


class _Attribute(property):
    """An attribute of tensors whose owner TorchDynamo of torch 2.10 and 2.11 reads while it is imported."""

    __objclass__ = Tensor


def patches(device: Device) -> list[tuple[Any, str, Any]]:
    """Return the patches while `device` is simulated: owner, name, replacement."""
    replaced: list[tuple[Any, str, Any]] = [
        (Tensor, "device", _Attribute(device_of)),
        (Tensor, "is_cuda", _Attribute(lambda t: device_of(t).type == "cuda")),
        (Tensor, "is_cpu", _Attribute(lambda t: device_of(t).type == "cpu")),
        (Tensor, "to", to),
        (Tensor, "cpu", lambda t, memory_format=None: move(t, on_host=state.current.cuda, memory_format=memory_format)),
        (Tensor, "type", _type),
        (Tensor, "get_device", lambda t: 0 if device_of(t).type == "cuda" else -1),
        (Tensor, "pin_memory", _pinned),
        (Tensor, "is_pinned", _is_pinned),
        (Tensor, "data", _Attribute(_real_data.__get__, _set_data)),
        (Tensor, "grad", _Attribute(_real_grad.__get__, _set_grad, _real_grad.__delete__)),
        (Tensor, "requires_grad", _Attribute(_real_requires_grad.__get__, _set_requires_grad)),
        (Tensor, "requires_grad_", _require_grad),
        (torch.UntypedStorage, "pin_memory", _pin_storage),
        (torch.UntypedStorage, "is_pinned", _is_pinned_storage),
        (device_contexts, "DeviceContext", _Context),
        (torch, "get_default_device", _default_device),
    ]
    if device.is_cuda:
        replaced += [(Tensor, "cuda", _cuda), (torch, "Generator", Generator)]
    return replaced
