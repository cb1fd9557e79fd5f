"""Transformer Engine 2.9: a loss in one kernel: pytorch/cross_entropy.py and triton/cross_entropy.py."""

from typing import Any

import torch

from memlint.libraries.library import launch
from memlint_libraries.transformer_engine.recipes import library

Tensor = torch.Tensor


class _Loss(torch.autograd.Function):
    """Saves the logits, in whose place the gradient is made, forward already (triton/cross_entropy.py:284)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, is_reduced: bool) -> Any:
        library.assume()
        rows = logits.shape[0] * logits.shape[1]
        losses = torch.zeros(rows, dtype=torch.float32, device=logits.device)
        parts = torch.zeros(3 * rows, dtype=torch.float32, device=logits.device)
        logits = logits.detach() if logits.stride(-1) == 1 else logits.contiguous()
        launch((logits, target, parts), (logits, losses, parts))
        ctx.save_for_backward(logits)
        return losses.sum() / rows if is_reduced else losses.view(logits.shape[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (logits,) = ctx.saved_tensors
        launch((logits, grad), (logits,))
        return logits, None, None


@library.provides("transformer_engine.pytorch", "transformer_engine.pytorch.cross_entropy")
def parallel_cross_entropy(
    inp: Tensor, target: Tensor, label_smoothing: float = 0.0, reduce_loss: bool = False,
    dist_process_group: Any = None, ignore_idx: int = -100, is_cg_capturable: bool = False,
) -> Any:  # fmt: skip
    """Losses in float32 of logits [batch, sequence, words], or one of them all."""
    if dist_process_group is not None:
        library.unknown("transformer_engine.pytorch.parallel_cross_entropy(dist_process_group)")()
    return _Loss.apply(inp, target, reduce_loss)  # type: ignore[no-untyped-call]
