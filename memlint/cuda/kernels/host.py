"""Memory that the host's own kernels allocate beside their outputs, for `--gpu cpu`.

A Python number in `x * 2` becomes a tensor of one element, and another in the dtype of the operation. Multiplication
and division by a number from Python keep the first for their backward; those that PyTorch's own code calls take the
number as a Scalar and keep no tensor. A matrix product copies operands of which neither dimension is contiguous, and a
batched product copies one matrix at a time (LinearAlgebra.cpp, Blas.cpp; measured with torch 2.13).

Casts that a CUDA kernel does element by element are done as whole tensors before a host kernel runs: of operands that
are not of the dtype that an elementwise kernel computes in (TensorIterator.cpp), and of the input of a reduction that
is not of the dtype of its result (ReduceOps.cpp). Measured with torch 2.13.

oneDNN multiplies halves in blocks, which it copies, and accumulates in float32: blocks as large as operands and result,
and up to 1.4 MB in one thread, were measured on a processor with AVX-512 for bfloat16. Other processors use other
algorithms.
"""

from collections.abc import Iterable
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import is_virtual, real
from memlint.accelerator.kernel import Kernel
from memlint.accelerator.ledger import Entry

_TAKES_SCALAR = frozenset(("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge"))
_ADDED = ("addmm", "addmm_", "baddbmm", "baddbmm_", "addmv", "addmv_")
_PRODUCTS = dict.fromkeys(("mm", "bmm", "mv"), 0) | dict.fromkeys(_ADDED, 1)
"""Position of the first operand among the arguments of each product."""
_PRODUCT_BLOCK = 64
"""Multiple to which oneDNN pads rows and columns of half-precision blocks."""
_PRODUCT_BLOCKS, _MOST_PRODUCT_BLOCKS = 1 << 17, 2 << 20
"""Bytes of the blocks of one product of large matrices, as measured, and the largest padded size."""
_ADDS_UP = frozenset(("sum", "nansum", "prod", "cumsum", "cumprod"))
"""Reductions whose result for integers is int64."""
_REDUCTIONS = _ADDS_UP | {"mean", "linalg_vector_norm"}
_TRUTHS = frozenset(("all", "any"))
_MEAN_IN_FLOAT = (torch.float16, torch.bfloat16)
_NAMES = "div div_ exp log reciprocal rsqrt sigmoid sqrt tanh sin cos atan2"
_FLOATS = frozenset(_NAMES.split())
"""Elementwise kernels that compute integers as floats."""
_CASTS_NOTHING = frozenset(("copy", "copy_", "_to_copy", "fill", "fill_", "masked_fill", "masked_fill_"))
"""Elementwise kernels whose operands may differ in dtype."""
_SAVES_NUMBER = frozenset(("mul", "div"))
_sequence = torch._C._autograd._get_sequence_nr
_autograd_node = torch._C._current_autograd_node
_in_backward = torch._C._current_graph_task_id


class HostScratch:
    """Memory that a host kernel takes beside its outputs: called before a kernel, returns what to hold meanwhile."""

    def __init__(self) -> None:
        self._saved: dict[int, Entry] = {}
        self._last = -1

    def __call__(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Entry]:
        """Allocate copies of operands, and numbers as tensors; a number that a backward reads is kept until then."""
        if kernel.packet in _PRODUCTS:
            return _product(*args[_PRODUCTS[kernel.packet] :][:2])
        if kernel.packet in _REDUCTIONS or kernel.packet in _TRUTHS:
            return _cast_to(_reduces_in(kernel.packet, args[0], kwargs.get("dtype")), args[:1])
        backward = _in_backward() != -1
        if backward:
            self._release()
        if not kernel.pointwise or kernel.packet in _CASTS_NOTHING:
            return []
        as_scalar = kernel.op._overloadname == "Scalar" and kernel.packet in _TAKES_SCALAR
        positions = (1,) if as_scalar else kernel.tensor_positions
        number = next((args[i] for i in positions if i < len(args) and isinstance(args[i], (bool, int, float))), None)
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if kernel.packet == "where":
            del tensors[0]  # the condition is not cast
        if not tensors:
            return []
        dtype = _computes_in(kernel.packet, tensors, number)
        copies = _cast_to(dtype, tensors)
        if kernel.in_place and tensors[0].dtype is not dtype:
            copies += _cast_to(dtype, tensors[:1])  # the result, until it is cast back
        return (
            copies if number is None else copies + self._number(kernel, number, tensors[0], dtype, as_scalar, backward)
        )

    def _number(
        self, kernel: Kernel, number: Any, operand: torch.Tensor, dtype: torch.dtype, as_scalar: bool, backward: bool
    ) -> list[Entry]:
        """Allocate a number as a tensor, and its cast to `dtype`."""
        entries = [_open(1 if isinstance(number, bool) else 8)]
        saves = kernel.packet in _SAVES_NUMBER and not as_scalar and not backward
        if saves and torch.is_grad_enabled() and operand.requires_grad:
            self._saved[_sequence() - 1] = entries[0]
        if dtype not in (torch.float64, torch.int64):
            entries.append(_open(dtype.itemsize))
        return entries

    def _release(self) -> None:
        """Free what the last node of the backward had saved once another node runs."""
        node = _autograd_node()
        number = node._sequence_nr() if node is not None else -1
        if number != self._last:
            self._saved.pop(self._last, None)
            self._last = number


def _product(a: torch.Tensor, b: torch.Tensor) -> list[Entry]:
    """Allocate copies of matrix operands, or of one matrix of each batch; and oneDNN's blocks for halves."""
    entries = [
        _open(each.shape[-2] * each.shape[-1] * each.element_size())
        for each in (a, b)
        if each.dim() >= 2 and not has_fastest_dimension(each)
    ]
    if a.dtype in (torch.bfloat16, torch.float16) and b.dim() >= 2:
        entries.append(half_product(a.dtype, a.shape[-2], a.shape[-1], b.shape[-1]))
    return entries


def half_product(dtype: torch.dtype, rows: int, inner: int, columns: int) -> Entry:
    """Allocate oneDNN's blocks for the product of two half-precision matrices.

    Nothing if oneDNN leaves it to others.
    """

    def blocks(*sizes: int) -> int:
        m, k, n = sizes
        return 2 * (m * k + k * n) + 4 * m * n

    filled = (-(-n // _PRODUCT_BLOCK) * _PRODUCT_BLOCK for n in (rows, inner, columns))
    highest = min(blocks(*filled), _MOST_PRODUCT_BLOCKS)
    likely = min(blocks(rows, inner, columns), _PRODUCT_BLOCKS) if dtype is torch.bfloat16 else 0
    return state.current.ledger.open(likely, (), torch.uint8, host=False, doubt=(0, highest))


def has_fastest_dimension(x: torch.Tensor) -> bool:
    """Return True if a product can read a matrix, or each one of a batch, in its own layout: by rows or by columns."""
    (rows, columns), (by_row, by_column) = x.shape[-2:], x.stride()[-2:]
    return (by_column == 1 and by_row >= max(1, columns)) or (by_row == 1 and by_column >= max(1, rows))


def _reduces_in(packet: str, x: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Return the dtype in which a reduction of `x`, with the requested result `dtype`, reads its input."""
    if packet in _TRUTHS:
        return x.dtype if x.dtype is torch.uint8 else torch.bool
    if dtype is not None:
        return dtype
    if packet in _ADDS_UP and _is_whole(x.dtype):
        return torch.int64
    return torch.float32 if packet == "mean" and x.dtype in _MEAN_IN_FLOAT else x.dtype


def _computes_in(packet: str, tensors: list[torch.Tensor], number: Any) -> torch.dtype:
    """Return the dtype to which an elementwise kernel casts its operands."""
    first = tensors[0]
    dtype = first.dtype if number is None else torch.result_type(first, number)
    for other in tensors[1:]:
        if other.dtype is not dtype:
            dtype = torch.result_type(real.empty(first.shape, dtype=dtype, device="meta"), other)
    return torch.get_default_dtype() if packet in _FLOATS and _is_whole(dtype) else dtype


def _is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _cast_to(dtype: torch.dtype, operands: Iterable[torch.Tensor]) -> list[Entry]:
    """Allocate copies of the operands that are not of this dtype."""
    return [_open(x.numel() * dtype.itemsize) for x in operands if x.dtype is not dtype and is_virtual(x)]


def _open(nbytes: int) -> Entry:
    return state.current.ledger.open(nbytes, (), torch.uint8, host=False)
