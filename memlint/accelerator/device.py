"""Registration of the virtual device, and tensors on it. Everything experimental that PyTorch may change is here.

Checked with torch 2.10 to 2.13: see docs/torch-versions.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from memlint.accelerator.guard import DeviceGuard
from memlint.accelerator.ledger import Entry, Ledger
from memlint.base.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME = "vgpu"

if torch._C._get_privateuse1_backend_name() not in ("privateuseone", NAME):
    raise TraceError(
        f"PyTorch's extension point for new devices is taken by {torch._C._get_privateuse1_backend_name()!r}",
        "Run memlint in an environment where no other PrivateUse1 backend is imported.",
    )
if not hasattr(torch, NAME):
    _setup_privateuseone_for_python_backend(NAME, device_guard=DeviceGuard())

torch.get_device_module(NAME).get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]  # checkpoints ask
DEVICE = torch.device(NAME, 0)
CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
META_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)

_create_empty = torch._C._acc.create_empty_tensor
_set_geometry = torch.ops.aten.set_.source_Storage_storage_offset._handle.redispatch_boxed
real_device_of: Callable[[torch.Tensor], torch.device] = torch._C.TensorBase.device.__get__
"""The device PyTorch itself sees, whatever the program is shown."""


class real:  # noqa: N801 - reads as `real.empty(...)`
    """PyTorch's own functions, whatever the facade has put in their place."""

    empty = torch.empty
    empty_strided = torch.empty_strided
    full = torch.full
    is_cpu: Callable[[torch.Tensor], bool] = torch._C.TensorBase.is_cpu.__get__  # type: ignore[attr-defined]


class State:
    """What the process is simulating: one Ledger at a time, and what new storages are."""

    ledger = Ledger()
    device: Any = None
    """The `memlint.cuda.devices.Device` simulated now, if any."""
    cuda = True
    """Whether it is a GPU: storages then carry a tag that says if they are the host's."""
    workspaces: Any = None
    """The `memlint.cuda.hidden.workspaces.Workspaces` of the GPU simulated now, if any."""
    placement: bool | None = None
    """True while host tensors are being made, False while the GPU's are; None leaves it to the operands."""
    last_host = False
    """Whether the tensor that a kernel saw last is the host's: C++ composites allocate where their operands are."""
    host_scratch: Callable[..., Any] | None = None
    """On the host: called with kernel, args and kwargs, gives what the kernel holds for itself while it runs."""
    calls: Any = None
    """Where the calls of kernels are recorded, if anywhere: see `memlint.scaling.calls`."""
    assume: Callable[[str], None] = staticmethod(lambda _text: None)
    """Called with each thing that is assumed because no device can say it."""


def allocate(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Make an uninitialised tensor of this shape and stride (in elements) on the virtual device, with a new storage."""
    tensor = _create_empty((0,), dtype)
    storage: Any = tensor.untyped_storage()
    # The Meta kernel of set_ gives the storage its size without allocating and without changing its device.
    _set_geometry(META_KEYS, tensor, storage, 0, shape, stride)
    storage.entry = State.ledger.open(storage.nbytes(), tuple(shape), dtype, host=new_on_host())
    return tensor


def new_on_host() -> bool:
    """Whether a storage made now is the host's."""
    if State.placement is not None:
        return State.cuda and State.placement
    return State.cuda and State.last_host


def reshape_storage(tensor: torch.Tensor, shape: Sequence[int], stride: Sequence[int]) -> None:
    """Give `tensor` a new geometry; if its storage has to grow, that is a death and a birth."""
    storage = tensor.untyped_storage()
    before, offset = storage.nbytes(), tensor.storage_offset()
    _set_geometry(META_KEYS, tensor, storage, offset, shape, stride)
    if storage.nbytes() != before:
        reopen(storage, tuple(shape), tensor.dtype, storage.nbytes())


def resize_storage(storage: torch.UntypedStorage, nbytes: int) -> None:
    """Change the size of a storage in place, as `UntypedStorage.resize_` does."""
    if nbytes > storage.nbytes():
        _set_geometry(META_KEYS, _create_empty((0,), torch.uint8), storage, 0, (nbytes,), (1,))
    reopen(storage, (nbytes,), torch.uint8, nbytes)


def reopen(storage: Any, shape: tuple[int, ...], dtype: torch.dtype, nbytes: int) -> None:
    """Begin the life of a storage's new bytes, then end that of its old ones, as a copying resize does."""
    storage.entry = State.ledger.open(nbytes, shape, dtype, host=storage.entry.host)


def is_virtual(value: Any) -> bool:
    """Whether `value` is a tensor on the virtual device."""
    return isinstance(value, torch.Tensor) and real_device_of(value).type == NAME


def entry_of(tensor: torch.Tensor) -> Entry:
    """The ledger entry of a virtual tensor's storage."""
    storage: Any = tensor.untyped_storage()
    entry: Entry = storage.entry
    return entry
