"""mamba_ssm 2.3.2 and causal_conv1d 1.6.1 run their own Python; what their compiled modules allocate is known.

Where mamba_ssm is not installed its selective scan is there, which many models of images call by itself.

csrc/selective_scan/selective_scan.cpp:230 and 330, and csrc/causal_conv1d.cpp:150, 261 and 466. Mamba-2 and -3 are made
of kernels of Triton.
"""

from typing import Any

import torch

from memlint.libraries.library import Library, launch, temporary

Tensor = torch.Tensor
library = Library(
    "mamba_ssm", distribution="mamba-ssm", version="2.3.2.post1", extensions=("selective_scan_cuda",)
)  # fmt: skip
library.keeps_installed = True
convolution = Library(
    "causal_conv1d", distribution="causal-conv1d", version="1.6.1", extensions=("causal_conv1d_cuda",)
)  # fmt: skip
_CHUNK = 2048
"""Positions after which the scan keeps its state (selective_scan.cpp:307)."""
_scan = library.provides("selective_scan_cuda")
_convolution = convolution.provides("causal_conv1d_cuda")


@_scan
def fwd(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None,  # noqa: N803
    delta_bias: Tensor | None, delta_softplus: bool,
) -> list[Tensor]:  # fmt: skip
    """The scan of [batch, features, length], the states of its chunks, and the scan that `z` has gated."""
    library.assume()
    gated = [] if z is None else [torch.empty_like(z)]
    out = torch.empty_like(delta)
    batch, features, length = u.shape
    states = torch.empty((batch, features, -(-length // _CHUNK), 2 * A.shape[1]), dtype=A.dtype, device=u.device)
    launch((u, delta, A, B, C, D, z, delta_bias), (out, states, *gated))
    return [out, states, *gated]


@_scan
def bwd(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None,  # noqa: N803
    delta_bias: Tensor | None, dout: Tensor, states: Tensor | None, out: Tensor | None, dz: Tensor | None,
    delta_softplus: bool, recompute_out_z: bool,
) -> list[Tensor | None]:  # fmt: skip
    """Gradients of all operands, those of `B` and `C` in float32 first where they vary with the position."""
    library.assume()
    gated: list[Tensor] = []
    if z is not None and out is not None:
        gated.append(torch.empty_like(z) if dz is None else dz)
        if recompute_out_z:
            gated.append(torch.empty_like(out))
    grads = [torch.empty_like(u), torch.empty_like(delta), torch.zeros_like(A)]
    wide = [torch.zeros_like(t, dtype=torch.float32 if t.dim() > 2 else t.dtype) for t in (B, C)]
    rest = [None if t is None else torch.zeros_like(t) for t in (D, delta_bias)]
    launch((u, delta, A, B, C, D, z, delta_bias, dout, states, out), (*grads, *wide, *rest, *gated))
    return [*grads, *(w.to(t.dtype) for w, t in zip(wide, (B, C), strict=True)), *rest, *gated]


class _SelectiveScan(torch.autograd.Function):
    """The scan, with what mamba_ssm/ops/selective_scan_interface.py saves: operands, states, what is not gated yet."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None,  # noqa: N803
        delta_bias: Tensor | None, delta_softplus: bool, return_last_state: bool,
    ) -> Any:  # fmt: skip
        u, delta, B, C = map(_dense, (u, delta, B, C))  # noqa: N806 -- as there
        ctx.grouped = B.dim() > _PLAIN, C.dim() > _PLAIN
        B, C = (t if grouped else t.unsqueeze(1) for t, grouped in zip((B, C), ctx.grouped, strict=True))  # noqa: N806
        out, states, *gated = fwd(u, delta, A, B, C, D, z if z is None else _dense(z), delta_bias, delta_softplus)
        ctx.delta_softplus = delta_softplus
        ctx.save_for_backward(u, delta, A, B, C, D, z, delta_bias, states, out if gated else None)
        out = gated[0] if gated else out
        return (out, states[:, :, -1, 1::2]) if return_last_state else out

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        u, delta, A, B, C, D, z, delta_bias, states, out = ctx.saved_tensors  # noqa: N806
        du, ddelta, dA, dB, dC, dD, dbias, *gated = bwd(  # noqa: N806
            u, delta, A, B, C, D, z, delta_bias, _dense(grad), states, out, None, ctx.delta_softplus, False
        )  # fmt: skip
        dB, dC = (  # noqa: N806
            t if grouped or t is None else t.squeeze(1) for t, grouped in zip((dB, dC), ctx.grouped, strict=True)
        )
        return du, ddelta, dA, dB, dC, dD, gated[0] if gated else None, dbias, None, None


_PLAIN = 3
"""Dimensions of `B` and `C` with one group: batch, states, length."""


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


@library.provides("mamba_ssm.ops.selective_scan_interface")
def selective_scan_fn(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None, z: Tensor | None = None,  # noqa: N803
    delta_bias: Tensor | None = None, delta_softplus: bool = False, return_last_state: bool = False,
) -> Any:  # fmt: skip
    """The scan of [batch, features, length], gated by `z`, and the last state if it is asked for."""
    return _SelectiveScan.apply(u, delta, A, B, C, D, z, delta_bias, delta_softplus, return_last_state)  # type: ignore[no-untyped-call]


@_convolution
def causal_conv1d_fwd(
    x: Tensor, weight: Tensor, bias: Tensor | None, seq_idx: Tensor | None, initial_states: Tensor | None, out: Tensor,
    final_states: Tensor | None, silu: bool,
) -> None:  # fmt: skip
    """Write `out`, and the last positions."""
    convolution.assume()
    launch((x, weight, bias, seq_idx, initial_states), (out, final_states))


@_convolution
def causal_conv1d_bwd(
    x: Tensor, weight: Tensor, bias: Tensor | None, dout: Tensor, seq_idx: Tensor | None, initial_states: Tensor | None,
    dfinal_states: Tensor | None, dx: Tensor, dweight: Tensor, dbias: Tensor | None, dinitial_states: Tensor | None,
    silu: bool,
) -> None:  # fmt: skip
    """Write gradients, which Python has allocated; what is deterministic has parts of those of the weights."""
    convolution.assume()
    batch, features, length = x.shape
    is_channels_last = x.stride(1) == 1 and x.stride(2) > 1
    if dout.stride(1 if is_channels_last else 2) != 1:
        dout = dout.transpose(-1, -2).contiguous() if is_channels_last else dout.contiguous()
    parts = []
    if torch.are_deterministic_algorithms_enabled():
        chunks = -(-length // (64 if length <= 128 else 128)) if is_channels_last else 1
        rows = 4 * batch * chunks * features
        parts = [temporary(rows * weight.shape[1]), *([] if bias is None else [temporary(rows)])]
    launch((x, weight, bias, dout, seq_idx, initial_states, dfinal_states), (dx, dweight, dbias, dinitial_states))
    del parts


@_convolution
def causal_conv1d_update(
    x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, *rest: Any
) -> None:
    """Write `out` of a few positions, and their state in place."""
    convolution.assume()
    launch((x, weight, bias, *rest), (out, conv_state))
