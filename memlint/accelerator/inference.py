"""Shapes of results, inferred by PyTorch's meta kernels.

A kernel's result depends on the geometry of its arguments alone, so it is inferred once per geometry and remembered.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from memlint.accelerator import state
from memlint.accelerator.device import allocate, real
from memlint.accelerator.kernel import Kernel
from memlint.accelerator.private import DisableTorchFunction, decomposition_table, meta_kernels
from memlint.base.errors import TraceError

Tensor = torch.Tensor

_results: dict[Any, Any] = {}
"""What was inferred, by whether a GPU is simulated, kernel and geometry of the arguments."""
_memory = _results
"""Where that is looked up: see `remembering`."""


_hint = meta_kernels.device_hint


def _device_hint(tensor: Any) -> str:
    """Whose kernel a meta kernel is to be like; PyTorch takes CUDA's where a tensor has no other device than meta."""
    return "cpu" if not state.current.cuda and tensor.device.type == "meta" else _hint(tensor)


meta_kernels.device_hint = _device_hint


def describe(args: Sequence[Any], key: list[Any], tensors: list[Tensor]) -> bool:
    """Append the geometry of `args` to `key` and their tensors to `tensors`; say whether the key tells all."""
    cacheable = True
    for a in args:
        if isinstance(a, Tensor):
            tensors.append(a)
            key.append((a.shape, a.stride(), a.dtype))
            if not a.dim() and real.is_cpu(a):
                cacheable = False  # a Python number is a CPU tensor that promotes differently, and does not show it
        elif isinstance(a, (list, tuple)):
            key.append(len(a))
            cacheable &= describe(a, key, tensors)
        else:
            key.append(a)
            key.append(a.__class__)
    return cacheable


def infer(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The geometries `kernel` returns for these arguments, by PyTorch's meta kernel; remembered."""
    key: list[Any] = [kernel]
    cacheable = describe((*args, *kwargs.values()), key, [])
    return infer_described(kernel, key if cacheable else None, args, kwargs)


def infer_described(kernel: Kernel, key: list[Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same for arguments that `describe` has made `key` of; None where it does not tell all."""
    if key is None:
        return infer_anew(kernel, args, kwargs)
    hashable: Any = (state.current.cuda, *key)
    try:
        return _memory[hashable]
    except KeyError:
        pass
    except TypeError:  # an argument that cannot be hashed
        return infer_anew(kernel, args, kwargs)
    shapes = _memory[hashable] = infer_anew(kernel, args, kwargs)
    return shapes


class Remembered(dict[Any, Any]):
    """Some of what was inferred, by kernel and geometry of the arguments; what it lacks comes from all that was."""

    def __missing__(self, key: Any) -> Any:
        value = self[key] = _results[key]
        return value


@contextlib.contextmanager
def remembering(remembered: Remembered) -> Iterator[None]:
    """Look up in `remembered` meanwhile, and keep there all that is asked for."""
    global _memory  # noqa: PLW0603
    _memory = remembered
    try:
        yield
    finally:
        _memory = _results


def infer_anew(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same without a look at what was inferred before."""
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
            result = kernel.infer(*meta_args, **meta_kwargs)
        except NotImplementedError as error:
            result = _decomposition(kernel, error)(*meta_args, **meta_kwargs)
        except IndexError:
            # That of index_add and index_reduce reads a row where there is none; on the GPU and on meta they do not.
            result = kernel.op(*meta_args, **meta_kwargs)
        # Of an op that writes its arguments: what these have become.
        return geometries(kernel.written_of(meta_args, meta_kwargs) if kernel.returns_written else result)


def _decomposition(kernel: Kernel, error: NotImplementedError) -> Callable[..., Any]:
    """What PyTorch composes an op of that has no meta kernel; raises TraceError where it does not."""
    function = decomposition_table.get(kernel.op)
    if function is None:
        name = f"{kernel.op.namespace}::{kernel.packet}"
        raise TraceError(
            f"{name} cannot be traced: nothing says what shapes it returns",
            f'Register a fake implementation of it with @torch.library.register_fake("{name}").',
        ) from error
    return function


_PROMOTING_LESS = {
    torch.int64: torch.zeros((), dtype=torch.int8),
    torch.float64: torch.zeros((), dtype=torch.float16),
    torch.complex128: torch.zeros((), dtype=torch.float16),
}
"""By the dtype in which PyTorch wraps Python numbers: a tensor that such a number does not raise to that dtype."""


def _is_wrapped_number(value: Tensor) -> bool:
    """Whether a 0-dim host tensor stands for a Python number, which promotes less than a tensor does."""
    other = _PROMOTING_LESS.get(value.dtype)
    return other is not None and torch.result_type(other, value) is not value.dtype


def to_meta(value: Any) -> Any:
    """`value` with its tensors and devices replaced by meta ones; Python numbers keep how they promote."""
    if isinstance(value, Tensor):
        if not value.dim() and real.is_cpu(value) and _is_wrapped_number(value):
            return value
        return real.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [to_meta(v) for v in value]
    return torch.device("meta") if isinstance(value, torch.device) else value


@dataclass(slots=True, eq=False)
class Shape:
    """The geometry of a tensor yet to be made: shape, stride in elements, dtype."""

    shape: Sequence[int]
    stride: Sequence[int]
    dtype: torch.dtype


def geometries(value: Any) -> Any:
    """`value` with its tensors replaced by their geometry."""
    if isinstance(value, Tensor):
        return Shape(value.shape, value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return [geometries(v) for v in value]
    return value


def materialize(shapes: Any) -> Any:
    """Allocate every geometry in `shapes`, in order."""
    if isinstance(shapes, Shape):
        return allocate(shapes.shape, shapes.stride, shapes.dtype)
    if isinstance(shapes, list):
        return tuple(materialize(s) for s in shapes)
    return shapes


# Kernels over lists: what happens at one position does not depend on the others. A model has thousands of parameters of
# a dozen shapes, so shapes are inferred for one position of each kind.


class Distinct(NamedTuple):
    """The arguments of a `_foreach_` kernel, with lists that have one position of each kind."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    kinds: list[int]
    """For each position of the lists as they were, the position of the shortened ones that is like it."""

    def spread(self, results: list[Any]) -> list[Any]:
        """A list over the shortened lists' positions as one over all."""
        return [results[kind] for kind in self.kinds]


def distinct_positions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Distinct | None:
    """The positions that differ in geometry or numbers; None where all do, or they depend on each other."""
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
    """What a result can depend on; None if that does not show."""
    if isinstance(value, Tensor):
        if not value.dim() and real.is_cpu(value):
            return None  # it may be a Python number, which promotes differently
        return value.shape, value.stride(), value.dtype
    return (value.__class__, value) if isinstance(value, (bool, int, float, complex)) else None
