"""Scaled-dot-product attention: the kernel that CUDA would choose, and the memory it allocates.

The rules are those of aten/src/ATen/native/transformers/cuda/attention.cu and attention_backward.cu.
"""

import math
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import allocate, contiguous, strides
from memlint.accelerator.private import output_permutation
from memlint.accelerator.registration import composite, kernel
from memlint.cuda.kernels.attention_choice import (
    CUDNN,
    EFFICIENT,
    FLASH,
    HALF,
    capability_of_gpu,
    choose,
    is_deterministic,
    shapes_fit,
)
from memlint.cuda.kernels.composites import temporary
from memlint.cuda.simulated import simulated

aten = torch.ops.aten
Tensor = torch.Tensor
MAX_BATCH = (1 << 16) - 1
"""Largest batch of memory-efficient attention: larger ones are split."""


def round_up(n: int, multiple: int) -> int:
    """Round up to the next multiple."""
    return -(-n // multiple) * multiple


@composite("scaled_dot_product_attention")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Run `aten::scaled_dot_product_attention` as the simulated device does."""
    if not query.dtype == key.dtype == value.dtype:
        dtypes = f"query.dtype: {query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype}"
        raise RuntimeError(f"Expected query, key, and value to have the same dtype, but got {dtypes} instead.")
    if not state.current.cuda:
        return _on_cpu(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    backend = choose(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if backend == FLASH:
        head = query.shape[-1]
        scale = scale if scale is not None else 1 / math.sqrt(head)
        padded = [torch.nn.functional.pad(t, (0, -head % 8)) if head % 8 else t for t in (query, key, value)]
        out: Tensor = aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, False, scale=scale)[0]
        return out[..., :head] if head % 8 else out
    if backend == EFFICIENT:
        mask = _additive(attn_mask, query.dtype)
        if mask is not None:
            mask = _aligned(mask).expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        efficient: Tensor = aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, needs_grad, dropout_p, is_causal, scale=scale
        )[0]
        return efficient
    if backend == CUDNN:
        mask = _additive(attn_mask, query.dtype)
        of_cudnn: Tensor = aten._scaled_dot_product_cudnn_attention(
            query, key, value, mask, needs_grad, dropout_p, is_causal, False, scale=scale
        )[0]
        return of_cudnn
    mask = _additive(attn_mask, query.dtype)
    return _math(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Turn a boolean mask into one of zeros and minus infinity, in the dtype of the query."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    blocked = torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device)
    return torch.where(mask, 0.0, blocked)


def _aligned(mask: Tensor) -> Tensor:
    """Pad the rows of a mask in memory to 16 bytes, which memory-efficient attention reads at once."""
    alignment = 16 // mask.element_size()
    columns = mask.shape[-1]
    row_aligned = all(s % alignment == 0 for s, n in zip(mask.stride()[:-1], mask.shape[:-1], strict=True) if n > 1)
    if columns % alignment == 0 and row_aligned:
        return mask
    return torch.nn.functional.pad(mask, (0, -columns % alignment))[..., :columns]


def _on_cpu(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *rest: Any) -> Tensor:
    dropout, causal, scale, grouped = rest
    flash = (
        dropout == 0.0
        and q.dtype in (torch.float32, torch.float64, *HALF)
        and shapes_fit(q, k, v, grouped=True)
        and q.shape[-1] == k.shape[-1] == v.shape[-1]
        and (
            mask is None
            or (mask.dtype in (torch.bool, torch.float32, q.dtype) and mask.dim() in (2, 4) and not mask.requires_grad)
        )
        and (grouped or q.shape[1] == k.shape[1] == v.shape[1])
        and torch.backends.cuda.flash_sdp_enabled()
    )
    if flash:
        out: Tensor = aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, dropout, causal, attn_mask=_additive(mask, q.dtype), scale=scale
        )[0]
        return out
    return _math(q, k, v, mask, dropout, causal, scale, grouped)


def _math(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *rest: Any) -> Tensor:
    dropout, causal, scale, grouped = rest
    out: Tensor = aten._scaled_dot_product_attention_math(
        q, k, v, _additive(mask, q.dtype), dropout, causal, None, scale=scale, enable_gqa=grouped
    )[0]
    return out


def _num_splits(rows: int, num_blocks: int) -> int:
    """Return into how many parts keys are split when there is little other parallel work (`num_splits_heuristic`)."""
    num_sms = 2 * simulated().device.num_sms
    if rows >= 0.8 * num_sms:
        return 1
    eligible = [n for n in range(1, min(128, num_sms, num_blocks) + 1)
                if n == 1 or -(-num_blocks // n) != -(-num_blocks // (n - 1))]  # fmt: skip
    waves = {n: rows * n / num_sms for n in eligible}
    efficiency = {n: wave / math.ceil(wave) for n, wave in waves.items()}
    best = max(efficiency.values())
    return next(n for n in eligible if efficiency[n] >= 0.85 * best)


def rounded_head(head: int) -> int:
    """Return the size of heads with which FlashAttention's kernels compute."""
    return round_up(head, 32 if head <= 128 else 64)


def split_sums(b: int, heads: int, rows: int, columns: int, head: int, splits: int = 0) -> list[Tensor]:
    """Allocate FlashAttention's float32 logsumexps and outputs of each part where keys are split.

    `set_params_splitkv` of csrc/flash_attn/flash_api.cpp, which PyTorch 2.10 to 2.13 have as flash_attn does
    (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp): bounded by the multiprocessors of the GPU.
    """
    block = 256 if head <= 64 else 128 if head <= 128 else 64
    splits = splits or _num_splits(b * heads * -(-rows // 64), -(-columns // block))
    if splits <= 1:
        return []
    return [temporary(4 * splits * b * heads * rows), temporary(4 * splits * b * heads * rows * rounded_head(head))]


def flash_forward(
    q: Tensor, k: Tensor, cu_seqlens: Tensor | None, max_q: int, max_k: int, dropout: float,
    plain: bool, seed_dtype: torch.dtype, probs: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Allocate the logsumexp, the probabilities if requested, and the random state.

    `mha_fwd` of flash_api.cpp for [batch, rows, heads, size], and with `cu_seqlens` `mha_varlen_fwd` for [rows, heads,
    size]. `plain`: neither a window nor a position bias.
    """
    heads, heads_k, head = q.shape[-2], k.shape[-2], q.shape[-1]
    b = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    lse = contiguous((b, heads, max_q) if cu_seqlens is None else (heads, q.shape[0]), torch.float32)
    p = contiguous((b, heads, round_up(max_q, 128), round_up(max_k, 128)) if probs else (0,), q.dtype)
    sums: list[Tensor] = []
    if dropout == 0 and grouped_query(q, k, max_q, dropout, plain):
        sums = split_sums(b, heads_k, heads // heads_k, max_k, head)
    elif dropout == 0 and cu_seqlens is None:
        sums = split_sums(b, heads, max_q, max_k, head)
    seed = contiguous((2,), seed_dtype)
    del sums
    return lse, p, seed


def grouped_query(q: Tensor, k: Tensor, max_q: int, dropout: float, plain: bool) -> bool:
    """Return True if the one query of each head in a group is treated as the queries of one head."""
    return max_q == 1 and q.shape[-2] > k.shape[-2] and dropout == 0 and plain


def flash_backward(q: Tensor, k: Tensor, cu_seqlens: Tensor | None, max_q: int, is_deterministic: bool) -> Tensor:
    """Allocate the row sums of `mha_bwd` and `mha_varlen_bwd`.

    Float32 dq, and dk and dv of every head, are freed again.
    """
    heads, head = q.shape[-2:]
    b = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    rows = b * round_up(max_q, 128) if cu_seqlens is None else q.shape[0] + 128 * b
    row_sums = contiguous((b, heads, rows // b) if cu_seqlens is None else (heads, rows), torch.float32)
    # A deterministic backward adds into a separate dq for each round of the multiprocessors.
    rounds = -(-simulated().device.num_sms // (b * heads)) if is_deterministic else 1
    taken = [temporary(4 * rounds * rows * heads * rounded_head(head))]
    if k.shape[-2] != heads:
        taken += [temporary(k.numel() // k.shape[-2] * heads * k.element_size()) for _ in range(2)]
    del taken
    return row_sums


@kernel("_scaled_dot_product_flash_attention")
def _sdpa_flash_forward(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, *_: Any, **__: Any) -> tuple[Any, ...]:
    """FlashAttention in SDPA; the output is laid out as the query (`mha_fwd` of aten's flash_api.cpp: `empty_like`)."""
    out = laid_out_as(q)
    rows, columns = q.shape[2], k.shape[2]
    lse, p, seed = flash_forward(q.transpose(1, 2), k.transpose(1, 2), None, rows, columns, dropout, True, torch.uint64)
    # The state of the random generator: [2] uint64 and an unused scalar since torch 2.7.
    return out, lse, None, None, rows, columns, seed, allocate((), (), torch.uint64), p


@kernel("_scaled_dot_product_flash_attention_backward")
def _sdpa_flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *rest: Any, **_: Any
) -> tuple[Tensor, ...]:
    copies = _packed(grad.transpose(1, 2), out.transpose(1, 2))
    grads = tuple(laid_out_as(t) for t in (q, k, v))
    row_sums = flash_backward(q.transpose(1, 2), k.transpose(1, 2), None, q.shape[2], is_deterministic())
    del row_sums, copies
    return grads


def laid_out_as(x: Tensor) -> Tensor:
    """`empty_like` as a part of the kernel: dimensions in the same order in memory, without gaps."""
    order, _ = output_permutation(x)
    steps = dict(zip(order, strides([x.shape[dim] for dim in order]), strict=True))
    return allocate(x.shape, [steps[dim] for dim in range(x.ndim)], x.dtype)


def _packed(*operands: Tensor) -> list[Tensor]:
    """Copy gradient and output if they are not contiguous: `_flash_attention_backward`, attention_backward.cu."""
    return [contiguous(t.shape, t.dtype) for t in operands if not t.is_contiguous()]


@kernel("_flash_attention_forward")
def _flash_forward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor | None, _cu_k: Tensor | None, max_q: int, max_k: int,
    dropout: float, _is_causal: bool, debug: bool, *, window_size_left: int | None = None,
    window_size_right: int | None = None, alibi_slopes: Tensor | None = None, **_: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """FlashAttention of [batch, rows, heads, size], or of [rows, heads, size] with lengths: attention.cu."""
    no_window = all(size is None or size < 0 for size in (window_size_left, window_size_right))
    plain = no_window and alibi_slopes is None
    copies = []
    if cu_seqlens is None:
        max_q, max_k = q.shape[1], k.shape[1]
    elif grouped_query(q, k, max_q, dropout, plain):
        copies = [contiguous(q.shape, q.dtype) for _ in range(2)]  # the query with groups as rows, and its output
    out = laid_out_as(q)
    lse, p, seed = flash_forward(q, k, cu_seqlens, max_q, max_k, dropout, plain, torch.uint64, debug)
    del copies
    return out, lse, seed, allocate((), (), torch.uint64), p


@kernel("_flash_attention_backward")
def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, _lse: Tensor, cu_seqlens: Tensor | None, _cu_k: Any,
    max_q: int, *_: Any, **__: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    copies = _packed(grad, out)
    grads = tuple(laid_out_as(t) for t in (q, k, v))
    row_sums = flash_backward(q, k, cu_seqlens, q.shape[1] if cu_seqlens is None else max_q, is_deterministic())
    del row_sums, copies
    return grads


@kernel("_scaled_dot_product_efficient_attention")
def _sdpa_efficient_forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, compute_lse: bool, *_: Any, **__: Any
) -> tuple[Any, ...]:
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def of_chunk(rows: slice) -> tuple[Tensor, ...]:
        bias = None if mask is None else mask[rows]
        results = _efficient_forward(q[rows], k[rows], v[rows], bias, None, None, None, None, 0.0, 0, compute_lse)
        return results[0].transpose(1, 2), *results[1:4]

    first, *others = _chunks(q.shape[0])
    out, lse, seed, offset = of_chunk(first)
    if not others:
        return out, lse, seed, offset
    whole = contiguous(q.shape[:3] + v.shape[-1:], q.dtype).transpose(1, 2)
    whole_lse = contiguous((q.shape[0], *lse.shape[1:]), torch.float32)
    for rows in others:
        of_chunk(rows)
    del out, lse
    return whole, whole_lse, seed, offset


def _chunks(batch: int) -> list[slice]:
    """Split batches as efficient attention does: results of the first part are kept to the end, then those of each."""
    return [slice(start, min(start + MAX_BATCH, batch)) for start in range(0, batch, MAX_BATCH)]


@kernel("_efficient_attention_forward")
def _efficient_forward(
    q: Tensor, k: Tensor, v: Tensor, _bias: Tensor | None, cu_seqlens: Tensor | None, _cu_k: Tensor | None,
    max_q: int | None, max_k: int | None, _dropout: float, _kind: int, compute_lse: bool = False, **_: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Memory-efficient attention of [batch, rows, heads, size]; sequences with `cu_seqlens` are rows of one batch."""
    b, s, h, _head = q.shape
    if cu_seqlens is None:
        max_q, max_k = s, k.shape[1]
    else:
        b = cu_seqlens.shape[0] - 1
    out = contiguous((*q.shape[:3], v.shape[-1]), q.dtype)
    lse = contiguous((b, h, round_up(max_q or s, 32) if compute_lse else 0), torch.float32)
    if v.shape[-1] > 128 and q.dtype in HALF:
        accumulator = temporary(4 * out.numel())
        del accumulator
    with state.current.placed(on_host=True):
        seed, offset = allocate((), (), torch.int64), allocate((), (), torch.int64)
    return out, lse, seed, offset, max_q, max_k


@kernel("_scaled_dot_product_efficient_attention_backward")
def _sdpa_efficient_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *rest: Any, **_: Any
) -> tuple[Tensor | None, ...]:
    bias_requires_grad, rows, columns = rest[5][3], q.shape[2], k.shape[2]
    operands = [t.transpose(1, 2) for t in (grad, q, k, v)]

    def of_chunk(part: slice) -> tuple[Tensor | None, ...]:
        bias = None if mask is None else mask[part]
        grad, q, k, v = (t[part] for t in operands)
        dq, dk, dv, grad_mask = _efficient_backward(
            grad, q, k, v, bias, None, None, None, rows, columns, None, 0.0, None, None, 0, bias_requires_grad
        )
        return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2), grad_mask

    chunks = _chunks(q.shape[0])
    if len(chunks) == 1:
        return of_chunk(chunks[0])
    whole = [
        allocate(t.shape, t.stride(), t.dtype) if needed else None
        for t, needed in zip((q, k, v), rest[5], strict=False)
    ]
    grad_bias = contiguous(mask.shape, mask.dtype) if mask is not None and bias_requires_grad else None
    for part in chunks:
        of_chunk(part)
    return *whole, grad_bias


@kernel("_efficient_attention_backward")
def _efficient_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, _out: Any, cu_seqlens: Tensor | None,
    _cu_k: Any, max_q: int, max_k: int, _lse: Any, _dropout: float, _seed: Any, _offset: Any, _kind: int,
    bias_requires_grad: bool, *, shared_storage_dqdkdv: bool = False, **_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    b, s, h, _head = q.shape
    dense = _packed(grad)
    if shared_storage_dqdkdv:
        dq, dk, dv = contiguous((b, s, 3, h, q.shape[-1]), q.dtype).unbind(2)
    else:
        dq, dk, dv = (contiguous(t.shape, t.dtype) for t in (q, k, v))
    grad_bias = None
    if bias is not None and bias_requires_grad:
        columns = round_up(bias.shape[-1], 16)
        grad_bias = contiguous((*bias.shape[:-1], columns), bias.dtype)[..., : bias.shape[-1]]
    delta = _delta(grad, max(q.shape[-1], v.shape[-1]))
    sequences, rows, columns = (b, s, k.shape[1]) if cu_seqlens is None else (cu_seqlens.shape[0] - 1, max_q, max_k)
    scratch = temporary(accumulators(sequences, h, rows, columns, q.shape[-1], v.shape[-1], q.dtype in HALF))
    del scratch, delta, dense
    return dq, dk, dv, grad_bias


def _delta(grad: Tensor, size: int) -> Tensor:
    """Allocate the sums of gradient times output in float32 for heads of this `size`; [batch, rows, heads, size].

    Kernels for halves compute them, except for large heads on Volta. Otherwise it is one C++ expression, whose
    temporaries live until its end.
    """
    b, s, h, _ = grad.shape
    half = grad.dtype in HALF
    block_i, max_k = _blocks(size, half)
    if half and (max_k <= block_i or not (7, 0) <= capability_of_gpu() < (7, 5)):
        return temporary(4 * b * h * s)
    casts = [temporary(4 * grad.numel()) for _ in range(2)] if half else []
    product = temporary(4 * grad.numel())
    row_sums = temporary(4 * b * h * s)
    delta = temporary(4 * b * h * s) if 1 not in (s, h) else row_sums
    del casts, product
    return delta


def _blocks(size: int, half: bool) -> tuple[int, int]:
    """Rows of queries in a block and the largest head of the kernel for heads of `size`: `dispatch_cutlassB`."""
    capability = capability_of_gpu()
    max_k = next(n for n in (32, 64, 128, 65536) if size <= n)
    wide = max_k > 64 and (capability >= (8, 0) or (half and capability >= (7, 0)))
    return 128 if wide else 64, max_k


def accumulators(b: int, h: int, s: int, columns: int, d: int, d_v: int, half: bool) -> int:
    """Bytes of the accumulators of memory-efficient attention's backward: mem_eff_attention/kernel_backward.h."""
    block_i, max_k = _blocks(max(d, d_v), half)
    preload = capability_of_gpu() >= (8, 0) and half and max_k <= 128
    block_j = 128 if preload and max_k > 64 else 64
    staged = half and max_k > block_i  # float32 accumulates in the gradients themselves, small heads in registers
    blocks = -(-columns // block_j)
    splits = blocks
    if b * h * blocks >= 256 and columns <= 2 * block_j:
        splits = 1
    if staged:
        splits = min(splits, max(200 // (b * h), 1))
    grad_q = -(-s // block_i) * -(-d // block_j) * (16 + block_i * block_j * 4) // 4
    grad_k = grad_v = 0
    if staged:
        grad_k = splits * block_j * round_up(d, block_i)
        grad_v = splits * block_j * round_up(d_v, block_i)
    return b * h * round_up(grad_k + grad_v + grad_q, 4) * 4
