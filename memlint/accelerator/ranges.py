"""Upper bounds of unknown values: an input's are below its `high`, and counts add up to the number of counted elements.

A value that is read may decide a size, so a read gives its upper bound, and counts that add up to a total are read as
equal shares of it. The sum of a mask is the number of elements that it is assumed to select. For masks that compare
such values with numbers, the values are assumed to be spread evenly.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.kernel import Kernel
from memlint.accelerator.values import (
    MAX_SHADOW,
    bound_of,
    content,
    covers_storage,
    is_known_kind,
    real_arange,
    uniform_value,
)

Tensor = torch.Tensor

_NAMES = """
    clone _to_copy copy_ _copy_from index_select gather index repeat flip roll sort topk max min amax amin median mode
    masked_select tril triu _unique _unique2 unique_dim unique_consecutive cat stack maximum where masked_fill
    masked_fill_ scatter scatter_ repeat_interleave squeeze_copy ceil floor round trunc
"""
_KEEPS = frozenset(_NAMES.split())
"""Ops whose results are some of the numbers in their operands."""
_SUMS = frozenset(("sum", "cumsum", "count_nonzero"))
_SCATTERS = ("scatter", "scatter_")
_LIMITS = frozenset(("clamp", "clamp_", "clamp_max", "minimum"))
_COUNTS = frozenset(("bincount", "histc"))
_BOUNDED = _COUNTS | frozenset(
    ("nonzero", "count_nonzero", "bernoulli", "bernoulli_", "bucketize", "searchsorted", *_SCATTERS)
)
_BOUNDED_INTEGERS = _LIMITS | {"remainder"}
"""Ops whose results are bounded whatever their operands hold (_BOUNDED), and those bounded if results are integers."""
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
    """Return the largest number that a tensor, or a number itself, can be, if known."""
    if isinstance(value, (int, float)):
        return math.ceil(value) if math.isfinite(value) else None
    if not isinstance(value, Tensor) or value.is_complex() or not value.numel():
        return None
    uniform = uniform_value(value)
    if uniform is not None:
        return largest(uniform)
    known = content(value)
    if known is not None:
        return largest(known.max().item())
    if not is_known_kind(value):
        return None
    return 1 if value.dtype is torch.bool else bound_of(value)


def largest_index(value: Any) -> int | None:
    """Return the same as `largest`, and for indices picked among entries the last entry."""
    picked = entry_of(value).num_choices if isinstance(value, Tensor) and is_known_kind(value) else None
    return picked - 1 if picked else largest(value)


def num_true(mask: Tensor) -> int | None:
    """Return the number of nonzero elements of a mask, if something is known: a bound, or an equal share."""
    entry = entry_of(mask)
    total = entry.nbytes // mask.element_size()
    sample = sample_of(mask)
    if sample is not None:
        return int(torch.count_nonzero(sample))
    count = entry.nonzeros if entry.num_true is None else entry.num_true
    if count is None or (entry.num_true is None and mask.numel() == total):
        return None if count is None else min(count, total)
    return min(-(-count * mask.numel() // max(total, 1)), mask.numel())


def follow_ranges(kernel: Kernel, args: tuple[Any, ...], inputs: list[Tensor], results: list[Tensor]) -> None:
    """Update the bound of the elements of the first result."""
    target = results[0]
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
    if packet == "randperm":
        entry.largest = target.numel() - 1
        return
    is_bounded = packet in _BOUNDED or (packet in _BOUNDED_INTEGERS and not target.is_floating_point())
    if not is_bounded and not any(map(_is_bounded, inputs)):
        entry.largest = entry.total = entry.sample = None
        return
    most = None if target.is_complex() else _largest_of(packet, args, target)
    if (kernel.written or packet == "_copy_from") and not covers_storage(target):  # the elements beside it stay
        before = largest(entry.uniform) if entry.largest is None else entry.largest
        most = None if most is None or before is None else max(most, before)
    entry.largest = most
    entry.sample = _sampled(kernel, args, target)
    if packet == "bincount":
        entry.total = inputs[0].numel() if len(inputs) == 1 else None
    elif packet in ("sum", "count_nonzero") and is_known_kind(inputs[0]):
        most = 1 if packet == "count_nonzero" else largest(inputs[0])
        count = num_true(inputs[0]) if most == 1 else entry_of(inputs[0]).nonzeros
        entry.total = count * most if count is not None and most else None
    else:
        source = inputs[0] if inputs and packet in ("_to_copy", "clone") and is_known_kind(inputs[0]) else None
        entry.total = None if source is None else entry_of(source).total


def _is_bounded(tensor: Tensor) -> bool:
    """Return True if a bound of the tensor is known without its content; a mask's is 1."""
    if not is_known_kind(tensor):
        return False
    entry = entry_of(tensor)
    return tensor.dtype is torch.bool or entry.largest is not None or entry.num_choices is not None


def _largest_of(packet: str, args: tuple[Any, ...], target: Tensor) -> int | None:
    if target.dtype is torch.bool or packet in ("bernoulli", "bernoulli_"):
        return 1
    if packet in _COUNTS:
        return int(args[0].numel())
    if packet == "nonzero":
        return max(args[0].shape, default=1) - 1
    if packet in ("bucketize", "searchsorted"):
        return int(args[packet == "bucketize"].shape[-1])
    if packet in _SUMS:
        most = 1 if packet == "count_nonzero" else largest(args[0])
        return None if most is None else most * (args[0].numel() // max(1 if packet == "cumsum" else target.numel(), 1))
    of = largest_index if packet in ("max", "amax") else largest
    highs = [of(operand) for operand in _operands(packet, args)]
    if packet in _LIMITS:
        return min((h for h in highs if h is not None), default=None)
    if packet == "remainder":
        divisor = None if target.is_floating_point() else highs[-1]
        return divisor - 1 if divisor is not None and divisor > 0 else None
    return _combined(packet, args, [h for h in highs if h is not None]) if highs and None not in highs else None


def _combined(packet: str, args: tuple[Any, ...], highs: list[int]) -> int | None:
    """Return the largest result of an op on operands that are at most `highs`."""
    if packet in _KEEPS:
        return max(highs)
    if len(highs) != 2:
        return None
    first, second = highs
    if packet in ("add", "add_"):
        return first + second
    if packet in ("mul", "mul_"):
        return first * second if min(first, second) >= 0 else None
    number = args[1]
    if isinstance(number, Tensor):
        return None
    if packet in ("div", "div_", "floor_divide"):
        whole = math.floor if packet == "floor_divide" else math.ceil
        return whole(first / number) if number > 0 <= first else None
    return first - math.floor(number) if packet in ("sub", "sub_") else None


def _operands(packet: str, args: tuple[Any, ...]) -> Sequence[Any]:
    """Return the arguments of an op whose numbers its result holds or is computed from."""
    if packet in ("cat", "stack"):
        return args[0]  # type: ignore[no-any-return]
    if packet in _POSITIONS:
        return [args[i] for i in _POSITIONS[packet] if i < len(args)]
    if packet in _KEEPS and packet != "maximum":
        return args[:1]
    return [a for a in args if isinstance(a, (Tensor, int, float))]


def _sampled(kernel: Kernel, args: tuple[Any, ...], target: Tensor) -> Tensor | None:
    """Run an op on operands whose values are assumed to be spread evenly."""
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
    """Return values that stand for those of `tensor`, in its shape, assumed to be spread evenly."""
    entry = entry_of(tensor) if is_known_kind(tensor) else None
    if entry is None or entry.sample is None or entry.sample.numel() != tensor.numel() or not tensor.is_contiguous():
        return None
    sample: Tensor = entry.sample
    return sample.reshape(tensor.shape)
