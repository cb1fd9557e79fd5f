"""Frequencies of choices among a few entries, as when a mixture of experts routes tokens to its experts.

Indices that `topk`, `argmax` and their kin pick among E entries have E values. The number of picks of each value
depends on data, but over all values every index is counted once. So a mask of the indices that equal one value is
assumed to select an equal share of them, 1/E: then the sum over all values is right whatever the data. A mask and its
negation together select every element once.
"""

from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import entry_of
from memlint.accelerator.kernel import Kernel
from memlint.accelerator.ranges import num_true, sample_of
from memlint.accelerator.values import content, covers_storage, is_known_kind

Tensor = torch.Tensor

_PICKS = frozenset(("topk", "sort", "argsort", "argmax", "argmin", "max", "min", "kthvalue", "mode", "multinomial"))
_PICK_ONLY = frozenset(("argsort", "argmax", "argmin", "multinomial"))
"""Ops among those that return only indices; the others return the indices last."""
_PICKS_DISTINCT = frozenset(("topk", "sort", "argsort"))
"""Ops whose indices in a row differ from each other: a beam search that reads equal ones would lose its beams."""
_KEEPS = frozenset(("clone", "_to_copy", "index_select", "gather", "index", "cat", "stack", "repeat"))
_KEEPS_ORDER = frozenset(("clone", "_to_copy"))
_KEEPS_MASK = frozenset(("clone", "_to_copy", "ne", "gt", "any"))
_NEGATES = frozenset(("bitwise_not", "logical_not"))


def follow_routing(kernel: Kernel, args: tuple[Any, ...], inputs: list[Tensor], results: list[Tensor]) -> None:
    """Update the number of values that indices have, and the share of them that masks select."""
    packet = kernel.packet
    target = results[-1]
    entry = entry_of(target)
    entry.negation = None
    gives_indices = packet in _PICK_ONLY or (packet in _PICKS and len(results) > 1)
    if gives_indices and inputs and target.dtype is torch.int64 and inputs[0].dim():
        dim = _dimension(packet, args)
        entry.num_choices = inputs[0].numel() if dim is None else inputs[0].shape[dim]
        is_in_rows = packet in _PICKS_DISTINCT and target.is_contiguous() and dim in (-1, target.dim() - 1)
        entry.num_distinct = target.shape[-1] if is_in_rows else None
    elif not inputs or not is_known_kind(inputs[0]):
        return
    elif packet == "eq":
        choices = entry_of(inputs[0]).num_choices
        if choices:
            entry.num_true = -(-target.numel() // choices)
    elif packet in _NEGATES and _is_whole_mask(inputs[0]):
        entry.negation, entry_of(inputs[0]).negation = entry_of(inputs[0]).number, entry.number
    elif packet == "cat" and len(inputs) == 2 and _negate_each_other(*inputs):
        entry.num_true = inputs[0].numel()
    else:
        source = entry_of(inputs[0])
        if packet in _KEEPS and not target.is_floating_point():
            entry.num_choices = source.num_choices
            entry.num_distinct = source.num_distinct if packet in _KEEPS_ORDER else None
        if packet in _KEEPS_MASK and source.num_true is not None:
            entry.num_true = min(source.num_true, target.numel())


def _is_whole_mask(mask: Tensor) -> bool:
    return mask.dtype is torch.bool and is_known_kind(mask) and covers_storage(mask)


def _negate_each_other(first: Tensor, second: Tensor) -> bool:
    """Return True if one mask was made as the negation of the other, and neither was written to since."""
    if not (_is_whole_mask(first) and _is_whole_mask(second)):
        return False
    return entry_of(first).negation == entry_of(second).number and entry_of(second).negation == entry_of(first).number


def _dimension(packet: str, args: tuple[Any, ...]) -> int | None:
    """Return the dimension that an op picks along; by default the last, or None for all as if they were one."""
    if packet in ("argmax", "argmin") and (len(args) < 2 or args[1] is None):
        return None
    position = 2 if packet in ("topk", "kthvalue") else 1
    dim = args[position] if len(args) > position and packet != "multinomial" else -1
    return dim if isinstance(dim, int) and not isinstance(dim, bool) else -1


def count_true(mask: Tensor, what: str) -> int:
    """Return the number of nonzero elements of `mask`: exact if known, else an equal share, else all of them.

    Any but the exact number is noted as an assumption; `what` names the operation in its text.
    """
    known = content(mask)
    if known is not None:
        return int(torch.count_nonzero(known))
    entry = entry_of(mask)
    if entry.uniform is not None:
        return mask.numel() if entry.uniform else 0
    count, shape = num_true(mask), list(mask.shape)
    if count is None:
        state.assume(f"{what} of a mask of shape {shape} is taken to select half of its elements, and at most all")
        state.take_as_upper_bound(mask.numel(), 0.5)
        return mask.numel()
    if sample_of(mask) is not None:
        state.assume(f"{what} of a mask of shape {shape} is taken of values spread evenly over their range")
    elif entry.num_true is not None:
        state.assume(f"{what} of a mask of shape {shape} is taken to select an equal share, {count} elements")
    elif mask.numel() != entry.nbytes // mask.element_size():
        state.assume(
            f"{what} of a part of shape {shape} of a sparse mask is taken to select an equal share, {count} elements"
        )
    return count
