"""How large values can be that are not known: an input's are below its `high`, counts add up to what was counted.

A value that is read may decide a size, so the largest it can be is what a read gives, and counts that add up to a total
are read as equal shares of it. For masks that compare such values with numbers, these are taken as spread evenly.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.values import MAX_SHADOW, content, covers_storage, is_known_kind, real_arange, uniform_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlint.accelerator.kernel import Kernel

Tensor = torch.Tensor

_NAMES = """
    clone _to_copy copy_ _copy_from index_select gather index repeat flip roll sort topk max min amax amin median mode
    masked_select tril triu _unique _unique2 unique_dim unique_consecutive cat stack maximum where masked_fill
    masked_fill_ scatter scatter_ repeat_interleave squeeze_copy
"""
_KEEPS = frozenset(_NAMES.split())
"""Ops whose results are some of the numbers that their operands hold."""
_SCATTERS = ("scatter", "scatter_")
_POSITIONS = {
    "copy_": (1,),
    "where": (1, 2),
    "masked_fill": (0, 2),
    "masked_fill_": (0, 2),
    "scatter": (0, 3),
    "scatter_": (0, 3),
    "clamp": (0, 2),
    "clamp_": (0, 2),
}
_COMPARES = frozenset(("ge", "gt", "le", "lt"))
_COMBINES = frozenset(("bitwise_and", "logical_and", "bitwise_or", "logical_or", "bitwise_not", "logical_not"))


def largest(value: Any) -> int | None:
    """The largest number that a tensor, or a number itself, can be, where one is known."""
    if isinstance(value, (int, float)):
        return int(value) if math.isfinite(value) else None
    if not isinstance(value, Tensor):
        return None
    uniform = uniform_value(value)
    if isinstance(uniform, (int, float)):
        return int(uniform) if math.isfinite(uniform) else None
    known = None if value.is_floating_point() or value.is_complex() or not value.numel() else content(value)
    if known is not None:
        return int(known.max())
    return entry_of(value).largest if is_known_kind(value) else None


def follow_ranges(kernel: Kernel, args: tuple[Any, ...], inputs: list[Tensor], made: list[Tensor]) -> None:
    """Keep track of how large the elements of the first result can be."""
    target = made[0]
    entry = entry_of(target)
    packet = kernel.packet
    if packet == "random_":
        entry.largest = entry.sample = None
        bounds = [a for a in args[1:3] if isinstance(a, int)]
        if bounds and bounds[-1] > 0 and covers_storage(target):
            lowest, entry.largest = (bounds[0] if len(bounds) == 2 else 0), bounds[-1] - 1
            if lowest >= 0 and target.untyped_storage().nbytes() <= MAX_SHADOW:
                steps = real_arange(target.numel(), device="cpu") * (bounds[-1] - lowest)
                entry.sample = lowest + steps // max(target.numel(), 1)
        return
    counts = packet == "bincount" or packet in _SCATTERS
    if not counts and not any(is_known_kind(t) and entry_of(t).largest is not None for t in inputs):
        entry.largest = entry.total = entry.sample = None
        return
    entry.largest = _largest_of(packet, args, target)
    entry.sample = _sampled(kernel, args, target)
    if packet == "bincount":
        entry.total = inputs[0].numel() if len(inputs) == 1 else None
    elif packet == "sum" and is_known_kind(inputs[0]) and not target.is_floating_point():
        bound, most = entry_of(inputs[0]).nonzeros, largest(inputs[0])
        entry.total = bound * most if bound is not None and most else None
    else:
        source = inputs[0] if inputs and packet in ("_to_copy", "clone") and is_known_kind(inputs[0]) else None
        entry.total = None if source is None else entry_of(source).total


def _largest_of(packet: str, args: tuple[Any, ...], target: Tensor) -> int | None:
    if target.dtype is torch.bool:
        return 1
    if packet == "bincount":
        return int(args[0].numel())
    if packet in ("sum", "cumsum"):
        most = largest(args[0])
        return None if most is None else most * (args[0].numel() // max(1 if packet == "cumsum" else target.numel(), 1))
    highs = [largest(operand) for operand in _operands(packet, args)]
    if packet in ("clamp", "clamp_", "clamp_max", "minimum"):
        return min((h for h in highs if h is not None), default=None)
    if not highs or None in highs or (target.is_floating_point() and packet not in _SCATTERS):
        return None
    first, *rest = [h for h in highs if h is not None]
    if packet in _KEEPS:
        return max(first, *rest, first)
    if len(rest) != 1:
        return None
    (second,) = rest
    if packet in ("add", "add_"):
        return first + second
    if packet in ("mul", "mul_"):
        return first * second if min(first, second) >= 0 else None
    is_number = not isinstance(args[1], Tensor)
    return first - second if packet in ("sub", "sub_") and is_number else None


def _operands(packet: str, args: tuple[Any, ...]) -> Sequence[Any]:
    """Those of an op's arguments whose numbers its result holds or is computed of."""
    if packet in ("cat", "stack"):
        return args[0]  # type: ignore[no-any-return]
    if packet in _POSITIONS:
        return [args[i] for i in _POSITIONS[packet] if i < len(args)]
    if packet in _KEEPS and packet != "maximum":
        return args[:1]
    return [a for a in args if isinstance(a, (Tensor, int, float))]


def _sampled(kernel: Kernel, args: tuple[Any, ...], target: Tensor) -> Tensor | None:
    """What an op makes of operands whose values are taken as spread evenly."""
    packet = kernel.packet
    if packet in ("clone", "_to_copy"):
        return sample_of(args[0])
    if packet not in _COMPARES | _COMBINES or target.dtype is not torch.bool:
        return None
    operands = [sample_of(a) if isinstance(a, Tensor) and a.dim() else a for a in args]
    if any(a is None or is_virtual(a) for a in operands):
        return None
    result: Tensor = kernel.op(*operands)
    return result.reshape(-1) if result.numel() == target.numel() else None


def sample_of(tensor: Tensor) -> Tensor | None:
    """Values that stand for those of `tensor`, in its shape, where these are taken as spread evenly."""
    entry = entry_of(tensor) if is_known_kind(tensor) else None
    if entry is None or entry.sample is None or entry.sample.numel() != tensor.numel() or not tensor.is_contiguous():
        return None
    sample: Tensor = entry.sample
    return sample.reshape(tensor.shape)
