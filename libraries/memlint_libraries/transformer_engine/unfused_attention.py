"""Transformer Engine 2.9: attention by PyTorch's ops: `UnfusedDotProductAttention`, backends.py:193.

All scores are made, and what becomes of them: with a mask in full, which is made for every mask (`get_full_mask`,
utils.py), and a softmax of one kernel where their sides allow it (softmax.py).
"""

from typing import Any

import torch
from torch.nn import functional

from memlint.libraries.library import launch
from memlint.libraries.persistent_tensors import persistent_tensors
from memlint_libraries.transformer_engine.recipes import library

Tensor = torch.Tensor
_HALVES = torch.float16, torch.bfloat16


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: str, given: Any, window: tuple[int, int], dropout: float,
    layout: str,
) -> Tensor:  # fmt: skip
    """Attention of [sequence, batch, heads, size], given back in the order of `layout`, heads made one dimension."""
    library.assume()
    queries, batch, heads, _ = query.shape
    keys = key.shape[0]
    mask, full = _mask_in_full(queries, keys, mask, given, window)
    if key.shape[2] != heads:
        key, value = (each.repeat_interleave(heads // each.shape[2], dim=2) for each in (key, value))
    query, key = (each.reshape(each.shape[0], batch * heads, -1) for each in (query, key))
    scores = query.new_empty(batch * heads, queries, keys)
    scores = torch.baddbmm(scores, query.transpose(0, 1), key.transpose(0, 1).transpose(1, 2), beta=0.0)
    weights = _softmax(scores.view(batch, heads, queries, keys), full, mask)
    del scores
    if "padding" in mask:
        weights = weights.masked_fill(full, 0)
    weights = functional.dropout(weights, dropout, training=True)
    flat = value.reshape(keys, batch * heads, -1)
    context = torch.bmm(weights.view(batch * heads, queries, keys), flat.transpose(0, 1))
    context = context.view(batch, heads, queries, -1)
    order = (2, 0, 1, 3) if layout == "sbhd" else (0, 2, 1, 3)
    return context.permute(order).contiguous().flatten(2)


@torch.no_grad()
def _mask_in_full(
    queries: int, keys: int, mask: str, given: Any, window: tuple[int, int]
) -> tuple[str, Tensor]:  # fmt: skip
    """Return the kind of the full mask, and the positions that it leaves out: [1 or batch, 1, queries, keys]."""
    has_window = window[0] != -1 or window[1] not in {-1, 0}
    left = keys if window[0] == -1 else window[0]
    right = 0 if "causal" in mask else queries if window[1] == -1 else window[1]
    shift: Any = 0
    if "padding" in mask:
        of_queries, of_keys = given if isinstance(given, (tuple, list)) else (given, given)
        given = torch.logical_or(of_queries.squeeze(1).unsqueeze(3), of_keys)
        kept_positions = given.logical_not()
        if mask != "padding_causal":
            actual = kept_positions[:, 0, :, 0].sum(dim=1), kept_positions[:, 0, 0, :].sum(dim=1)
            shift = (actual[1] - actual[0]).view(-1, 1, 1, 1)
    elif mask != "causal":
        shift = keys - queries
    rows = torch.arange(queries, dtype=torch.int32, device="cuda").view(1, 1, queries, 1)
    distance = rows - torch.arange(keys, dtype=torch.int32, device="cuda").view(1, 1, 1, keys)
    far_left, far_right = distance + (shift - left), distance + (shift + right)
    outside = torch.logical_not((far_left <= 0) & ~(far_right < 0))
    full = outside if given is None or mask in {"causal", "no_mask", "causal_bottom_right"} else outside | given
    return "arbitrary" if has_window else mask, full


class _MaskedSoftmax(torch.autograd.Function):
    """Saves what it gives; the gradient is made in its place (csrc/extensions/softmax.cpp:103)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor | None) -> Tensor:
        out = torch.empty_like(scores)
        launch((scores, mask), (out,))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad = grad.contiguous()
        launch((grad, *ctx.saved_tensors), (grad,))
        return grad, None


def _softmax(scores: Tensor, mask: Tensor, kind: str) -> Tensor:
    """Compute the softmax in one kernel, or in float32 by PyTorch: `FusedScaleMaskSoftmax`."""
    if _has_kernel(scores, mask, kind):
        out: Tensor = _MaskedSoftmax.apply(scores, None if kind == "no_mask" else mask)  # type: ignore[no-untyped-call]
        return out
    dtype = scores.dtype
    wide = scores.float() if dtype in _HALVES else scores
    if kind in {"causal", "causal_bottom_right"}:
        mask = torch.logical_or(mask, _triangle(kind, *scores.shape[2:]))
    if kind != "no_mask":
        wide.masked_fill_(mask, -10000.0)
    return functional.softmax(wide, dim=-1).to(dtype)


def _triangle(kind: str, queries: int, keys: int) -> Tensor:
    """The mask of later positions, which is kept for each shape (`_get_default_causal_mask`, softmax.py:21)."""

    def make() -> tuple[Tensor]:
        return (torch.ones(queries, keys, dtype=torch.bool, device="cuda").triu(1),)

    return persistent_tensors(("transformer_engine triangle", kind, queries, keys), make)[0]


def _has_kernel(scores: Tensor, mask: Tensor, kind: str) -> bool:
    """Return True if one kernel computes it: `is_kernel_available`, softmax.py:169."""
    batch, heads, queries, keys = scores.shape
    if scores.dtype not in _HALVES or not 16 < keys < 16384 or keys % 8 or queries == 1:
        return False
    if (kind == "causal" and queries != keys) or queries % 4 or batch * heads % 4:
        return False
    rows = 128 // min(1 << (keys - 1).bit_length(), 32) * (2 if keys <= 128 else 1)
    is_plain = "padding" not in kind and kind != "arbitrary"
    fits = is_plain or (mask.shape[0] in {1, batch} and mask.shape[1:] == (1, queries, keys))
    return queries % rows == 0 and fits
