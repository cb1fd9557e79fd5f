"""Propagation of known values through kernels: whole contents, one value for all elements, sparsity.

Small operands with known content are computed for real on the CPU. An elementwise op on operands that hold one value
each gives one value. Zeros into which a few elements are written keep a bound on the number of nonzero elements.
`isnan`, `isinf` and `isfinite` are answered as in a healthy run.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator.device import entry_of, real
from memlint.accelerator.kernel import Kernel, tensors_in
from memlint.accelerator.private import overload_name
from memlint.accelerator.ranges import follow_ranges
from memlint.accelerator.routing import follow_routing
from memlint.accelerator.values import (
    MAX_SHADOW,
    content,
    covers_storage,
    forget,
    is_known_kind,
    make_uniform,
    nonzero_bound,
    remember,
    uniform_value,
)

Tensor = torch.Tensor

_OVERWRITES = frozenset(("fill_", "zero_", "copy_", "_copy_from"))
"""In-place ops whose result does not depend on the previous content."""
_SCATTER = "aten.scatter_.src"
_KEEPS = frozenset(("_amp_foreach_non_finite_check_and_unscale_", "set_"))
"""Ops that change no value: one writes a flag which stays as it is in a healthy run, one reads another storage."""
_RESIZES = tuple(f"{name}{rank}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3))
_MOVES_VALUES = frozenset(
    ("clone", "_to_copy", "copy_", "_copy_from", "cat", "stack", "index_select", "gather", "index", "repeat", *_RESIZES)
)
_READ_FIRST_ONLY = frozenset(("_copy_from", "index_select", "gather", "index", *_RESIZES))
_DECIDING = {
    **dict.fromkeys(("bitwise_and", "bitwise_and_", "__and__", "logical_and", "logical_and_", "mul", "mul_"), False),
    **dict.fromkeys(("bitwise_or", "bitwise_or_", "__or__", "logical_or", "logical_or_"), True),
}
"""Value of an operand that decides the result of an op, whatever the other operand is: False for integers, both for
booleans."""
_FALSE_OF_ZERO = ("gt", "lt", "ne")
"""Comparisons with 0 that hold for no zero."""
_MADE_OF = {"zero_": 0, "new_zeros": 0, "new_ones": 1}
"""Ops whose results hold one number, with that number."""
_SUMMARIES = frozenset(("all", "any", "amax", "amin", "max", "min", "mean"))
"""Ops that return the value that all elements share."""


def follow(  # noqa: C901, PLR0912  (one case after another, in the order of their cost)
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Tensor], outputs: list[Tensor]
) -> None:
    """Update the known values after `kernel` has read `inputs` and made or written `outputs`."""
    if kernel.packet in _KEEPS or kernel.packet.startswith(("empty", "new_empty")):
        return
    results = [t for t in outputs if is_known_kind(t)]
    if not results:
        return
    follow_routing(kernel, args, inputs, results)
    follow_ranges(kernel, args, inputs, results)
    written = bool(kernel.written) or kernel.packet == "_copy_from"
    if kernel.is_random:
        if written:
            for t in results:
                forget(t)
                entry_of(t).nonzeros = None
        return
    partly = written and not covers_storage(results[0])
    target = results[0]
    if partly:
        before = nonzero_bound(target)
        bound = None if before is None else before + target.numel()
    else:
        bound = _bound_after(kernel, args, inputs, target)
    if bound is not None and bound < entry_of(target).nbytes // target.element_size():
        entry_of(target).nonzeros = bound
    elif written:
        entry_of(target).nonzeros = None
    value = _shared_value(kernel, args, kwargs, inputs, results)
    if value is not None:
        if partly and value != uniform_value(results[0]):
            _spell_out(results[0])
        make_uniform(results[0], value)
        return
    computable = _may_compute(kernel, args, kwargs, results)
    if computable and written:
        for t in results:
            _spell_out(t)
    if not (computable and _compute(kernel, args, kwargs, results)):
        if written:
            for t in results:
                forget(t)
        if kernel.packet == "all":  # programs check this and stop where it is false
            entry_of(results[0]).likely = True
        elif not results[0].dim() and _is_of_norms(kernel.packet, inputs):  # programs divide by these
            entry_of(results[0]).likely = 1.0


def _is_of_norms(packet: str, inputs: list[Tensor]) -> bool:
    """Return True if a kernel gives a norm, or a value computed from norms alone; norms are assumed to be 1."""
    return packet == "linalg_vector_norm" or (
        packet in ("mul", "div", "sqrt") and all(is_known_kind(t) and entry_of(t).likely == 1.0 for t in inputs)
    )


def _spell_out(tensor: Tensor) -> None:
    """Before a write that differs between elements, turn one shared value into a shadow, or forget it."""
    entry = entry_of(tensor)
    if entry.uniform is not None and entry.shadow is None:
        nbytes, dtype = entry.nbytes, entry.uniform_dtype
        if nbytes <= MAX_SHADOW:
            filled = real.full((nbytes // dtype.itemsize,), entry.uniform, dtype=dtype, device="cpu")
            entry.shadow = filled.untyped_storage()
    entry.uniform = None


def _shared_value(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Tensor], results: list[Tensor]
) -> Any:
    """Return the value that all elements of the one output have now, or None."""
    packet = kernel.packet
    if packet in ("eq", "ne", "isnan") and (not isinstance(args[0], Tensor) or content(args[0]) is None):
        answer = _healthy(packet, args)
        if answer is not None:
            return answer
    if packet in _MADE_OF:
        return _MADE_OF[packet]
    if packet in ("fill_", "fill"):
        return uniform_value(args[1]) if isinstance(args[1], Tensor) else args[1]
    if len(results) != 1 or not (
        kernel.pointwise or packet in _MOVES_VALUES or packet in _SUMMARIES or packet == "sum"
    ):
        return None
    reads = inputs[1:] if packet == "copy_" else inputs[:1] if packet in _READ_FIRST_ONLY else inputs
    shared = [uniform_value(t) for t in reads]
    if not shared or None in shared:
        return _decided(packet, shared, results[0])
    if packet in _MOVES_VALUES:
        return shared[0] if all(v == shared[0] for v in shared) else None
    if packet == "sum":
        return shared[0] * (reads[0].numel() // max(results[0].numel(), 1))
    if packet in _SUMMARIES:
        return bool(shared[0]) if results[0].dtype is torch.bool else shared[0]
    return _evaluate(kernel, args, kwargs, dict(zip(map(id, reads), shared, strict=True)))


def _decided(packet: str, values: list[Any], result: Tensor) -> bool | None:
    """Return the result if one operand alone decides it; `values` are the operands' values, some of them unknown."""
    deciding = _DECIDING.get(packet)
    if deciding is None or result.is_floating_point() or (deciding and result.dtype is not torch.bool):
        return None
    return deciding if any(value is not None and value == deciding for value in values) else None


def _healthy(packet: str, args: tuple[Any, ...]) -> bool | None:
    """Return the answer of `isnan`, `isinf` and `isfinite` in a run where nothing overflows."""
    if packet == "isnan":
        return False
    if isinstance(args[1], Tensor):
        return packet == "eq" if args[0] is args[1] else None
    return packet == "ne" if isinstance(args[1], float) and math.isinf(args[1]) else None


def _evaluate(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], values: dict[int, Any]) -> Any:
    """Run an elementwise op on one element; `values` are those of the tensors, by their identity."""

    def stand_in(tensor: Tensor) -> Tensor:
        return real.full((), values[id(tensor)], dtype=tensor.dtype, device="cpu")

    try:
        result = kernel.op(*_replaced(args, stand_in), **{k: _replaced(v, stand_in) for k, v in kwargs.items()})
    except (RuntimeError, NotImplementedError):
        return None  # no CPU kernel for these operands
    return result.item() if isinstance(result, Tensor) and result.numel() == 1 else None


class _UnknownError(Exception):
    """The value of an operand is not known."""


def _may_compute(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], results: list[Tensor]) -> bool:
    """Return True if the results are small and something is known of every operand: a quick check before any copy."""
    blank = _overwritten(kernel)
    return (
        all(index in blank or _may_be_known(value) for index, value in enumerate(args))
        and all(name in blank or _may_be_known(value) for name, value in kwargs.items())
        and all(entry_of(t).nbytes <= MAX_SHADOW for t in results)
    )


def _may_be_known(value: Any) -> bool:
    if isinstance(value, Tensor):
        if not is_known_kind(value):
            return True
        entry = entry_of(value)
        return entry.shadow is not None or entry.uniform is not None
    return not isinstance(value, (list, tuple)) or all(map(_may_be_known, value))


@functools.cache
def _overwritten(kernel: Kernel) -> frozenset[int | str]:
    """Positions and names of arguments whose content does not matter to the kernel."""
    if kernel.packet == "_copy_from":
        return frozenset((1, "dst"))
    if kernel.name == _SCATTER:
        return frozenset((0, "self"))  # if it writes every element
    if kernel.packet in _OVERWRITES or overload_name(kernel.op).endswith("out"):
        return frozenset(place for written in kernel.written for place in written)
    return frozenset()


def _compute(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], results: list[Tensor]) -> bool:
    """Run the op on known operands and remember the result; return False if that is impossible."""
    if kernel.name == _SCATTER and content(args[0]) is None and not _is_permutation(*args[:3]):
        return False
    blank = _overwritten(kernel)

    def on_host(name: int | str, value: Any) -> Any:
        return _replaced(value, functools.partial(_real_value, blank=name in blank))

    try:
        host_args = [on_host(index, value) for index, value in enumerate(args)]
        host_kwargs = {name: on_host(name, value) for name, value in kwargs.items()}
        if kernel.packet == "_copy_from":
            result: Any = [host_args[0].to(results[0].dtype)]
        else:
            result = kernel.op(*host_args, **host_kwargs)
    except (_UnknownError, RuntimeError, NotImplementedError):
        return False  # unknown operands, no CPU kernel, or data that an earlier assumption made impossible
    if kernel.written and kernel.packet != "_copy_from":
        result = kernel.written_of(host_args, host_kwargs)
    for t, value in zip(results, tensors_in(result), strict=False):
        if t.shape == value.shape:
            remember(t, value)
        else:
            forget(t)
    return True


def _is_permutation(target: Tensor, dim: int, index: Tensor) -> bool:
    """Return True if writing at `index` along `dim` is known to reach every element of `target`."""
    known = content(index)
    if known is None or not known.dim() or known.shape != target.shape:
        return False
    return bool((known.sort(dim)[0].diff(dim=dim) == 1).all())


def _real_value(tensor: Tensor, *, blank: bool) -> Tensor:
    """Return a tensor with its known value, in memory of its own.

    Content that will be overwritten need not be known.
    """
    known = content(tensor)
    if known is not None:
        return known.clone() if is_known_kind(tensor) else known
    if not blank:
        raise _UnknownError
    return real.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _replaced(value: Any, real_of: Callable[[Tensor], Tensor]) -> Any:
    """Replace tensors in `value`, and its devices by the CPU."""
    if isinstance(value, Tensor):
        return real_of(value)
    if isinstance(value, (list, tuple)):
        return [_replaced(v, real_of) for v in value]
    return torch.device("cpu") if isinstance(value, torch.device) else value


_KEEPS_ZEROS = frozenset(("clone", "_to_copy", "neg", "div", "div_", "tril", "triu", "relu", "abs", "sqrt"))


_ANDS = frozenset(("bitwise_and", "bitwise_and_", "logical_and", "logical_and_", "__and__", "__iand__"))
_ORS = frozenset(("bitwise_or", "bitwise_or_", "logical_or", "logical_or_", "__or__", "__ior__"))


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


def _bound_after(  # noqa: C901  (one case for each kind of op)
    kernel: Kernel, args: tuple[Any, ...], inputs: list[Tensor], target: Tensor
) -> int | None:
    """Bound the nonzero elements of `target`, for the ways in which sparse data is written into dense tensors."""
    packet = kernel.packet
    if packet == "zero_":
        return 0
    if packet == "eye":
        return min(target.shape)
    if not inputs:
        return None
    if packet in ("mul", "mul_", *_ANDS):
        bounds = [b for t in inputs if t.numel() == target.numel() and (b := nonzero_bound(t)) is not None]
        return min(bounds, default=None)
    if packet == "copy_":
        return nonzero_bound(inputs[1]) if len(inputs) > 1 and inputs[1].shape == target.shape else None
    before = nonzero_bound(inputs[0])
    if before is None or (inputs[0].numel() != target.numel() and packet != "fill_diagonal_"):
        return None
    if packet in _KEEPS_ZEROS or packet == "_copy_from" or (packet in _FALSE_OF_ZERO and _is_zero(args[1])):
        return before
    if packet in ("add", "add_", "sub", "sub_", "maximum", *_ORS):
        others = [nonzero_bound(t) for t in inputs[1:]]
        return before + sum(b for b in others if b is not None) if others and None not in others else None
    if packet == "fill_diagonal_":
        return before + min(target.shape)
    if packet in ("index_put", "index_put_", "_index_put_impl_"):
        return before + _indexed(target, args[1])
    if packet in ("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"):
        return before + int(args[2].numel())
    return before + int(args[3].numel()) if packet in ("index_add", "index_add_", "index_copy", "index_copy_") else None


def _indexed(target: Tensor, indices: list[Tensor | None]) -> int:
    """Return the largest number of elements that `target[indices] = ...` writes."""
    indexed = [i for i in indices if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for i in indexed):
        return target.numel()
    elements: int = math.prod(torch.broadcast_shapes(*[i.shape for i in indexed]))
    rest: list[int] = [n for d, n in enumerate(target.shape) if d >= len(indices) or indices[d] is None]
    return elements * math.prod(rest)
