"""Known values of device tensors, although no device computes them.

A small storage made from known numbers keeps them in a CPU shadow. A storage of any size whose elements all equal one
number keeps that number. All other reads give zero, and each such read is an assumption. `propagation` says how known
values pass through kernels.
"""

import math
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.branches import asks_in_backward, value_that_raises_nothing, works_on_selected
from memlint.accelerator.device import NAME, allocate, entry_of, real, real_device_of
from memlint.accelerator.ledger import Entry
from memlint.accelerator.private import DisableTorchFunction

Tensor = torch.Tensor
real_arange = torch.arange
_INFINITE = (math.inf, -math.inf)
MAX_SHADOW = 1 << 18
"""Bytes up to which the content of a storage is kept: enough for the index tables that models compute."""


def to_host(tensor: Tensor) -> Tensor:
    """Make a virtual tensor of the host with the geometry of a real CPU tensor, and its values if small."""
    with state.current.placed(on_host=state.current.cuda), DisableTorchFunction():
        virtual = allocate(tensor.shape, tensor.stride(), tensor.dtype)
    if tensor.numel():
        remember(virtual, tensor.detach())
    return virtual


def is_known_kind(tensor: Tensor) -> bool:
    """Return True if `tensor` has a storage on the virtual device whose content could be known."""
    return tensor.layout is torch.strided and real_device_of(tensor).type == NAME


def covers_storage(tensor: Tensor) -> bool:
    """Return True if `tensor` has as many bytes as its storage."""
    return tensor.numel() * tensor.element_size() == entry_of(tensor).nbytes


def content(tensor: Tensor) -> Tensor | None:
    """Return the value of `tensor` as a CPU tensor, None if it is not known.

    Writing to one from a shadow changes the value.
    """
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
    """Return the number that all elements of a storage equal, as `tensor` reads its bytes."""
    if entry.uniform is None or entry.uniform_dtype is tensor.dtype:
        return entry.uniform
    return 0 if entry.uniform == 0 and not str(entry.uniform).startswith("-") else None


def remember(tensor: Tensor, value: Tensor) -> None:
    """Make `value`, a CPU tensor of the same shape, the known content of `tensor`.

    Does nothing if `tensor` is too large, or covers only a part of a storage whose rest is unknown.
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
    """Mark the content of this tensor's storage as unknown."""
    entry = entry_of(tensor)
    entry.shadow = entry.uniform = entry.likely = None


def uniform_value(tensor: Tensor) -> Any:
    """Return the number that all elements equal, or None."""
    if not is_known_kind(tensor):
        return tensor.item() if tensor.layout is torch.strided and tensor.numel() == 1 else None
    entry = entry_of(tensor)
    shared = _shared(tensor, entry)
    if shared is None and entry.shadow is not None and tensor.numel() == 1:
        known = content(tensor)
        return None if known is None else known.item()
    return shared


def make_uniform(tensor: Tensor, value: Any) -> None:
    """Note that all elements of `tensor` now equal `value`."""
    entry = entry_of(tensor)
    # Rounded, truncated, or for infinity the number that a cast makes of it.
    value = (
        real.full((), value, device="cpu", dtype=None if value in _INFINITE else tensor.dtype).to(tensor.dtype).item()
    )
    if entry.shadow is not None:
        shadow = content(tensor)
        assert shadow is not None
        shadow.fill_(value)
    if covers_storage(tensor) or _shared(tensor, entry) == value:
        entry.uniform, entry.uniform_dtype = value, tensor.dtype
    else:
        entry.uniform = None


def _num_nonzero(tensor: Tensor) -> int | None:
    """Count the nonzero elements; None for floats of 8 bits and unsigned integers of 16 and more: PyTorch cannot."""
    try:
        return int(torch.count_nonzero(tensor))
    except NotImplementedError:
        return None


def nonzero_bound(tensor: Tensor) -> int | None:
    """Return an upper bound on the nonzero elements of `tensor`, if one below its number of elements is known."""
    if not is_known_kind(tensor):
        small = tensor.layout is torch.strided and 1 < tensor.numel() <= MAX_SHADOW
        return _num_nonzero(tensor) if small else None
    entry = entry_of(tensor)
    return 0 if entry.uniform == 0 else entry.nonzeros


def bound_of(tensor: Tensor) -> int | None:
    """Return the largest number that an element can be, if known; for indices picked among entries the last entry."""
    if tensor.dtype is torch.bool:
        return None
    entry = entry_of(tensor)
    if entry.largest is None and entry.num_choices is not None and not tensor.is_floating_point():
        return entry.num_choices - 1
    return entry.largest


def read_scalar(tensor: Tensor) -> Any:
    """Return the value of `.item()`; an unknown value is zero and noted as an assumption."""
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
    if tensor.dtype is torch.bool and works_on_selected():
        state.assume("any() of a mask that is not known is taken as true where elements are then taken by it")
        return True
    most = bound_of(tensor)
    if most is not None and not asks_in_backward():
        if entry.total is not None:
            most = -(-entry.total // max(_numel(tensor), 1))
        elif entry.num_distinct is not None:
            most -= int(tensor.storage_offset()) % entry.num_distinct
        state.assume(f"a value read from the device is taken as the largest that it can be, {most}")
        return float(most) if tensor.is_floating_point() else most
    zero: Any = False if tensor.dtype is torch.bool else 0.0 if tensor.is_floating_point() else 0
    state.assume(f"a value read from the device is taken as {zero}")
    return zero


def real_copy(tensor: Tensor) -> Tensor:
    """Return a real CPU tensor of a virtual one's value, or of its bound, or zero.

    Large ones of the latter two take no memory; others have strides that compiled code takes (numba's does).
    """
    known = content(tensor)
    if known is not None:
        return known.clone()
    entry = entry_of(tensor)
    if entry.total is not None and tensor.numel() == _numel(tensor):  # the first elements take the remainder
        share, rest = divmod(entry.total, max(tensor.numel(), 1))
        return share + (real_arange(tensor.numel(), device="cpu") < rest).to(tensor.dtype).reshape(tensor.shape)
    shared = _shared(tensor, entry)
    if shared is None:
        shared = bound_of(tensor) or 0
        if entry.num_distinct is not None and tensor.is_contiguous() and tensor.numel() <= MAX_SHADOW:
            positions: Tensor = int(tensor.storage_offset()) + real_arange(tensor.numel(), device="cpu")
            distinct: Tensor = shared - positions % entry.num_distinct
            return distinct.to(tensor.dtype).reshape(tensor.shape)
    shape = tensor.shape if tensor.numel() <= MAX_SHADOW else ()
    return real.full(shape, shared, dtype=tensor.dtype, device="cpu").expand(tensor.shape)


def _numel(tensor: Tensor) -> int:
    """Return the number of elements of its dtype that the storage of `tensor` has."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def refuse_out_of_range(packet: str, args: tuple[Any, ...]) -> None:
    """Raise IndexError if a kernel that reads at an index with these arguments would read out of range.

    A GPU stops with a device-side assertion, which names neither line nor number.
    """
    tensor, *others = args
    if packet == "index":
        for dim, index in enumerate(others[0]):
            # A mask stands for as many dimensions as it has: indices after it cannot be matched with a dimension.
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
