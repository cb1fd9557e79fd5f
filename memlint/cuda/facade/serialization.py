"""`torch.save`, `torch.load`, pickling and copying of tensors that have no memory.

A virtual tensor is written as its geometry, its device, and its content where that is known; nothing else takes space
in the file. Files with real tensors are read as they are and put where the program wants them.
"""

from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator import state, values
from memlint.accelerator.device import NAME, allocate, entry_of, real_device_of
from memlint.accelerator.private import REDUCE, DisableTorchFunction, tree_map

_CPU = torch.device("cpu")
_clone: Callable[..., torch.UntypedStorage] = torch.UntypedStorage.clone
_copy = torch.UntypedStorage.copy_
_reduce: Callable[..., Any] = getattr(torch.Tensor, REDUCE)


def clone_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Replace `UntypedStorage.clone`, which `copy.deepcopy` of a tensor calls."""
    entry = getattr(storage, "entry", None)
    if entry is None:
        return _clone(storage)
    with state.current.placed(on_host=entry.host):
        clone: Any = allocate((entry.nbytes,), (1,), torch.uint8).untyped_storage()
    clone.entry.shadow = entry.shadow.clone() if entry.shadow is not None else None
    for name in ("uniform", "uniform_dtype", "nonzeros"):
        setattr(clone.entry, name, getattr(entry, name))
    return clone  # type: ignore[no-any-return]


def copy_storage(storage: torch.UntypedStorage, source: torch.UntypedStorage, non_blocking: bool = False) -> Any:
    """Replace `UntypedStorage.copy_`; a virtual storage has unknown content after it."""
    target, origin = getattr(storage, "entry", None), getattr(source, "entry", None)
    if target is None and origin is None:
        return _copy(storage, source, non_blocking)
    if target is not None:
        target.shadow = target.uniform = target.nonzeros = None
    return storage


def reduce_tensor(tensor: torch.Tensor, protocol: int) -> Any:
    """Return how a tensor is pickled: the function that rebuilds it, and its arguments."""
    if real_device_of(tensor).type != NAME or tensor.layout is not torch.strided:
        return _reduce(tensor, protocol)
    known = values.content(tensor.detach())
    entry = entry_of(tensor)
    return rebuild, (
        tuple(tensor.shape),
        tensor.stride(),
        str(tensor.dtype).removeprefix("torch."),
        entry.host,
        tensor.requires_grad,
        None if known is None else known.tolist(),
        values.uniform_value(tensor.detach()),
    )


_placements: list[Callable[[bool], bool]] = []
"""For each running `torch.load`: maps the saved location of a tensor to its new one, True for the host."""


def rebuild(
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: str,
    host: bool,
    requires_grad: bool,
    known: Any,
    uniform: Any,
) -> torch.Tensor:
    """Rebuild a tensor that `reduce_tensor` has written."""
    with state.current.placed(on_host=_placements[-1](host) if _placements else host), DisableTorchFunction():
        tensor = allocate(shape, stride, getattr(torch, dtype))
    if known is not None:
        values.remember(tensor, torch.tensor(known, dtype=tensor.dtype, device=_CPU))
    elif uniform is not None:
        values.make_uniform(tensor, uniform)
    return tensor.requires_grad_(requires_grad)


def _loading(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `torch.load`, until now `inner`: real storages are read on the host and then moved."""

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        seen_gpu = False

        def to_host(storage: Any, location: str) -> Any:
            nonlocal seen_gpu
            seen_gpu = seen_gpu or place(location.startswith("cpu")) is False
            return storage

        place = _placing(map_location)
        _placements.append(place)
        try:
            with torch.serialization.safe_globals([rebuild]):
                loaded = inner(f, to_host, *args, **kwargs)
        finally:
            _placements.pop()
        if not seen_gpu:
            return loaded
        return tree_map(lambda x: x.to("cuda") if isinstance(x, torch.Tensor) and x.is_cpu else x, loaded)

    return load


def _placing(map_location: Any) -> Callable[[bool], bool]:
    """Return a function that maps a tensor's saved location (True for the host) to its new one."""
    if map_location is None:
        return lambda host: host
    if isinstance(map_location, dict):
        return lambda host: str(map_location.get(name := "cpu" if host else "cuda:0", name)).startswith("cpu")
    if callable(map_location):  # nearly always `lambda storage, location: storage`, which loads to the host
        return lambda host: True
    on_host = str(map_location).startswith(("cpu", "meta"))
    return lambda host: on_host


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a device is simulated: owner, name, replacement."""
    return [
        (torch.UntypedStorage, "clone", clone_storage),
        (torch.UntypedStorage, "copy_", copy_storage),
        (torch.Tensor, REDUCE, reduce_tensor),
        (torch, "load", _loading(torch.load)),
    ]
