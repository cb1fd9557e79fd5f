"""How often each of a few choices is taken, as when a mixture of experts sends tokens to its experts.

Indices that `topk`, `argmax` and their kin pick among E entries have E values. Which value is picked how often depends
on data; the program as a whole picks each index once. So a mask of the indices that equal one value is taken to hold an
equal share of them, 1/E, which makes the sum over all values right whatever the data.
"""

from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import entry_of
from memlint.accelerator.kernel import Kernel
from memlint.accelerator.ranges import sample_of
from memlint.accelerator.values import content, is_known_kind

Tensor = torch.Tensor

_PICKS = frozenset(("topk", "sort", "argsort", "argmax", "argmin", "max", "min", "kthvalue", "mode"))
_KEEPS = frozenset(("clone", "_to_copy", "index_select", "gather", "index", "cat", "stack", "repeat"))
_KEEPS_MASK = frozenset(("clone", "_to_copy", "ne", "gt", "any"))


def follow_routing(kernel: Kernel, args: tuple[Any, ...], inputs: list[Tensor], made: list[Tensor]) -> None:
    """Keep track of how many values indices have, and of the share of them that masks select."""
    packet = kernel.packet
    target = made[-1]
    entry = entry_of(target)
    if packet in _PICKS and inputs and target.dtype is torch.int64 and inputs[0].dim():
        entry.num_choices = inputs[0].shape[_dimension(packet, args)]
    elif not inputs or not is_known_kind(inputs[0]):
        return
    elif packet == "eq":
        choices = entry_of(inputs[0]).num_choices
        if choices:
            entry.num_true = -(-target.numel() // choices)
    else:
        source = entry_of(inputs[0])
        if packet in _KEEPS and not target.is_floating_point():
            entry.num_choices = source.num_choices
        if packet in _KEEPS_MASK and source.num_true is not None:
            entry.num_true = min(source.num_true, target.numel())


def _dimension(packet: str, args: tuple[Any, ...]) -> int:
    """The dimension that an op picks along; the last by default."""
    position = 2 if packet in ("topk", "kthvalue") else 1
    dim = args[position] if len(args) > position else -1
    return dim if isinstance(dim, int) and not isinstance(dim, bool) else -1


def count_true(mask: Tensor, what: str) -> int:
    """How many elements of `mask` are not zero: exact where known, else an equal share, else all of them.

    Anything but the exact number is an assumption; `what` names the operation in it.
    """
    known = content(mask)
    if known is not None:
        return int(torch.count_nonzero(known))
    entry = entry_of(mask)
    if entry.uniform is not None:
        return mask.numel() if entry.uniform else 0
    sample = sample_of(mask)
    if sample is not None:
        state.assume(f"{what} of a mask of shape {list(mask.shape)} is taken of values spread evenly over their range")
        return int(torch.count_nonzero(sample))
    total = entry.nbytes // mask.element_size()
    shape = list(mask.shape)
    if entry.num_true is not None:
        count = min(-(-entry.num_true * mask.numel() // max(total, 1)), mask.numel())
        state.assume(f"{what} of a mask of shape {shape} is taken to select an equal share, {count} elements")
        return count
    if entry.nonzeros is None:
        state.assume(f"{what} of a mask of shape {shape} is taken to select half of its elements, and at most all")
        state.take_as_upper_bound(mask.numel(), 0.5)
        return mask.numel()
    if mask.numel() == total:
        return min(int(entry.nonzeros), total)
    count = min(-(-int(entry.nonzeros) * mask.numel() // max(total, 1)), mask.numel())
    state.assume(
        f"{what} of a part of shape {shape} of a sparse mask is taken to select an equal share, {count} elements"
    )
    return count
