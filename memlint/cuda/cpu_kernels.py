"""What the host's own kernels allocate beside their outputs, for `--gpu cpu`.

A Python number in `x * 2` becomes a tensor of one element, and another in the dtype of the operation. Multiplication
and division by a number from Python keep the first for their backward; those that PyTorch itself writes take the number
as a Scalar and keep no tensor. A matrix product copies operands of which neither dimension is the fastest, and a
product of batches copies one matrix at a time (LinearAlgebra.cpp, Blas.cpp; measured with torch 2.13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator.device import State

if TYPE_CHECKING:
    from memlint.accelerator.kernels import Kernel
    from memlint.accelerator.ledger import Entry

_ARITHMETIC = frozenset(("add", "sub", "mul", "div"))
_PRODUCTS = {
    "mm": 0,
    "bmm": 0,
    "mv": 0,
    **dict.fromkeys(("addmm", "addmm_", "baddbmm", "baddbmm_", "addmv", "addmv_"), 1),
}
"""Where the operands of a product begin."""
_SAVES_NUMBER = frozenset(("mul", "div"))
_sequence = torch._C._autograd._get_sequence_nr
_autograd_node = torch._C._current_autograd_node
_in_backward = torch._C._current_graph_task_id


class HostScratch:
    """What a kernel of the host takes beside its outputs: called before each, gives what is held while it runs."""

    def __init__(self) -> None:
        self._saved: dict[int, Entry] = {}
        self._last = -1

    def __call__(self, kernel: Kernel, args: tuple[Any, ...]) -> list[Entry]:
        """Copies of operands, and numbers as tensors; a number that a backward will read is kept until then."""
        if kernel.packet in _PRODUCTS:
            return _copies(args[_PRODUCTS[kernel.packet] :])
        return self._numbers(kernel, args)

    def _numbers(self, kernel: Kernel, args: tuple[Any, ...]) -> list[Entry]:
        """A number as a tensor, and cast to the dtype of the tensor beside it."""
        backward = _in_backward() != -1
        if backward:
            self._release()
        as_scalar = kernel.op._overloadname == "Scalar" and kernel.packet in _ARITHMETIC
        positions = (1,) if as_scalar else kernel.tensor_positions
        numbers = [args[i] for i in positions if i < len(args) and isinstance(args[i], (bool, int, float))]
        tensor = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if not numbers or tensor is None:
            return []
        held = [_open(1 if isinstance(numbers[0], bool) else 8)]
        if (
            not as_scalar
            and kernel.packet in _SAVES_NUMBER
            and torch.is_grad_enabled()
            and tensor.requires_grad
            and not backward
        ):
            self._saved[_sequence() - 1] = held[0]
        dtype = torch.result_type(tensor, numbers[0])
        if dtype not in (torch.float64, torch.int64):
            held.append(_open(dtype.itemsize))
        return held

    def _release(self) -> None:
        """Once another node of the backward runs, what the last one had saved is free."""
        node = _autograd_node()
        number = node._sequence_nr() if node is not None else -1
        if number != self._last:
            self._saved.pop(self._last, None)
            self._last = number


def _copies(operands: tuple[Any, ...]) -> list[Entry]:
    """Of the operands that are matrices, or of one matrix of each that are batches."""
    return [
        _open(each.shape[-2] * each.shape[-1] * each.element_size())
        for each in operands[:2]
        if each.dim() >= 2 and not _has_fastest_dimension(each)
    ]


def _has_fastest_dimension(x: torch.Tensor) -> bool:
    (rows, columns), (by_row, by_column) = x.shape[-2:], x.stride()[-2:]
    return (by_column == 1 and by_row >= max(1, columns)) or (by_row == 1 and by_column >= max(1, rows))


def _open(nbytes: int) -> Entry:
    return State.ledger.open(nbytes, (), torch.uint8, host=False)
