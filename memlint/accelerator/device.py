"""Registration of the virtual device, and tensors on it. PyTorch's experimental interfaces are used only here.

The private functions of PyTorch used here were checked with torch 2.10 to 2.13. tests/test_torch_versions.py checks
memlint's statements by version against the installed PyTorch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.guard import DeviceGuard
from memlint.accelerator.ledger import Entry
from memlint.accelerator.private import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    DispatchKey,
    DispatchKeySet,
    TensorBase,
    create_empty_tensor,
    functorch,
    handle_of,
    num_function_modes,
    register_device,
    registered_device,
)
from memlint.base.errors import TraceError

NAME = "vgpu"

if registered_device() not in ("privateuseone", NAME):
    raise TraceError(
        f"PyTorch's extension point for new devices is taken by {registered_device()!r}",
        "Run memlint in an environment where no other PrivateUse1 backend is imported.",
    )
if not hasattr(torch, NAME):
    register_device(NAME, device_guard=DeviceGuard())

torch.get_device_module(NAME).get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]  # checkpoints call it
DEVICE = torch.device(NAME, 0)
CPU_KEYS = DispatchKeySet(DispatchKey.CPU)
META_KEYS = DispatchKeySet(DispatchKey.Meta)

set_geometry = handle_of(torch.ops.aten.set_.source_Storage_storage_offset).redispatch_boxed
"""Arguments: dispatch keys, tensor, storage, offset, shape, stride."""
_device_of: Callable[[torch.Tensor], torch.device] = TensorBase.device.__get__


def real_device_of(tensor: torch.Tensor) -> torch.device:
    """Return the device that PyTorch itself sees, whatever the program sees.

    A mode of the program's, such as that of `torch.set_default_device`, would pass on what the program sees.
    """
    if num_function_modes():
        with DisableTorchFunction():
            return _device_of(tensor)
    return _device_of(tensor)


class real:  # noqa: N801 - reads as `real.empty(...)`
    """PyTorch's own functions, whatever the facade has put in their place."""

    empty = torch.empty
    empty_strided = torch.empty_strided
    full = torch.full
    is_cpu: Callable[[torch.Tensor], bool] = TensorBase.is_cpu.__get__


def allocate(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Make an uninitialised tensor of this shape and stride (in elements) on the virtual device, with a new storage."""
    tensor = create_empty_tensor((0,), dtype)
    storage: Any = tensor.untyped_storage()
    # The Meta kernel of set_ gives the storage its size without allocating and without changing its device.
    set_geometry(META_KEYS, tensor, storage, 0, shape, stride)
    now = state.current
    bound = next((n for n in shape if n in now.unknown_sizes), 0) if now.unknown_sizes else 0
    if bound:
        storage.entry = _open_bound(now, storage.nbytes(), tuple(shape), dtype, bound)
    else:
        storage.entry = now.ledger.open(storage.nbytes(), tuple(shape), dtype, host=now.new_on_host)
    return tensor


def allocate_apart(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Make a tensor as `allocate` does, with a storage outside of the caching allocator."""
    tensor = create_empty_tensor((0,), dtype)
    storage: Any = tensor.untyped_storage()
    set_geometry(META_KEYS, tensor, storage, 0, shape, stride)
    nbytes = storage.nbytes()
    storage.entry = state.current.ledger.open(0, tuple(shape), dtype, host=False)
    storage.entry.nbytes = nbytes
    return tensor


def _open_bound(now: state.State, nbytes: int, shape: tuple[int, ...], dtype: torch.dtype, bound: int) -> Entry:
    """Open an entry of at most `nbytes` for a storage, as the size `bound` in its shape is an upper bound."""
    share = now.unknown_sizes[bound]
    entry = now.ledger.open(int(nbytes * share), shape, dtype, host=now.new_on_host, doubt=(0, nbytes))
    entry.nbytes, entry.unknown_size = nbytes, (bound, share)
    return entry


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """Make a tensor of the same storage and geometry that autograd does not see."""
    tensor_alias = create_empty_tensor((0,), tensor.dtype)
    storage: Any = tensor.untyped_storage()
    set_geometry(META_KEYS, tensor_alias, storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return tensor_alias


def strides(shape: Sequence[int], layout: torch.memory_format = torch.contiguous_format) -> tuple[int, ...]:
    """Strides in elements of a tensor of this shape without gaps in this layout."""
    if layout is not torch.contiguous_format:
        with DisableTorchFunction():
            return real.empty(shape, device="meta", memory_format=layout).stride()
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= max(n, 1)
    return tuple(reversed(steps))


def contiguous(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Make a new tensor of this shape without gaps, in order."""
    return allocate(shape, strides(shape), dtype)


def like(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Make a new tensor of the shape of `tensor` without gaps, in order."""
    return contiguous(tensor.shape, dtype or tensor.dtype)


def on_host(value: Any) -> Any:
    """Return a real tensor of the host as a virtual one there, as kernels want them; any other value as it is."""
    if not isinstance(value, torch.Tensor) or real_device_of(value).type == NAME:
        return value
    with state.current.placed(on_host=True):
        return like(value)


def set_storage(
    tensor: torch.Tensor, storage: Any, offset: Any, shape: Sequence[int], stride: Sequence[int] = ()
) -> None:
    """Let `tensor` read `storage` in this geometry; a storage that has to grow dies and is born again."""
    set_geometry(META_KEYS, tensor, storage, offset, shape, stride)
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    nbytes = (offset + last + 1) * tensor.element_size() if tensor.numel() else 0
    if nbytes > storage.entry.nbytes:
        _reopen(storage, tuple(shape), tensor.dtype, nbytes)


def resize_storage(storage: Any, nbytes: int) -> None:
    """Change the size of a storage in place, as `UntypedStorage.resize_` does."""
    entry = storage.entry
    if nbytes > entry.nbytes:
        set_geometry(META_KEYS, create_empty_tensor((0,), torch.uint8), storage, 0, (nbytes,), (1,))
    dtype = entry.ledger.births[entry.number].dtype
    _reopen(storage, (nbytes // dtype.itemsize,), dtype, nbytes)


def _reopen(storage: Any, shape: tuple[int, ...], dtype: torch.dtype, nbytes: int) -> None:
    """Begin the life of a storage's new bytes, then end that of its old ones, as a resize that copies does."""
    storage.entry = state.current.ledger.open(nbytes, shape, dtype, host=storage.entry.host)


def adopt(storage: Any) -> None:
    """Let a storage that outlives its simulation be born in the current one, with its values."""
    before, now = storage.entry, state.current
    if before.ledger is not now.ledger:
        birth = before.ledger.births[before.number]
        storage.entry = now.ledger.open(before.nbytes, birth.shape, birth.dtype, host=now.cuda and before.host)
        for name in ("shadow", "uniform", "uniform_dtype", "nonzeros"):
            setattr(storage.entry, name, getattr(before, name))


def scratch(nbytes: int, bounds: tuple[int, int] | None = None) -> Entry:
    """Take bytes of the GPU that belong to no tensor; dropping the result frees them.

    `bounds` are the least and the most bytes, if the number cannot be known exactly.
    """
    return state.current.ledger.open(nbytes, (nbytes,), torch.uint8, host=False, doubt=bounds)


_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


def is_virtual(value: Any) -> bool:
    """Return True if `value` is a tensor on the virtual device."""
    if type(value) in _PLAIN_TENSORS:
        return real_device_of(value).type == NAME
    with DisableTorchFunctionSubclass():  # a subclass may answer with the device that the program sees
        return isinstance(value, torch.Tensor) and real_device_of(value).type == NAME


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor within the wrappers that torch.func puts around it."""
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def entry_of(tensor: torch.Tensor) -> Entry:
    """Return the ledger entry of a virtual tensor's storage."""
    storage: Any = tensor.untyped_storage()
    entry: Entry = storage.entry
    return entry
