"""What the host's own kernels allocate beside their outputs, for `--gpu cpu`.

A Python number in `x * 2` becomes a tensor of one element, and another in the dtype of the operation. Multiplication
and division by a number from Python keep the first for their backward; those that PyTorch itself writes take the number
as a Scalar and keep no tensor. A matrix product copies operands of which neither dimension is the fastest, and a
product of batches copies one matrix at a time (LinearAlgebra.cpp, Blas.cpp; measured with torch 2.13).

What a CUDA kernel casts element by element is cast as a whole before a kernel of the host runs: operands that are not
of the dtype that an elementwise kernel computes in (TensorIterator.cpp), and the input of a reduction that is not of
the dtype of its result (ReduceOps.cpp). Measured with torch 2.13.

oneDNN multiplies halves, in blocks that it copies and adds up in float32: as large as operands and result, and up to
1.4 MB in one thread, were measured where the processor has AVX-512 for bfloat16. Elsewhere it takes other ways.
"""

from collections.abc import Iterable
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import is_virtual, real
from memlint.accelerator.kernel import Kernel
from memlint.accelerator.ledger import Entry
from memlint.accelerator.private import autograd_node, graph_task, next_sequence_number, overload_name, sequence_number

_TAKES_SCALAR = frozenset(("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge"))
_ADDED = ("addmm", "addmm_", "baddbmm", "baddbmm_", "addmv", "addmv_")
_PRODUCTS = dict.fromkeys(("mm", "bmm", "mv"), 0) | dict.fromkeys(_ADDED, 1)
"""Where the operands of a product begin."""
_PRODUCT_BLOCK = 64
"""Rows and columns of which oneDNN fills up blocks of halves."""
_PRODUCT_BLOCKS, _MOST_PRODUCT_BLOCKS = 1 << 17, 2 << 20
"""Bytes of the blocks of one product of large matrices, by measurement, and the most that they were rounded up."""
_ADDS_UP = frozenset(("sum", "nansum", "prod", "cumsum", "cumprod"))
"""Reductions whose result of whole numbers is int64."""
_REDUCTIONS = _ADDS_UP | {"mean", "linalg_vector_norm"}
_TRUTHS = frozenset(("all", "any"))
_MEAN_IN_FLOAT = (torch.float16, torch.bfloat16)
_NAMES = "div div_ exp log reciprocal rsqrt sigmoid sqrt tanh sin cos atan2"
_FLOATS = frozenset(_NAMES.split())
"""Elementwise kernels that compute whole numbers as floats."""
_CASTS_NOTHING = frozenset(("copy", "copy_", "_to_copy", "fill", "fill_", "masked_fill", "masked_fill_"))
"""Elementwise kernels of operands that may differ in dtype."""
_SAVES_NUMBER = frozenset(("mul", "div"))


class HostScratch:
    """What a kernel of the host takes beside its outputs: called before each, gives what is held while it runs."""

    def __init__(self) -> None:
        self._saved: dict[int, Entry] = {}
        self._last = -1

    def __call__(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Entry]:
        """Copies of operands, and numbers as tensors; a number that a backward will read is kept until then."""
        if kernel.packet in _PRODUCTS:
            return _product(*args[_PRODUCTS[kernel.packet] :][:2])
        if kernel.packet in _REDUCTIONS or kernel.packet in _TRUTHS:
            return _cast_to(_reduces_in(kernel.packet, args[0], kwargs.get("dtype")), args[:1])
        backward = graph_task() != -1
        if backward:
            self._release()
        if not kernel.pointwise or kernel.packet in _CASTS_NOTHING:
            return []
        as_scalar = overload_name(kernel.op) == "Scalar" and kernel.packet in _TAKES_SCALAR
        positions = (1,) if as_scalar else kernel.tensor_positions
        number = next((args[i] for i in positions if i < len(args) and isinstance(args[i], (bool, int, float))), None)
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if kernel.packet == "where":
            del tensors[0]  # the condition
        if not tensors:
            return []
        dtype = _computes_in(kernel.packet, tensors, number)
        held = _cast_to(dtype, tensors)
        if kernel.in_place and tensors[0].dtype is not dtype:
            held += _cast_to(dtype, tensors[:1])  # the result, until it is cast back
        return held if number is None else held + self._number(kernel, number, tensors[0], dtype, as_scalar, backward)

    def _number(
        self, kernel: Kernel, number: Any, operand: torch.Tensor, dtype: torch.dtype, as_scalar: bool, backward: bool
    ) -> list[Entry]:
        """A number as a tensor, and cast to `dtype`."""
        held = [_open(1 if isinstance(number, bool) else 8)]
        saves = kernel.packet in _SAVES_NUMBER and not as_scalar and not backward
        if saves and torch.is_grad_enabled() and operand.requires_grad:
            self._saved[next_sequence_number() - 1] = held[0]
        if dtype not in (torch.float64, torch.int64):
            held.append(_open(dtype.itemsize))
        return held

    def _release(self) -> None:
        """Once another node of the backward runs, what the last one had saved is free."""
        node = autograd_node()
        number = sequence_number(node) if node is not None else -1
        if number != self._last:
            self._saved.pop(self._last, None)
            self._last = number


def _product(a: torch.Tensor, b: torch.Tensor) -> list[Entry]:
    """Copies of operands that are matrices, or of one matrix of each that are batches; oneDNN's blocks of halves."""
    held = [
        _open(each.shape[-2] * each.shape[-1] * each.element_size())
        for each in (a, b)
        if each.dim() >= 2 and not has_fastest_dimension(each)
    ]
    if a.dtype in (torch.bfloat16, torch.float16) and b.dim() >= 2:
        held.append(half_product(a.dtype, a.shape[-2], a.shape[-1], b.shape[-1]))
    return held


def half_product(dtype: torch.dtype, rows: int, inner: int, columns: int) -> Entry:
    """Give what oneDNN takes for the product of two matrices of halves: nothing where it leaves them to others."""

    def blocks(*sizes: int) -> int:
        m, k, n = sizes
        return 2 * (m * k + k * n) + 4 * m * n

    filled = (-(-n // _PRODUCT_BLOCK) * _PRODUCT_BLOCK for n in (rows, inner, columns))
    highest = min(blocks(*filled), _MOST_PRODUCT_BLOCKS)
    likely = min(blocks(rows, inner, columns), _PRODUCT_BLOCKS) if dtype is torch.bfloat16 else 0
    return state.current.ledger.open(likely, (), torch.uint8, host=False, doubt=(0, highest))


def has_fastest_dimension(x: torch.Tensor) -> bool:
    """Whether a product reads a matrix, or each of a batch, as it lies: by rows or by columns."""
    (rows, columns), (by_row, by_column) = x.shape[-2:], x.stride()[-2:]
    return (by_column == 1 and by_row >= max(1, columns)) or (by_row == 1 and by_column >= max(1, rows))


def _reduces_in(packet: str, x: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype in which a reduction of `x`, asked for a result of `dtype`, reads its input."""
    if packet in _TRUTHS:
        return x.dtype if x.dtype is torch.uint8 else torch.bool
    if dtype is not None:
        return dtype
    if packet in _ADDS_UP and _is_whole(x.dtype):
        return torch.int64
    return torch.float32 if packet == "mean" and x.dtype in _MEAN_IN_FLOAT else x.dtype


def _computes_in(packet: str, tensors: list[torch.Tensor], number: Any) -> torch.dtype:
    """The dtype that an elementwise kernel casts its operands to."""
    first = tensors[0]
    dtype = first.dtype if number is None else torch.result_type(first, number)
    for other in tensors[1:]:
        if other.dtype is not dtype:
            dtype = torch.result_type(real.empty(first.shape, dtype=dtype, device="meta"), other)
    return torch.get_default_dtype() if packet in _FLOATS and _is_whole(dtype) else dtype


def _is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _cast_to(dtype: torch.dtype, operands: Iterable[torch.Tensor]) -> list[Entry]:
    """Copies of those operands that are not of this dtype."""
    return [_open(x.numel() * dtype.itemsize) for x in operands if x.dtype is not dtype and is_virtual(x)]


def _open(nbytes: int) -> Entry:
    return state.current.ledger.open(nbytes, (), torch.uint8, host=False)
