"""FlashAttention 2.8.3: its layer norm with residual and dropout, of Triton (flash_attn/ops/triton/layer_norm.py).

The residual that goes on is made by the norm where anything is added to the input or its dtype changes, and is what is
saved; without, the input is.
"""

from typing import Any

import torch

from memlint.cuda.simulated import simulated
from memlint.libraries import flash_attn
from memlint.libraries.library import launch

Tensor = torch.Tensor
library = flash_attn.library
_provides = library.provides("flash_attn.ops.triton.layer_norm")


class _Norm(torch.autograd.Function):
    """Saves the residual, weights, seeds of dropout, and a float32 mean and spread of each row."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, dropout: float,
        prenorm: bool, wide: torch.dtype | None, is_rms: bool, out_dtype: torch.dtype | None,
    ) -> Any:  # fmt: skip
        library.assume()
        shape, ctx.dtype = x.shape, x.dtype
        x, residual = (None if t is None else _rows(t) for t in (x, residual))  # type: ignore[assignment]
        out = torch.empty_like(x, dtype=out_dtype or x.dtype)
        wide = residual.dtype if residual is not None else wide
        made = None
        if residual is not None or dropout or wide not in (None, x.dtype):
            made = torch.empty_like(x, dtype=wide or x.dtype)
        rows = [torch.empty(len(x), dtype=torch.float32, device=x.device) for _ in range(2 - is_rms)]
        seeds = torch.randint(2**32, (len(x),), device=x.device, dtype=torch.int64) if dropout else None
        launch((x, weight, bias, residual, seeds), (out, made, *rows))
        kept = x if made is None else made
        ctx.save_for_backward(kept, weight, bias, seeds, *rows)
        ctx.has_residual, ctx.prenorm = residual is not None, prenorm
        return (out.view(shape), kept.view(shape)) if prenorm else out.view(shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *of_residual: Tensor) -> Any:
        x, weight, bias, seeds, *_ = ctx.saved_tensors
        rows = _rows(grad), *map(_rows, of_residual)
        dx = torch.empty(x.shape, dtype=ctx.dtype, device=x.device)
        dresidual = torch.empty_like(x) if ctx.has_residual and (dx.dtype != x.dtype or seeds is not None) else None
        sums = [_sums(x) if t is not None else None for t in (weight, bias)]
        launch((*rows, x, weight, bias, seeds), (dx, dresidual, *sums))
        dweight, dbias = (
            None if s is None else s.sum(0).to(t.dtype) for s, t in zip(sums, (weight, bias), strict=True)
        )
        dx = dx.view(grad.shape)
        if ctx.has_residual:
            dresidual = dx if dresidual is None else dresidual.view(grad.shape)
        return dx, dweight, dbias, dresidual, *(None,) * 5


def _rows(x: Tensor) -> Tensor:
    x = x.reshape(-1, x.shape[-1])
    return x if x.stride(-1) == 1 else x.contiguous()


def _sums(x: Tensor) -> Tensor:
    """Float32 rows that are added up: eight for each multiprocessor."""
    return torch.empty(8 * simulated().device.num_sms, x.shape[1], dtype=torch.float32, device=x.device)


@_provides
def layer_norm_fn(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None, x1: Any = None, weight1: Any = None,
    bias1: Any = None, eps: float = 1e-6, dropout_p: float = 0.0, rowscale: Any = None, prenorm: bool = False,
    residual_in_fp32: bool = False, zero_centered_weight: bool = False, is_rms_norm: bool = False,
    return_dropout_mask: bool = False, out_dtype: torch.dtype | None = None, out: Any = None, residual_out: Any = None,
) -> Any:  # fmt: skip
    """The norm of `residual + dropout(x)`; with `prenorm` that sum as well."""
    others = {"x1": x1, "weight1": weight1, "bias1": bias1, "rowscale": rowscale, "out": out,
              "residual_out": residual_out, "return_dropout_mask": return_dropout_mask or None}  # fmt: skip
    for name, value in others.items():
        if value is not None:
            library.unknown(f"flash_attn.ops.triton.layer_norm.layer_norm_fn({name})")()
    wide = torch.float32 if residual_in_fp32 else None
    return _Norm.apply(x, weight, bias, residual, dropout_p, prenorm, wide, is_rms_norm, out_dtype)  # type: ignore[no-untyped-call]


@_provides
def rms_norm_fn(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None, **options: Any) -> Any:
    """The same without a mean."""
    return layer_norm_fn(x, weight, bias, residual, is_rms_norm=True, **options)


@_provides
class RMSNorm(torch.nn.Module):
    """The norm without a mean and a bias."""

    bias: None

    def __init__(
        self, hidden_size: int, eps: float = 1e-5, dropout_p: float = 0.0, zero_centered_weight: bool = False,
        device: Any = None, dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.eps, self.dropout_p = eps, dropout_p
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)

    def forward(
        self, x: Tensor, residual: Tensor | None = None, prenorm: bool = False, residual_in_fp32: bool = False
    ) -> Any:
        """Compute what `rms_norm_fn` does."""
        return rms_norm_fn(
            x, self.weight, self.bias, residual, dropout_p=self.dropout_p if self.training else 0.0, prenorm=prenorm,
            residual_in_fp32=residual_in_fp32,
        )  # fmt: skip
