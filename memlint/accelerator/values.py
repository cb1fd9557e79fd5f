"""Values of device tensors that are known although no device computes them.

A small storage made from known numbers keeps them in a CPU shadow. A storage of any size whose elements all equal one
number keeps that number. For the rest reads give zero, and each such read is an assumption. How knowledge passes
through kernels is in `propagation`.
"""

from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.branches import asks_in_backward, value_that_raises_nothing
from memlint.accelerator.device import NAME, allocate, entry_of, real, real_device_of
from memlint.accelerator.ledger import Entry
from memlint.accelerator.private import DisableTorchFunction

Tensor = torch.Tensor
real_arange = torch.arange
MAX_SHADOW = 1 << 18
"""Bytes up to which the content of a storage is kept: enough for the index tables that models compute."""


def to_host(tensor: Tensor) -> Tensor:
    """A virtual tensor of the host with the geometry of a real CPU tensor, and its values where small."""
    with state.current.placed(on_host=state.current.cuda), DisableTorchFunction():
        made = allocate(tensor.shape, tensor.stride(), tensor.dtype)
    if tensor.numel():
        remember(made, tensor.detach())
    return made


def is_known_kind(tensor: Tensor) -> bool:
    """Whether `tensor` has a storage on the virtual device whose content could be known."""
    return tensor.layout is torch.strided and real_device_of(tensor).type == NAME


def covers_storage(tensor: Tensor) -> bool:
    """Whether `tensor` has as many bytes as its storage."""
    return tensor.numel() * tensor.element_size() == entry_of(tensor).nbytes


def content(tensor: Tensor) -> Tensor | None:
    """The real value of `tensor` as a CPU tensor, or None where it is not known. Writing to a shadow's changes it."""
    if not is_known_kind(tensor):
        return tensor if tensor.layout is torch.strided else None
    entry = entry_of(tensor)
    if entry.shadow is not None:
        size, stride, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
        return real.empty(0, dtype=tensor.dtype, device="cpu").set_(entry.shadow, offset, size, stride)
    shared = _shared(tensor, entry)
    if shared is not None and tensor.numel() * tensor.element_size() <= MAX_SHADOW:
        return real.full(tensor.shape, shared, dtype=tensor.dtype, device="cpu")
    return None


def _shared(tensor: Tensor, entry: Entry) -> Any:
    """The number that all elements of a storage equal, as `tensor` reads its bytes."""
    if entry.uniform is None or entry.uniform_dtype is tensor.dtype:
        return entry.uniform
    return 0 if entry.uniform == 0 and not str(entry.uniform).startswith("-") else None


def remember(tensor: Tensor, value: Tensor) -> None:
    """Make `value`, a CPU tensor of the same shape, the known content of `tensor`.

    Does nothing where `tensor` is too large, or covers a part only of a storage whose rest is unknown.
    """
    entry = entry_of(tensor)
    if entry.shadow is None:
        nbytes = entry.nbytes
        if nbytes > MAX_SHADOW or not covers_storage(tensor):
            return
        entry.shadow = torch.UntypedStorage(nbytes, device="cpu")
    shadow = content(tensor)
    assert shadow is not None
    shadow.copy_(value)


def forget(tensor: Tensor) -> None:
    """The content of this tensor's storage is no longer known."""
    entry = entry_of(tensor)
    entry.shadow = entry.uniform = entry.likely = None


def uniform_value(tensor: Tensor) -> Any:
    """The number all elements equal, or None."""
    if not is_known_kind(tensor):
        return tensor.item() if tensor.layout is torch.strided and tensor.numel() == 1 else None
    entry = entry_of(tensor)
    shared = _shared(tensor, entry)
    if shared is None and entry.shadow is not None and tensor.numel() == 1:
        known = content(tensor)
        return None if known is None else known.item()
    return shared


def make_uniform(tensor: Tensor, value: Any) -> None:
    """All elements of `tensor` now equal `value`."""
    entry = entry_of(tensor)
    value = real.full((), value, dtype=tensor.dtype, device="cpu").item()  # rounded, or cut off
    if entry.shadow is not None:
        shadow = content(tensor)
        assert shadow is not None
        shadow.fill_(value)
    if covers_storage(tensor) or _shared(tensor, entry) == value:
        entry.uniform, entry.uniform_dtype = value, tensor.dtype
    else:
        entry.uniform = None


def nonzero_bound(tensor: Tensor) -> int | None:
    """An upper bound on the elements of `tensor` that are not zero, where one below their number is known."""
    if not is_known_kind(tensor):
        small = tensor.layout is torch.strided and 1 < tensor.numel() <= MAX_SHADOW
        return int(torch.count_nonzero(tensor)) if small else None
    entry = entry_of(tensor)
    return 0 if entry.uniform == 0 else entry.nonzeros


def bound_of(tensor: Tensor) -> int | None:
    """The largest number that an element can be, where one is known: of indices picked among entries the last one."""
    if tensor.dtype is torch.bool:
        return None
    entry = entry_of(tensor)
    if entry.largest is None and entry.num_choices is not None and not tensor.is_floating_point():
        return entry.num_choices - 1
    return entry.largest


def read_scalar(tensor: Tensor) -> Any:
    """What `.item()` gives; an unknown value is zero and noted as an assumption."""
    known = content(tensor)
    if known is not None:
        return known.item()
    entry = entry_of(tensor)
    shared = _shared(tensor, entry)
    if shared is not None:
        return shared
    if entry.likely is not None:
        summary = "all() of values that are not known is taken as true"
        state.assume(summary if entry.likely is True else "the norm of values that are not known is taken as 1")
        return entry.likely
    if tensor.dtype is torch.bool and (value := value_that_raises_nothing()) is not None:
        state.assume("a check of values that are not known is taken as passed")
        return value
    most = bound_of(tensor)
    if most is not None and not asks_in_backward():
        if entry.total is not None:
            most = -(-entry.total // max(_numel(tensor), 1))
        state.assume(f"a value read from the device is taken as the largest that it can be, {most}")
        return float(most) if tensor.is_floating_point() else most
    zero: Any = False if tensor.dtype is torch.bool else 0.0 if tensor.is_floating_point() else 0
    state.assume(f"a value read from the device is taken as {zero}")
    return zero


def real_copy(tensor: Tensor) -> Tensor:
    """A real CPU tensor of what a virtual one holds, or else of its bound or zero; that takes no memory of its own."""
    known = content(tensor)
    if known is not None:
        return known.clone()
    entry = entry_of(tensor)
    if entry.total is not None and tensor.numel() == _numel(tensor):  # the first take what cannot be shared out
        share, rest = divmod(entry.total, max(tensor.numel(), 1))
        return share + (real_arange(tensor.numel(), device="cpu") < rest).to(tensor.dtype).reshape(tensor.shape)
    shared = _shared(tensor, entry)
    if shared is None:
        shared = bound_of(tensor) or 0
    return real.full((), shared, dtype=tensor.dtype, device="cpu").expand(tensor.shape)


def _numel(tensor: Tensor) -> int:
    """How many elements of its dtype the storage of `tensor` has."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def refuse_out_of_range(packet: str, args: tuple[Any, ...]) -> None:
    """Raise IndexError where a kernel that reads at an index with these arguments would read what is not there.

    A GPU stops with a device-side assertion, which names neither line nor number.
    """
    tensor, *others = args
    if packet == "index":
        for dim, index in enumerate(others[0]):
            # A mask stands for as many dimensions as it has: the indices behind it are not held against any.
            if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
                return
            _refuse(tensor, dim, index, lowest=-tensor.shape[dim])
    elif len(others) > 1 and tensor.dim():
        _refuse(tensor, others[0], others[1], lowest=0)


def _refuse(tensor: Tensor, dim: int, index: Any, lowest: int) -> None:
    known = content(index) if isinstance(index, Tensor) and index.numel() else None
    if known is None:
        return
    size = tensor.shape[dim]
    for number in (int(known.min()), int(known.max())):
        if not lowest <= number < size:
            raise IndexError(f"index {number} is out of bounds for dimension {dim} with size {size}")
