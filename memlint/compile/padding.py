"""Padding of matrix products, which Inductor decides by timing both ways on the GPU (`_inductor/fx_passes/pad_mm.py`).

It pads operands of which a size is no multiple of 8 halves or 4 floats, such as the 50257 words of GPT-2's vocabulary.
In half precision padding is taken to win, as tensor cores read unaligned halves at a fraction of their speed: an H200
(torch 2.11) padded the three products of GPT-2's words, and two of those of BERT's 30522; the third, whose result alone
has so many rows, only where their number is odd. Float32 without TF32 was not padded. What is not padded here takes
between nothing and the copies that its padded operands would be, beside the originals.

To time a product Inductor makes its operands, padded ones and a result while it compiles.
"""

from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.accelerator.private.compilation import (
    PADS,
    alignment_of,
    extern_kernels,
    inductor_config,
    is_compute_bound,
    padded_by,
    padding_choice,
)
from memlint.base.patching import Patch
from memlint.compile.autotuning import take_to_time
from memlint.cuda.simulated import simulated

_Product = tuple[torch.dtype, int, int, int]
"""The dtype of operands, and their sizes: rows of the first, columns of the first, columns of the second."""


class Padding:
    """Products that Inductor may pad, in the compilations of one program."""

    def __init__(self) -> None:
        self._products: set[_Product] = set()

    def patches(self) -> list[Patch]:
        """Patches of the choice, and of the products: owner, name, replacement."""
        return [
            (padding_choice, "has_triton", lambda: True),
            (padding_choice, PADS, self._is_padded),
            *((extern_kernels, name, self._with_copies(getattr(extern_kernels, name))) for name in _OPERANDS),
        ]

    def _is_padded(self, _match: Any, a: torch.Tensor, b: torch.Tensor, *_: Any, **__: Any) -> bool:
        """Stand in for the choice: note that it is open where neither the settings nor the dtype make it."""
        dtype, rows, inner, columns = _product(a, b)
        alignment = alignment_of(a)
        if not any(padded_by(n, alignment) for n in (rows, inner, columns)):  # torch 2.10 asks all the same
            return False
        if inductor_config.force_shape_pad:
            return True
        are_known = all(isinstance(each, int) for each in (rows, inner, columns))
        if not are_known or not is_compute_bound(rows, inner, columns, dtype):
            return False
        simulated().workspaces.product()
        take_to_time(_nbytes(a, b) + _copies(a, b))
        is_unaligned = bool(rows % 2) or any(padded_by(n, alignment) for n in (inner, columns))
        wins = dtype.itemsize <= _HALF and is_unaligned
        if not wins:
            self._products.add(_product(a, b))
        return wins

    def _with_copies(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        first = _OPERANDS[kernel.__name__]

        def run(*args: Any, **kwargs: Any) -> Any:
            a, b = args[first : first + 2]
            entry = scratch(0, (0, _copies(a, b))) if _product(a, b) in self._products else None
            result = kernel(*args, **kwargs)
            del entry
            return result

        return run


_HALF = 2
"""Bytes of a half-precision number."""
_OPERANDS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Position of the first operand of each product that Inductor calls by name."""


def _product(a: torch.Tensor, b: torch.Tensor) -> _Product:
    return a.dtype, a.shape[-2], a.shape[-1], b.shape[-1]


def _nbytes(a: torch.Tensor, b: torch.Tensor) -> int:
    """Return the bytes of both operands and the result."""
    return (a.numel() + b.numel() + a.shape[:-1].numel() * b.shape[-1]) * a.element_size()


def _copies(a: torch.Tensor, b: torch.Tensor) -> int:
    """Return the bytes of padded copies of the operands that are padded, and of the padding of the result."""
    alignment, size = alignment_of(a), a.element_size()
    batch = a.shape[:-2].numel()
    rows, inner, columns = (n + padded_by(n, alignment) for n in (a.shape[-2], a.shape[-1], b.shape[-1]))
    nbytes = batch * (rows * columns - a.shape[-2] * b.shape[-1]) * size
    if (rows, inner) != tuple(a.shape[-2:]):
        nbytes += batch * rows * inner * size
    if (inner, columns) != tuple(b.shape[-2:]):
        nbytes += batch * inner * columns * size
    return nbytes
