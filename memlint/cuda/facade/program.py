"""What the program sees: a machine with one GPU (or, for `--gpu cpu`, none), although its tensors are virtual.

Every name is replaced for the time of a `with` block only and put back after it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import UninitializedParameter, UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.utils import _device as device_contexts

from memlint.accelerator import state, values
from memlint.accelerator.device import DEVICE, NAME, allocate, entry_of, real_device_of, resize_storage
from memlint.accelerator.inference import to_meta
from memlint.accelerator.sparse import is_host

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlint.cuda.devices import Device

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
BIG = 1 << 20
"""Host tensors of at least this many bytes are virtual too; smaller ones compute for real."""

FACTORIES = [
    "arange",
    "bartlett_window",
    "blackman_window",
    "empty",
    "empty_permuted",
    "empty_strided",
    "eye",
    "full",
    "hamming_window",
    "hann_window",
    "kaiser_window",
    "linspace",
    "logspace",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "range",
    "scalar_tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
]
LIKE = ["empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like"]
NEW = ["new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"]
FROM_DATA = ("tensor", "as_tensor", "asarray")
SPARSE_FROM_PARTS = [
    "sparse_bsc_tensor",
    "sparse_bsr_tensor",
    "sparse_compressed_tensor",
    "sparse_coo_tensor",
    "sparse_csc_tensor",
    "sparse_csr_tensor",
]

device_contexts._device_constructors()  # remembers the original factories, which is what device contexts compare with
_real = {name: getattr(torch, name) for name in (*FACTORIES, *FROM_DATA, *SPARSE_FROM_PARTS)}
_real_new: dict[str, Callable[..., Any]] = {name: getattr(torch.Tensor, name) for name in NEW}
_real_like: dict[str, Callable[..., Any]] = {name: getattr(torch, name) for name in LIKE}
_function_modes: Callable[[], list[Any]] = torch.overrides._get_current_function_mode_stack
_to = torch.Tensor.to
_real_type: Callable[..., Any] = torch.Tensor.type
_real_wrapper: Callable[..., Any] = torch.Tensor._make_wrapper_subclass
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


def is_gpu(device: Any) -> bool:
    """Whether `device`, as the program names it, is the simulated GPU."""
    if isinstance(device, torch.device):
        return device.type in ("cuda", NAME)
    if isinstance(device, str):
        return device.split(":")[0] in ("cuda", NAME)
    return isinstance(device, int) and not isinstance(device, bool)


def _is_host(device: Any) -> bool:
    return (isinstance(device, torch.device) and device.type == "cpu") or (
        isinstance(device, str) and device.startswith("cpu")
    )


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device the program is shown."""
    real = real_device_of(tensor)
    if real.type != NAME:
        return real
    return CUDA if state.current.cuda and not _is_hosts(tensor) else CPU


def _is_hosts(tensor: torch.Tensor) -> bool:
    """Whether a virtual tensor is the host's. Those that wrap others show the virtual device for the GPU only."""
    return type(tensor).__torch_dispatch__ is _NO_DISPATCH and is_host(_unwrapped(tensor))


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that `torch.func`'s transforms have wrapped, as by `vmap`."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A virtual tensor of the host with the geometry of a real CPU tensor, and its values where small."""
    with state.current.placed(on_host=state.current.cuda), torch._C.DisableTorchFunction():
        made = allocate(tensor.shape, tensor.stride(), tensor.dtype)
    if tensor.numel():
        values.remember(made, tensor.detach())
    return made


def _move(
    tensor: torch.Tensor, *, on_host: bool, dtype: torch.dtype | None = None, memory_format: Any = None, **rest: Any
) -> torch.Tensor:
    """`tensor` on the simulated GPU or on the host, as `Tensor.to` gives it."""
    if isinstance(tensor, UninitializedTensorMixin):  # of a lazy module: nothing but a place
        with state.current.placed(on_host=on_host):
            place: torch.Tensor = allocate((0,), (1,), dtype or tensor.dtype).as_subclass(type(tensor))
            return place
    if dtype is not None:
        rest["dtype"] = dtype
    if memory_format is not None:
        rest["memory_format"] = memory_format
    real = real_device_of(tensor).type
    crosses = real == NAME and state.current.cuda and _is_hosts(tensor) != on_host
    if crosses:
        rest["copy"] = True
    elif real == "cpu" and not on_host and state.current.cuda:
        rest["device"] = DEVICE
    elif real not in ("cpu", NAME):
        rest["device"] = DEVICE if state.current.cuda and not on_host else CPU
    if crosses and tensor.requires_grad and torch.is_grad_enabled():
        moved: torch.Tensor = _Crossing.apply(tensor, on_host, rest)  # type: ignore[no-untyped-call]
        return moved
    with state.current.placed(on_host=on_host):
        return _to(tensor, **rest)


class _Crossing(torch.autograd.Function):
    """A copy between host and GPU; PyTorch sees one device, and would leave the gradient where it arrives."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, on_host: bool, rest: dict[str, Any]) -> torch.Tensor:
        ctx.dtype, ctx.from_host = tensor.dtype, not on_host
        with state.current.placed(on_host=on_host):
            return _to(tensor, **rest)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _move(grad, on_host=ctx.from_host, dtype=ctx.dtype), None, None


def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor.to` for the devices the program knows."""
    if args and isinstance(args[0], torch.Tensor):
        other = args[0]
        args = (device_of(other), other.dtype, *args[1:])
    elif isinstance(kwargs.get("other"), torch.Tensor):
        other = kwargs.pop("other")
        args = (device_of(other), other.dtype, *args)
    if not args and "device" not in kwargs:
        return _to(tensor, **kwargs)
    if args and isinstance(args[0], torch.dtype):
        return _to(tensor, *args, **kwargs)
    device = args[0] if args else kwargs["device"]
    if not (is_gpu(device) or _is_host(device)) or (is_gpu(device) and not state.current.cuda):
        return _to(tensor, *args, **kwargs)
    rest = dict(zip(("device", "dtype", "non_blocking", "copy"), args, strict=False)) | kwargs
    del rest["device"]
    return _move(tensor, on_host=state.current.cuda and not is_gpu(device), **rest)


def cuda(
    tensor: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> torch.Tensor:
    """`Tensor.cuda`."""
    return _move(tensor, on_host=False, memory_format=memory_format, non_blocking=non_blocking)


def cpu(tensor: torch.Tensor, memory_format: Any = None) -> torch.Tensor:
    """`Tensor.cpu`."""
    return _move(tensor, on_host=state.current.cuda, memory_format=memory_format)


def _context_device() -> Any:
    """The device that the innermost `with torch.device(...)` block names, if any."""
    for mode in reversed(_function_modes()):
        if isinstance(mode, device_contexts.DeviceContext):
            return mode.device
    return None


def _factory(name: str) -> Callable[..., Any]:
    function = _real[name]

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            return function(*args, **kwargs)
        kwargs.pop("pin_memory", None)  # only a driver can pin
        device = kwargs.get("device")
        if device is None:
            device = _context_device()
        if is_gpu(device) and state.current.cuda:
            on_host = False
        elif device is None or _is_host(device):
            on_host = state.current.cuda
            if on_host and not _is_big(function, args, kwargs):
                kwargs["device"] = CPU
                return function(*args, **kwargs)
        else:
            return function(*args, **kwargs)
        kwargs["device"] = DEVICE
        kwargs.pop("generator", None)
        with state.current.placed(on_host=on_host):
            return function(*args, **kwargs)

    return make


def _after(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.zeros_like`, `Tensor.new_zeros` and their like: where the tensor is, unless a device is given."""

    @functools.wraps(function)
    def make(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        device = kwargs.pop("device", None)
        if device is None:
            device = device_of(tensor)
        on_gpu = is_gpu(device) and state.current.cuda
        virtual = real_device_of(tensor).type == NAME
        if not on_gpu and not _is_host(device):  # a kernel of the virtual device would not look at the device given
            return function(to_meta(tensor) if virtual else tensor, *args, device=device, **kwargs)
        if not state.current.cuda and virtual:
            return function(tensor, *args, **kwargs)
        if not on_gpu and not virtual and not _is_big(function, (tensor, *args), kwargs):
            return function(tensor, *args, **kwargs)
        with state.current.placed(on_host=not on_gpu):
            return function(tensor, *args, device=DEVICE, **kwargs)

    return make


def _is_big(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    keywords = {k: v for k, v in kwargs.items() if k not in ("device", "generator")}
    with torch._C.DisableTorchFunction():
        try:
            shape = function(*args, device="meta", **keywords)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return False  # the real call raises it, or it has no meta kernel and is small
    return bool(shape.numel() * shape.element_size() >= BIG)


def _from_data(name: str) -> Callable[..., Any]:
    function = _real[name]

    @functools.wraps(function)
    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        device = kwargs.pop("device", None)
        if device is None:
            device = device_of(data) if isinstance(data, torch.Tensor) else _context_device()
        if device is not None and not is_gpu(device) and not _is_host(device):
            return function(data, *args, device=device, **kwargs)
        requires_grad = kwargs.pop("requires_grad", False)
        if isinstance(data, torch.Tensor) and real_device_of(data).type == NAME:
            made = data.detach().clone() if name == "tensor" else data
            made = to(made, device, kwargs.get("dtype")) if kwargs.get("dtype") else to(made, device)
        else:
            made = function(data, *args, device=CPU, **kwargs)
            if not state.current.cuda:
                made = to_host(made)
            elif is_gpu(device):
                made = to(made, CUDA)
        return made.requires_grad_() if requires_grad else made

    return make


def _sparse_from_parts(name: str) -> Callable[..., Any]:
    """`torch.sparse_coo_tensor` and its like: parts, tensors or not, go where the result is, else to the values."""
    function = _real[name]
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
            device = device_of(values_part) if isinstance(values_part, torch.Tensor) else _context_device()
        on_host = state.current.cuda and not is_gpu(device)
        if device is not None and not is_gpu(device) and not _is_host(device):
            return function(*args, device=device, **kwargs)
        if on_host and not any(isinstance(p, torch.Tensor) and real_device_of(p).type == NAME for p in parts):
            return function(*args, device=CPU, **kwargs)
        with state.current.placed(on_host=on_host):
            parts = [_virtual(p, on_host=on_host) for p in parts]
            if parts and "size" not in kwargs and len(args) <= positional and values.content(parts[0]) is None:
                state.assume(f"{name}() without a size and with unknown indices is taken to have one row and column")
            kwargs |= dict(zip(named, parts[positional:], strict=True))
            return function(*parts[:positional], *args[positional:], device=DEVICE, **kwargs)

    return make


def _virtual(data: Any, *, on_host: bool) -> torch.Tensor:
    """`data`, a tensor anywhere or what makes one, on the virtual device."""
    part = data if isinstance(data, torch.Tensor) else _real["tensor"](data, device=CPU)
    return _move(part, on_host=on_host) if real_device_of(part).type == NAME else _to(part, DEVICE)


class Generator(torch.Generator):
    """`torch.Generator(device="cuda")`: a generator of the host that says it is the GPU's."""

    def __new__(cls, device: Any = None) -> Generator:
        """Make a generator for `device`."""
        return super().__new__(cls, "cpu" if is_gpu(device) else device or "cpu")  # type: ignore[call-arg]

    def __init__(self, device: Any = None) -> None:
        self._shown = CUDA if is_gpu(device) else torch.device(device or "cpu")

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device it was asked for."""
        return self._shown


_real_parameter_new = torch.nn.Parameter.__new__


def _parameter_new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
    """Parameters are virtual even on the host: PyTorch can then move them in place, as it does from CPU to CUDA."""
    if (
        data is not None
        and type(data) in (torch.Tensor, torch.nn.Parameter)
        and data.is_cpu
        and data.layout is torch.strided
        and real_device_of(data).type == "cpu"
    ):
        data = to_host(data)
    return _real_parameter_new(cls, data, requires_grad)


def _lazy_parameter_new(
    cls: Any, requires_grad: bool = True, device: Any = None, dtype: torch.dtype | None = None
) -> Any:
    data = torch.empty(0, device=device, dtype=dtype)
    return torch.Tensor._make_subclass(cls, to_host(data) if data.is_cpu else data, requires_grad)


def _make_wrapper(*args: Any, **kwargs: Any) -> Any:
    """`Tensor._make_wrapper_subclass`, on which nested tensors and others that are made of tensors are built."""
    if is_gpu(kwargs.get("device")):
        kwargs["device"] = DEVICE
    return _real_wrapper(*(DEVICE if isinstance(a, torch.device) and is_gpu(a) else a for a in args), **kwargs)


_data: Any = torch.Tensor.data


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    if real_device_of(tensor).type == NAME and real_device_of(value).type == "cpu":
        value = to_host(value)
    _data.__set__(tensor, value)


def _tensor_type(tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    if dtype is None:
        if real_device_of(tensor).type != NAME:
            return _real_type(tensor)
        name: Any = _real_type(_real["empty"](0, dtype=tensor.dtype, device="cpu"))
        return name.replace("torch.", "torch.cuda.") if device_of(tensor).type == "cuda" else name
    if isinstance(dtype, torch.dtype):
        return _to(tensor, dtype)
    wanted = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    plain = getattr(torch, wanted.split(".")[-1])(0).dtype
    return to(tensor, CUDA if ".cuda." in wanted else CPU, plain)


def _describe(tensor: torch.Tensor, **_: Any) -> str:
    if real_device_of(tensor).type != NAME:
        return _real_repr(tensor)
    known = values.content(tensor.detach()) if tensor.numel() <= 64 and tensor.layout is torch.strided else None
    shown = str(known.tolist()) if known is not None else "..."
    return f"tensor({shown}, size={tuple(tensor.shape)}, dtype={tensor.dtype}, device='{device_of(tensor)}')"


_real_repr: Callable[..., str] = torch.Tensor.__repr__
_real_numpy = torch.Tensor.numpy
_real_tolist = torch.Tensor.tolist
_real_data_ptr: Callable[[torch.Tensor], int] = torch.Tensor.data_ptr
_real_storage_data_ptr: Callable[[Any], int] = torch.UntypedStorage.data_ptr
_real_storage_resize = torch.UntypedStorage.resize_


def _address(entry: Any) -> int:
    """An address nothing else has: programs compare them to find tensors that share memory."""
    return (int(entry.number) + 1) << 44


def _data_ptr(tensor: torch.Tensor) -> int:
    if real_device_of(tensor).type != NAME:
        return _real_data_ptr(tensor)
    return _address(entry_of(tensor)) + int(tensor.storage_offset()) * tensor.element_size() if tensor.numel() else 0


def _storage_data_ptr(storage: Any) -> int:
    return _address(storage.entry) if hasattr(storage, "entry") else _real_storage_data_ptr(storage)


def _numpy(tensor: torch.Tensor, **kwargs: Any) -> Any:
    if real_device_of(tensor).type != NAME:
        return _real_numpy(tensor, **kwargs)
    if device_of(tensor).type == "cuda" and not kwargs.get("force"):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory"
            " first."
        )
    if tensor.requires_grad and not kwargs.get("force"):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    return _real_numpy(read(tensor))


def _tolist(tensor: torch.Tensor) -> Any:
    return _real_tolist(read(tensor) if real_device_of(tensor).type == NAME else tensor)


def read(tensor: torch.Tensor) -> torch.Tensor:
    """A real copy of a virtual tensor; an unknown value is zero and noted as an assumption."""
    tensor = tensor.detach()
    if values.content(tensor) is None and values.uniform_value(tensor) is None:
        state.assume("values read from the device are taken as 0")
    return values.real_copy(tensor)


def _array(tensor: torch.Tensor, dtype: Any = None, copy: Any = None) -> Any:
    array = _numpy(tensor)
    return array if dtype is None else array.astype(dtype, copy=False)


def _resize_storage(storage: torch.UntypedStorage, nbytes: int) -> torch.UntypedStorage:
    if hasattr(storage, "entry"):
        resize_storage(storage, nbytes)
        return storage
    _real_storage_resize(storage, nbytes)
    return storage


_real_default_device = torch.get_default_device


def _default_device() -> torch.device:
    device = _real_default_device()
    return CUDA if device.type == NAME else device


class _Context(device_contexts.DeviceContext):
    """A device context that names the virtual device where the program says cuda."""

    def __init__(self, device: Any) -> None:
        super().__init__(DEVICE if is_gpu(device) and state.current.cuda else device)


def patches(device: Device) -> list[tuple[Any, str, Any]]:
    """Everything replaced while `device` is simulated: owner, name, replacement."""
    tensor = torch.Tensor
    replaced: list[tuple[Any, str, Any]] = [(torch, name, _factory(name)) for name in FACTORIES]
    replaced += [(torch, name, _from_data(name)) for name in FROM_DATA]
    replaced += [(torch, name, _sparse_from_parts(name)) for name in SPARSE_FROM_PARTS]
    replaced += [(torch, name, _after(_real_like[name])) for name in LIKE]
    replaced += [(tensor, name, _after(_real_new[name])) for name in NEW]
    replaced += [
        (tensor, "device", property(device_of)),
        (tensor, "is_cuda", property(lambda t: device_of(t).type == "cuda")),
        (tensor, "is_cpu", property(lambda t: device_of(t).type == "cpu")),
        (tensor, "to", to),
        (tensor, "cpu", cpu),
        (tensor, "type", _tensor_type),
        (tensor, "get_device", lambda t: 0 if device_of(t).type == "cuda" else -1),
        (tensor, "numpy", _numpy),
        (tensor, "__array__", _array),
        (tensor, "tolist", _tolist),
        (tensor, "__repr__", _describe),
        (tensor, "pin_memory", lambda t, *_: t),
        (tensor, "is_pinned", lambda t, *_: False),
        (tensor, "record_stream", lambda t, _: None),
        (
            tensor,
            "new_tensor",
            lambda t, data, **kw: torch.tensor(data, **{"dtype": t.dtype, "device": device_of(t), **kw}),
        ),
        (tensor, "_make_wrapper_subclass", staticmethod(_make_wrapper)),
        (tensor, "data", property(_data.__get__, _set_data)),
        (torch.nn.Parameter, "__new__", staticmethod(_parameter_new)),
        (UninitializedParameter, "__new__", staticmethod(_lazy_parameter_new)),
        (torch.UntypedStorage, "pin_memory", lambda s, *_, **__: s),
        (torch.UntypedStorage, "resize_", _resize_storage),
        (torch.UntypedStorage, "data_ptr", _storage_data_ptr),
        (tensor, "data_ptr", _data_ptr),
        (device_contexts, "DeviceContext", _Context),
        (torch, "get_default_device", _default_device),
    ]
    if device.is_cuda:
        replaced += [(tensor, "cuda", cuda), (torch, "Generator", Generator)]
    return replaced
