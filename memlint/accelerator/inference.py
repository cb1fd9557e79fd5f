"""Shapes of results, inferred by PyTorch's meta kernels.

The shape of a result depends only on the geometry of the arguments, so it is inferred once per geometry and cached.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from memlint.accelerator import state
from memlint.accelerator.device import allocate, real
from memlint.accelerator.dtypes import refuse_dtypes
from memlint.accelerator.kernel import Kernel, kernel_of
from memlint.accelerator.private import DisableTorchFunction, decomposition_table, meta_kernels
from memlint.base.errors import TraceError

Tensor = torch.Tensor

_results: dict[Any, Any] = {}
"""Inferred results, by the kind of simulated device (GPU or host), kernel and geometry of the arguments."""
_memory = _results
"""The table in which results are looked up: see `remembering`."""


_hint = meta_kernels.device_hint


def _device_hint(tensor: Any) -> str:
    """Make meta kernels act as a device's kernels do.

    PyTorch takes CUDA's if no tensor has a device other than meta.
    """
    return "cpu" if not state.current.cuda and tensor.device.type == "meta" else _hint(tensor)


meta_kernels.device_hint = _device_hint


def describe(args: Sequence[Any], key: list[Any], tensors: list[Tensor]) -> bool:
    """Append the geometry of `args` to `key` and their tensors to `tensors`.

    Return True if the key determines the result.
    """
    cacheable = True
    for a in args:
        if isinstance(a, Tensor):
            tensors.append(a)
            key.append((a.shape, a.stride(), a.dtype))
            if not a.dim() and real.is_cpu(a):
                cacheable = False  # a Python number may be a CPU tensor, which promotes less
        elif isinstance(a, (list, tuple)):
            key.append(len(a))
            cacheable &= describe(a, key, tensors)
        else:
            key.append(a)
            key.append(a.__class__)
    return cacheable


def infer(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the geometries of `kernel`'s results for these arguments from PyTorch's meta kernel; cached."""
    key: list[Any] = [kernel]
    cacheable = describe((*args, *kwargs.values()), key, [])
    return infer_described(kernel, key if cacheable else None, args, kwargs)


def infer_described(kernel: Kernel, key: list[Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Infer from the `key` that `describe` has made of the arguments; None if the key does not determine the result."""
    if key is None:
        return infer_anew(kernel, args, kwargs)
    hashable: Any = (state.current.cuda, *key)
    try:
        return _memory[hashable]
    except KeyError:
        pass
    except TypeError:  # an argument is not hashable
        return infer_anew(kernel, args, kwargs)
    shapes = _memory[hashable] = infer_anew(kernel, args, kwargs)
    return shapes


class Remembered(dict[Any, Any]):
    """Some of the inferred results, by kernel and geometry; missing ones are taken from the full table."""

    def __missing__(self, key: Any) -> Any:
        value = self[key] = _results[key]
        return value


@contextlib.contextmanager
def remembering(remembered: Remembered) -> Iterator[None]:
    """Look up results in `remembered` inside the block, and store there every one that is asked for."""
    global _memory  # noqa: PLW0603
    _memory = remembered
    try:
        yield
    finally:
        _memory = _results


def infer_anew(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Infer without a look at earlier results."""
    if state.current.cuda:
        refuse_dtypes(kernel.packet, args)
    distinct = distinct_positions(args, kwargs) if kernel.over_lists else None
    if distinct is None:
        return _infer_all(kernel, args, kwargs)
    results = _infer_all(kernel, distinct.args, distinct.kwargs)
    return [distinct.spread(written) for written in results] if kernel.written else distinct.spread(results)


def _infer_all(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    meta_args = tuple(to_meta(a) for a in args)
    meta_kwargs = {k: to_meta(v) for k, v in kwargs.items()}
    with DisableTorchFunction():
        try:
            result = _infer_result(kernel, meta_args, meta_kwargs)
        except IndexError:
            # The inference of index_add and index_reduce reads a row that may not exist; their kernels on GPU and meta
            # do not.
            result = kernel.op(*meta_args, **meta_kwargs)
        # For an op that writes its arguments: their new geometry.
        return geometries(kernel.written_of(meta_args, meta_kwargs) if kernel.returns_written else result)


def _decomposition(kernel: Kernel, error: NotImplementedError) -> Callable[..., Any]:
    """Return what infers for an op without a meta kernel: PyTorch's decomposition, or the overload without `out`.

    Raises TraceError if there is neither.
    """
    function = decomposition_table.get(kernel.op) or _without_out(kernel)
    if function is None:
        name = f"{kernel.op.namespace}::{kernel.packet}"
        raise TraceError(
            f"{name} cannot be traced: the shapes of its results are not known",
            f'Register a fake implementation of it with @torch.library.register_fake("{name}").',
        ) from error
    return function


def _without_out(kernel: Kernel) -> Callable[..., Any] | None:
    """Return what gives `out` the shapes that the functional overload infers; None for any other overload."""
    overload = kernel.name.rpartition(".")[2].removesuffix("out").removesuffix("_") or "default"
    functional = getattr(kernel.op.overloadpacket, overload, None)
    names = [name for _, name in kernel.written if name in kernel.results]
    if functional is None or functional is kernel.op or not names:
        return None

    def infer_out(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs.pop(name) for name in names]
        result = _infer_result(kernel_of(functional), args, kwargs)
        for out, shaped in zip(outs, result if isinstance(result, tuple) else (result,), strict=True):
            out.resize_(shaped.shape)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return infer_out


def _infer_result(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return kernel.infer(*args, **kwargs)
    except NotImplementedError as error:
        return _decomposition(kernel, error)(*args, **kwargs)


_PROMOTING_LESS = {
    torch.int64: torch.zeros((), dtype=torch.int8),
    torch.float64: torch.zeros((), dtype=torch.float16),
    torch.complex128: torch.zeros((), dtype=torch.float16),
}
"""By the dtype in which PyTorch wraps Python numbers: a tensor that such a number does not promote to this dtype."""


def _is_wrapped_number(value: Tensor) -> bool:
    """Return True if a 0-dim host tensor stands for a Python number, which promotes less than a tensor."""
    other = _PROMOTING_LESS.get(value.dtype)
    return other is not None and torch.result_type(other, value) is not value.dtype


def to_meta(value: Any) -> Any:
    """Return `value` with its tensors and devices replaced by meta ones; Python numbers keep their promotion rules."""
    if isinstance(value, Tensor):
        if not value.dim() and real.is_cpu(value) and _is_wrapped_number(value):
            return value
        return real.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [to_meta(v) for v in value]
    return torch.device("meta") if isinstance(value, torch.device) else value


@dataclass(slots=True, eq=False)
class Shape:
    """Geometry of a tensor to be made: shape, stride in elements, dtype."""

    shape: Sequence[int]
    stride: Sequence[int]
    dtype: torch.dtype


def geometries(value: Any) -> Any:
    """Return `value` with its tensors replaced by their geometry."""
    if isinstance(value, Tensor):
        return Shape(value.shape, value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return [geometries(v) for v in value]
    return value


def materialize(shapes: Any) -> Any:
    """Allocate a tensor for every geometry in `shapes`, in order."""
    if isinstance(shapes, Shape):
        return allocate(shapes.shape, shapes.stride, shapes.dtype)
    if isinstance(shapes, list):
        return tuple(materialize(s) for s in shapes)
    return shapes


# Kernels over lists: the result at one position does not depend on the others. A model has thousands of parameters of a
# dozen shapes, so shapes are inferred for one position of each kind.


class Distinct(NamedTuple):
    """The arguments of a `_foreach_` kernel, with lists that have one position of each kind."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    kinds: list[int]
    """For each position of the original lists, the equal position of the shortened ones."""

    def spread(self, results: list[Any]) -> list[Any]:
        """Expand a list over the shortened lists' positions to one over all positions."""
        return [results[kind] for kind in self.kinds]


def distinct_positions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Distinct | None:
    """Find the positions that differ in geometry or numbers; None if all do, or if they depend on each other."""
    values = (*args, *kwargs.values())
    lists = [value for value in values if isinstance(value, (list, tuple))]
    if len({len(each) for each in lists}) != 1 or any(isinstance(value, Tensor) for value in values):
        return None
    first: dict[Any, int] = {}
    kinds: list[int] = []
    chosen: list[int] = []
    for index, position in enumerate(zip(*lists, strict=True)):
        properties = tuple(map(_properties, position))
        if None in properties:
            return None
        kind = first.setdefault(properties, len(chosen))
        if kind == len(chosen):
            chosen.append(index)
        kinds.append(kind)
    if len(chosen) == len(kinds):
        return None

    def shortened(value: Any) -> Any:
        return [value[index] for index in chosen] if isinstance(value, (list, tuple)) else value

    return Distinct(tuple(map(shortened, args)), {name: shortened(value) for name, value in kwargs.items()}, kinds)


def _properties(value: Any) -> Any:
    """Return everything on which a result can depend; None if that cannot be seen."""
    if isinstance(value, Tensor):
        if not value.dim() and real.is_cpu(value):
            return None  # it may be a Python number, which promotes differently
        return value.shape, value.stride(), value.dtype
    return (value.__class__, value) if isinstance(value, (bool, int, float, complex)) else None
