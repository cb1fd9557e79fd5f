"""Reads of tensors by the program: values, addresses and texts.

An unknown value reads as zero, which is an assumption.
"""

from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator import state, values
from memlint.accelerator.device import entry_of, is_virtual, resize_storage
from memlint.cuda.facade.placement import device_of

Tensor = torch.Tensor
_real_repr: Callable[..., str] = Tensor.__repr__
_real_numpy = Tensor.numpy
_real_tolist = Tensor.tolist
_real_data_ptr: Callable[[Tensor], int] = Tensor.data_ptr
_real_storage_address: Callable[[Any], int] = torch.UntypedStorage.data_ptr
_real_storage_resize = torch.UntypedStorage.resize_
_real_storage_nbytes = torch.UntypedStorage.nbytes


def read(tensor: Tensor) -> Tensor:
    """Make a real copy of a virtual tensor; an unknown value is zero and noted as an assumption."""
    tensor = tensor.detach()
    if values.content(tensor) is None and values.uniform_value(tensor) is None:
        are_counts = tensor.layout is torch.strided and entry_of(tensor).total is not None
        state.assume(f"values read from the device are taken as {'equal counts' if are_counts else '0'}")
    return values.real_copy(tensor)


def _repr(tensor: Tensor, **_: Any) -> str:
    if not is_virtual(tensor):
        return _real_repr(tensor)
    known = values.content(tensor.detach()) if tensor.numel() <= 64 and tensor.layout is torch.strided else None
    shown = str(known.tolist()) if known is not None else "..."
    return f"tensor({shown}, size={tuple(tensor.shape)}, dtype={tensor.dtype}, device='{device_of(tensor)}')"


def _address(storage: Any) -> int:
    """Return an address that nothing else has: programs compare addresses to find tensors that share memory."""
    return (int(storage.entry.number) + 1) << 44 if hasattr(storage, "entry") else _real_storage_address(storage)


def _data_ptr(tensor: Tensor) -> int:
    if not is_virtual(tensor):
        return _real_data_ptr(tensor)
    start = _address(tensor.untyped_storage())
    return start + int(tensor.storage_offset()) * tensor.element_size() if tensor.numel() else 0


def _storage_resize(storage: torch.UntypedStorage, nbytes: int) -> torch.UntypedStorage:
    resize = resize_storage if hasattr(storage, "entry") else _real_storage_resize
    resize(storage, nbytes)
    return storage


def _storage_nbytes(storage: Any) -> int:
    return int(storage.entry.nbytes) if hasattr(storage, "entry") else _real_storage_nbytes(storage)


def _numpy(tensor: Tensor, **kwargs: Any) -> Any:
    if not is_virtual(tensor):
        return _real_numpy(tensor, **kwargs)
    if device_of(tensor).type == "cuda" and not kwargs.get("force"):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory"
            " first."
        )
    if tensor.requires_grad and not kwargs.get("force"):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    return _real_numpy(read(tensor))


def _array(tensor: Tensor, dtype: Any = None, copy: Any = None) -> Any:
    array = _numpy(tensor)
    return array if dtype is None else array.astype(dtype, copy=False)


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a device is simulated: owner, name, replacement."""
    return [
        (Tensor, "numpy", _numpy),
        (Tensor, "__array__", _array),
        (Tensor, "tolist", lambda t: _real_tolist(read(t) if is_virtual(t) else t)),
        (Tensor, "__repr__", _repr),
        (Tensor, "data_ptr", _data_ptr),
        (torch.UntypedStorage, "data_ptr", _address),
        (torch.UntypedStorage, "resize_", _storage_resize),
        (torch.UntypedStorage, "nbytes", _storage_nbytes),
        (torch.UntypedStorage, "__len__", _storage_nbytes),
    ]
