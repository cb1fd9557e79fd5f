"""Transformer Engine 2.9: how a layer multiplies: pytorch/module/base.py, csrc/extensions/gemm.cpp and bias.cpp."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from memlint.cuda.simulated import simulated
from memlint.libraries.library import launch, temporary
from memlint.libraries.persistent_tensors import persistent_tensors
from memlint_libraries.transformer_engine.quantized import Fp8, Fp8Weight
from memlint_libraries.transformer_engine.recipes import (
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    Recipe,
    library,
)

Tensor = torch.Tensor


@dataclass(frozen=True)
class Call:
    """How a layer is called, beside its operands."""

    dtype: torch.dtype
    recipe: Recipe | None
    needs_grad: bool
    centered: bool = True
    gated: bool = False
    cache: dict[str, Fp8] | None = None
    """Weights in fp8 that the layer keeps from one microbatch to the next."""
    adds: bool = False
    """True if gradients of weights are added to their `main_grad` (`fuse_wgrad_accumulation`)."""
    returns_norm: bool = False
    """True if the output of the layer norm is returned as well (`return_layernorm_output`)."""

    @property
    def scales_now(self) -> bool:
        """True if kernels write activations in full, and convert them to fp8 or fp4 afterwards (activation.cpp:33)."""
        return isinstance(self.recipe, (Float8CurrentScaling, Float8BlockScaling, NVFP4BlockScaling))

    def factor(self, x: Tensor, *, columns: bool, shape: Sequence[int] | None = None) -> Any:
        """An operand of a product."""
        return x.to(self.dtype) if self.recipe is None else Fp8(x, self.recipe, columns=columns, shape=shape)

    def weight(self, name: str, x: Tensor, *, columns: bool) -> Any:
        """A weight as it is multiplied: `get_weight_workspace`, module/base.py:1333."""
        if isinstance(x, Fp8Weight):
            return x.multiplied(self.recipe, self.dtype, columns=columns)
        if self.recipe is None:
            return x.to(self.dtype)
        kept = None if self.cache is None else self.cache.get(name)
        if kept is None or (columns and not kept.has_columns):
            kept = Fp8(x, self.recipe, columns=columns, is_weight=True)
            if self.cache is not None:
                self.cache[name] = kept
        return kept

    def product(self, *shape: int, of: Tensor, swizzled: int = 0, streams: int = 1) -> Tensor:
        """Allocate the result of a matrix product."""
        self.multiply(streams=streams)
        out = self.made(*shape, of=of)
        scales = temporary(swizzled)
        del scales
        return out

    def multiply(self, *, streams: int = 1) -> None:
        """Hold cuBLASLt's workspace, which is one for all (`get_workspace`, module/base.py:77)."""
        library.assume()
        is_wide = simulated().device.capability >= (9, 0)
        for stream in range(streams):
            name = f"transformer_engine {stream}" if streams > 1 else "transformer_engine"
            simulated().workspaces.hold(name, (32 << 20) + 1024 if is_wide else 4 << 20)

    def of_weight(self, weight: Any, *, of: Tensor, swizzled: int, is_shared: bool = True) -> Tensor | None:
        """The gradient of a weight: a product, or nothing where that is added to `main_grad`.

        Megatron's distributed data parallelism asks for a tensor all the same, which layers of one shape share
        (`get_dummy_wgrad`, module/base.py:106), but in the MLP (layernorm_mlp.py:1316).
        """
        if not self.adds:
            return self.product(*weight.shape, of=of, swizzled=swizzled)
        self.multiply()
        scales = temporary(swizzled)
        launch((of, weight.main_grad), (weight.main_grad,))
        del scales
        return stands_for_gradient(weight, is_shared=is_shared)

    def made(self, *shape: int, of: Tensor) -> Tensor:
        """A tensor that a kernel writes."""
        out = torch.empty(shape, dtype=self.dtype, device=of.device)
        launch((of,), (out,))
        return out


def stands_for_gradient(weight: Any, *, is_shared: bool = True) -> Tensor | None:
    """Return the placeholder for a gradient that was added to `main_grad`."""
    if not hasattr(weight, "grad_added_to_main_grad"):
        return None
    weight.grad_added_to_main_grad = True

    shape = tuple(weight.main_grad.shape)

    def make() -> tuple[Tensor]:
        return (torch.empty(shape, dtype=weight.dtype, device=weight.device),)

    if not is_shared:
        return make()[0]
    return persistent_tensors(("transformer_engine gradient", shape, weight.dtype), make)[0].detach()


def parts_of(*values: Any) -> list[Tensor | None]:
    """The tensors of operands."""
    return [part for value in values for part in (value.parts if isinstance(value, Fp8) else (value,))]


def swizzled_of(*factors: Any) -> int:
    """Bytes of their scales that a product copies."""
    return sum(factor.swizzled for factor in factors if isinstance(factor, Fp8))


def clear(*values: Any) -> None:
    """`clear_tensor_data`: memory is given back, whoever holds the tensor."""
    for part in parts_of(*values):
        if part is not None:
            part.data = part.new_empty(0)


ROWS_OF_A_TILE = 256
"""Rows per tile of the kernel for fp8 and its transpose: 32 threads times 8 bytes (cast_transpose_fusion.cu:180)."""
_ROWS_OF_A_CHUNK = 64
"""Rows per chunk of the kernel that makes blocks of 32 (cast_kernels.cuh:1556)."""


def fp8_and_bias(grad: Tensor, call: Call, *, has_bias: bool, rows: int = ROWS_OF_A_TILE) -> tuple[Any, Tensor | None]:
    """The gradient in fp8, and that of a bias; delayed scales have one kernel, with float32 sums: bias.cpp:22."""
    bias = call.made(grad.shape[-1], of=grad) if has_bias else None
    if call.recipe is None:
        return grad, bias
    factor = call.factor(grad, columns=True)
    if isinstance(call.recipe, MXFP8BlockScaling):
        rows = _ROWS_OF_A_CHUNK
    elif call.scales_now or not factor.columns:
        rows = 0
    if has_bias and rows:
        sums = temporary(4 * -(-grad.shape[0] // rows) * grad.shape[1])
        del sums
    return factor, bias
