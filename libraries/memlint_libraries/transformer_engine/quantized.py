"""Transformer Engine 2.9: tensors in fp8, with their scales: pytorch/csrc/quantizer.cpp.

A tensor has a byte an element, and as many by columns, which products of gradients need; with a scale a tensor
Blackwell does not need these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator.private import MAKE_WRAPPER, no_torch_function, schema_of
from memlint.cuda.simulated import simulated
from memlint.libraries.library import launch, temporary
from memlint_libraries.transformer_engine.recipes import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    Recipe,
)

Tensor = torch.Tensor


def tiles(number: int, size: int, multiple: int = 1) -> int:
    """How many of this size there are, rounded up to a multiple."""
    tiles = -(-number // size)
    return -(-tiles // multiple) * multiple


def _multiplies_rows() -> bool:
    """Return True if gradients are multiplied by rows: `is_non_tn_fp8_gemm_supported`, transformer_engine.cpp:719."""
    capability = simulated().device.capability
    return (10, 0) <= capability < (12, 0) or capability >= (13, 0)


class Fp8:
    """Bytes of a tensor, and bytes of its columns where they are needed, with their scales."""

    def __init__(
        self, source: Tensor, recipe: Recipe, *, columns: bool, shape: Sequence[int] | None = None,
        is_weight: bool = False,
    ) -> None:  # fmt: skip
        shape = source.shape if shape is None else shape
        self.has_columns = columns
        self.rows: list[Tensor] = []
        self.columns: list[Tensor] = []
        self.scales: list[Tensor] = []
        self.swizzled = 0
        """Bytes of scales that are copied in another order for a product (util.cpp:12, :182)."""
        number, width = shape[0], shape[-1]
        if isinstance(recipe, NVFP4BlockScaling):
            self._make_nvfp4(source, recipe, number, width, columns=columns, is_weight=is_weight)
            launch((source,), self.parts)
            return
        is_one_scale = isinstance(recipe, (DelayedScaling, Float8CurrentScaling))
        self.rows = [source.new_empty(shape, dtype=torch.uint8)]
        if columns and not (is_one_scale and _multiplies_rows()):
            self.columns = [source.new_empty(shape[::-1], dtype=torch.uint8)]
        if isinstance(recipe, MXFP8BlockScaling):  # quantizer.cpp:1105
            self._scale(self.rows, torch.uint8, tiles(number, 1, 128), tiles(width, 32, 4))
            self._scale(self.columns, torch.uint8, tiles(number, 32, 4), tiles(width, 1, 128))
            self.swizzled = self.rows[1].nbytes
        elif isinstance(recipe, Float8BlockScaling):  # quantizer.cpp:824
            edge = 128 if is_weight else 1
            self._scale(self.rows, torch.float32, tiles(number, edge, 4), tiles(width, 128))
            self._scale(self.columns, torch.float32, tiles(width, edge, 4), tiles(number, 128))
            if simulated().device.capability >= (10, 0):  # products are MXFP8's: gemm.cpp:244
                self.swizzled = tiles(number, 1, 128) * tiles(width, 128) * 4
        else:  # quantizer.cpp:121
            self.scales = [source.new_empty(1, dtype=torch.float32)]
        launch((source,), self.parts)

    def _make_nvfp4(
        self, source: Tensor, recipe: NVFP4BlockScaling, number: int, width: int, *, columns: bool, is_weight: bool
    ) -> None:
        """Two values a byte, both ways, each with scales and a largest value (quantizer.cpp:1193, :1666).

        What lies by columns is transformed first, in one kernel where the sides are multiples of 64 and 128, and else
        by a copy in full (`quantize_impl`, quantizer.cpp:1462, :1580); weights are not.
        """
        if number % 16 or width % 16:
            raise RuntimeError(f"NVFP4 requires tensor dims that are divisible by 16 (got shape={(number, width)})")
        for parts, rows, across in ((self.rows, number, width), (self.columns, width, number)):
            if parts is self.columns and not columns:
                break
            parts.append(source.new_empty((rows, across // 2), dtype=torch.uint8))
            self._scale(parts, torch.uint8, tiles(rows, 1, 128), tiles(across, 16, 4))
            self._scale(parts, torch.float32, 1)
        self.swizzled = self.rows[1].nbytes
        if columns and not is_weight and not recipe.disable_rht:
            if source.dtype is not torch.bfloat16:
                raise RuntimeError("RHT is only supported for bfloat16 input")
            transformed = temporary(2 * number * width if number % 64 or width % 128 else 0)
            del transformed

    def _scale(self, parts: list[Tensor], dtype: torch.dtype, *shape: int) -> None:
        if parts:
            parts.append(parts[0].new_empty(shape, dtype=dtype))

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """Its tensors."""
        return (*self.rows, *self.columns, *self.scales)

    def drop_rows(self) -> None:
        """Keep what a product with a gradient needs."""
        if self.columns:
            self.rows = []

    def transpose(self) -> None:
        """Add the bytes of columns, made of those of rows (`_create_transpose`)."""
        rows = self.rows[0]
        self.columns, self.has_columns = [rows.new_empty(rows.shape[::-1])], True
        launch((rows,), self.columns)


class Fp8Weight(torch.Tensor):
    """A weight that is in fp8 alone: ops other than products take it in full (quantized_tensor.py:462)."""

    __torch_function__ = no_torch_function
    fp8: Fp8
    recipe: Recipe

    @staticmethod
    def __new__(cls, like: Tensor, fp8: Fp8, recipe: Recipe) -> Fp8Weight:  # noqa: D102
        made: Fp8Weight = getattr(torch.Tensor, MAKE_WRAPPER)(cls, like.shape, dtype=like.dtype, device=like.device)
        made.fp8, made.recipe = fp8, recipe
        return made

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("part_"):
            raise AttributeError(name)
        return self.fp8.parts[int(name.removeprefix("part_"))]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Names of the tensors that it wraps."""
        return [f"part_{n}" for n in range(len(self.fp8.parts))], None

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Float8Tensor(shape={tuple(self.shape)}, dtype={self.dtype})"

    def dequantize(self, *_: Any, **__: Any) -> Tensor:
        """The weight in full."""
        made = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        launch(self.fp8.parts, (made,))
        return made

    def multiplied(self, recipe: Recipe | None, dtype: torch.dtype, *, columns: bool) -> Any:
        """Give it to a product (`get_weight_workspace`, module/base.py:1333), in full without fp8 (linear.py:1539)."""
        if recipe is None:
            return self.dequantize().to(dtype)
        if type(recipe) is not type(self.recipe):
            raise RuntimeError(f"Weights of {type(self.recipe).__name__} are not multiplied by {type(recipe).__name__}")
        if columns and not self.fp8.has_columns:
            if not isinstance(recipe, (DelayedScaling, Float8CurrentScaling)):
                raise RuntimeError("Requested column-wise usage, but the weight has no columns: it was made in no_grad")
            self.fp8.transpose()
        return self.fp8

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Compute an op of the weight in full, and make that fp8 where it is written."""
        if func is torch.ops.aten.detach.default:
            return cls(args[0], args[0].fp8, args[0].recipe)
        if func is torch.ops.aten.copy_.default and isinstance(args[0], cls):
            launch((args[1],), args[0].fp8.parts)
            return args[0]
        in_full = [each.dequantize() if isinstance(each, cls) else each for each in args]
        in_full = [
            [one.dequantize() if isinstance(one, cls) else one for one in each] if isinstance(each, list) else each
            for each in in_full
        ]
        out = func(*in_full, **(kwargs or {}))
        if not schema_of(func).is_mutable:
            return out
        for given, written in zip(args, in_full, strict=True):
            if isinstance(given, cls):
                launch((written,), given.fp8.parts)
        return args[0]
