"""FlashAttention 2, of version 2.8.3: attention, padding, rotary embedding, cross entropy.

Attention saves its operands (views of what is packed), its output, and a float32 logsumexp for each row and head:
flash_attn/flash_attn_interface.py. What its kernels take is in csrc/flash_attn/flash_api.cpp.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from memlint.cuda.kernels.attention import flash_backward, flash_forward, grouped_query, split_sums
from memlint.cuda.simulated import simulated
from memlint.libraries.library import Library, contiguous, like, temporary

Tensor = torch.Tensor
library = Library("flash_attn", distribution="flash-attn", version="2.8.3", extensions=("flash_attn_2_cuda",))
_provides = library.provides("flash_attn", "flash_attn.flash_attn_interface")


# --- kernels


def _check(*operands: Tensor) -> None:
    if any(t.dtype not in (torch.float16, torch.bfloat16) for t in operands):
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    if operands[0].shape[-1] > 256:
        raise RuntimeError("FlashAttention forward only supports head dimension at most 256")
    if simulated().device.capability < (8, 0):
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")


@library.kernel(
    "forward(Tensor q, Tensor k, Tensor v, Tensor? cu_seqlens_q, int max_q, int max_k, float dropout, bool probs,"
    " bool plain) -> (Tensor, Tensor, Tensor, Tensor)"
)
def _forward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor | None, max_q: int, max_k: int, dropout: float, probs: bool,
    plain: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """`mha_fwd`, flash_api.cpp:350, and `mha_varlen_fwd`, 514. `plain`: neither window nor bias of positions."""
    _check(q, k, v)
    copies = [like(t) for t in (q, k, v) if t.stride(-1) != 1]  # `maybe_contiguous`
    if cu_seqlens is not None and grouped_query(q, k, max_q, dropout, plain):  # swapped groups, and their output
        copies += [like(q), like(q)]
    out = torch.empty_like(q) if q.stride(-1) == 1 else like(q)
    rest = flash_forward(q, k, cu_seqlens, max_q, max_k, dropout, plain, torch.int64, probs)
    del copies
    return out, *rest


@library.kernel(
    "backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor(a!) dq, Tensor(b!) dk,"
    " Tensor(c!) dv, Tensor? cu_seqlens_q, int max_q, bool deterministic) -> Tensor"
)
def _backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dq: Tensor, dk: Tensor, dv: Tensor,
    cu_seqlens: Tensor | None, max_q: int, deterministic: bool,
) -> Tensor:  # fmt: skip
    """`mha_bwd`, flash_api.cpp:767, and `mha_varlen_bwd`, 973: row sums, float32 dq, dk and dv of every head."""
    copies = [like(t) for t in (dout, q, k, v, out) if t.stride(-1) != 1]
    row_sums = flash_backward(q, k, cu_seqlens, max_q, deterministic)
    del copies
    return row_sums


# --- attention


@dataclass(frozen=True, slots=True)
class _Call:
    """How attention is called, beside its operands."""

    lengths: tuple[Tensor, Tensor] | None
    max_q: int
    max_k: int
    dropout: float
    plain: bool
    deterministic: bool
    probs: bool


class _Attention(torch.autograd.Function):
    """Attention of one packed tensor, of a query and packed keys and values, or of all three."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *packed: Tensor) -> Any:
        operands = _unpacked(*packed)
        head = operands[0].shape[-1]
        if head % 8:
            operands = tuple(F.pad(t, (0, -head % 8)) for t in operands)
        lengths = call.lengths[0] if call.lengths else None
        probs = call.probs and call.dropout > 0
        out, lse, p, seed = _forward(*operands, lengths, call.max_q, call.max_k, call.dropout, probs, call.plain)
        ctx.save_for_backward(*operands, out, lse, seed, *(call.lengths or ()))
        ctx.call, ctx.num_packed = call, len(packed)
        return (out[..., :head], lse, p) if call.probs else out[..., :head]

    @staticmethod
    def backward(ctx: Any, dout: Tensor, *_: Any) -> Any:
        q, k, v, out, lse, _seed, *lengths = ctx.saved_tensors
        head = dout.shape[-1]
        if ctx.num_packed == 1:
            grads = [torch.empty((*q.shape[:-2], 3, *q.shape[-2:]), dtype=q.dtype, device=q.device)]
        elif ctx.num_packed == 2:
            pair = torch.empty((*k.shape[:-2], 2, *k.shape[-2:]), dtype=k.dtype, device=k.device)
            grads = [torch.empty_like(q), pair]
        else:
            grads = [torch.empty_like(t) for t in (q, k, v)]
        padded = F.pad(dout, (0, -head % 8)) if head % 8 else dout
        call = ctx.call
        _backward(padded, q, k, v, out, lse, *_unpacked(*grads), lengths[0] if lengths else None, call.max_q,
                  call.deterministic)  # fmt: skip
        return None, *(g[..., :head] for g in grads)


def _unpacked(*packed: Tensor) -> tuple[Tensor, ...]:
    if len(packed) == 1:
        return packed[0].detach().unbind(-3)
    if len(packed) == 2:
        return packed[0], *packed[1].detach().unbind(-3)
    return packed


def _attend(
    *packed: Tensor,
    lengths: tuple[Tensor, Tensor] | None = None,
    max_lengths: tuple[Any, Any] | None = None,
    dropout_p: float,
    window_size: tuple[int, int],
    alibi_slopes: Tensor | None,
    deterministic: bool,
    return_attn_probs: bool,
) -> Any:
    plain = alibi_slopes is None and tuple(window_size) == (-1, -1)
    max_q, max_k = max_lengths or (packed[0].shape[1], packed[-1].shape[1])
    call = _Call(lengths, int(max_q), int(max_k), dropout_p, plain, deterministic, return_attn_probs)
    return _Attention.apply(call, *packed)  # type: ignore[no-untyped-call]


@_provides
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of [batch, length, heads, head size]; keys and values may have fewer heads."""
    return _attend(q, k, v, dropout_p=dropout_p, window_size=window_size, alibi_slopes=alibi_slopes,
                   deterministic=deterministic, return_attn_probs=return_attn_probs)  # fmt: skip


@_provides
def flash_attn_qkvpacked_func(
    qkv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of [batch, length, 3, heads, head size]."""
    return _attend(qkv, dropout_p=dropout_p, window_size=window_size, alibi_slopes=alibi_slopes,
                   deterministic=deterministic, return_attn_probs=return_attn_probs)  # fmt: skip


@_provides
def flash_attn_kvpacked_func(
    q: Tensor, kv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of [batch, length, heads, head size] and [batch, length, 2, heads, head size]."""
    return _attend(q, kv, dropout_p=dropout_p, window_size=window_size, alibi_slopes=alibi_slopes,
                   deterministic=deterministic, return_attn_probs=return_attn_probs)  # fmt: skip


@_provides
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False, block_table: Tensor | None = None,
) -> Any:  # fmt: skip
    """Attention of sequences one behind the other, [total, heads, head size]."""
    return _attend(q, k, v, lengths=(cu_seqlens_q, cu_seqlens_k), max_lengths=(max_seqlen_q, max_seqlen_k),
                   dropout_p=dropout_p, window_size=window_size, alibi_slopes=alibi_slopes,
                   deterministic=deterministic, return_attn_probs=return_attn_probs)  # fmt: skip


@_provides
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of [total, 3, heads, head size]."""
    return _attend(qkv, lengths=(cu_seqlens, cu_seqlens), max_lengths=(max_seqlen, max_seqlen), dropout_p=dropout_p,
                   window_size=window_size, alibi_slopes=alibi_slopes, deterministic=deterministic,
                   return_attn_probs=return_attn_probs)  # fmt: skip


@_provides
def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of [total, heads, head size] and [total, 2, heads, head size]."""
    return _attend(q, kv, lengths=(cu_seqlens_q, cu_seqlens_k), max_lengths=(max_seqlen_q, max_seqlen_k),
                   dropout_p=dropout_p, window_size=window_size, alibi_slopes=alibi_slopes,
                   deterministic=deterministic, return_attn_probs=return_attn_probs)  # fmt: skip


# --- the compiled module, which xFormers calls: flash_api.cpp:1478


def _fwd(
    q: Tensor, k: Tensor, v: Tensor, out: None, alibi_slopes: Tensor | None, dropout: float, _scale: float,
    _causal: bool, left: int, right: int, _softcap: float, return_softmax: bool, _generator: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    plain = alibi_slopes is None and (left, right) == (-1, -1)
    return tuple(_forward(q, k, v, None, q.shape[1], k.shape[1], dropout, return_softmax, plain))


def _varlen_fwd(
    q: Tensor, k: Tensor, v: Tensor, out: None, cu_seqlens_q: Tensor, _cu_seqlens_k: Tensor, _used: Tensor | None,
    _leftpad: Tensor | None, _blocks: Tensor | None, alibi_slopes: Tensor | None, max_q: int, max_k: int,
    dropout: float, _scale: float, _zeros: bool, _causal: bool, left: int, right: int, _softcap: float,
    return_softmax: bool, _generator: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    plain = alibi_slopes is None and (left, right) == (-1, -1)
    return tuple(_forward(q, k, v, cu_seqlens_q, max_q, max_k, dropout, return_softmax, plain))


def _bwd(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dq: Tensor, dk: Tensor, dv: Tensor,
    _alibi: Tensor | None, _dropout: float, _scale: float, _causal: bool, _left: int, _right: int, _softcap: float,
    deterministic: bool, *_: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    return dq, dk, dv, _backward(dout, q, k, v, out, lse, dq, dk, dv, None, q.shape[1], deterministic)


def _varlen_bwd(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dq: Tensor, dk: Tensor, dv: Tensor,
    cu_seqlens_q: Tensor, _cu_seqlens_k: Tensor, _alibi: Tensor | None, max_q: int, _max_k: int, _dropout: float,
    _scale: float, _zeros: bool, _causal: bool, _left: int, _right: int, _softcap: float, deterministic: bool, *_: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    return dq, dk, dv, _backward(dout, q, k, v, out, lse, dq, dk, dv, cu_seqlens_q, max_q, deterministic)


_COMPILED = {"fwd": _fwd, "varlen_fwd": _varlen_fwd, "bwd": _bwd, "varlen_bwd": _varlen_bwd}
library.modules["flash_attn_2_cuda"] = dict(_COMPILED)
library.modules["flash_attn.flash_attn_interface"].update(
    dict.fromkeys(("flash_attn_gpu", "flash_attn_cuda"), SimpleNamespace(**_COMPILED))  # the latter before 2.7
)


# --- decoding


@library.kernel(
    "cached(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? k, Tensor? v, int columns, int splits)"
    " -> (Tensor, Tensor)"
)
def _cached(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None, v: Tensor | None, columns: int, splits: int
) -> tuple[Tensor, Tensor]:
    """`mha_fwd_kvcache`, flash_api.cpp:1203; heads that are no multiple of 8 have padded copies of everything."""
    head, padding = q.shape[-1], -q.shape[-1] % 8
    width = head + padding
    operands = [t for t in (q, k_cache, v_cache, k, v) if t is not None]
    copies = [temporary(t.numel() // head * width * t.element_size()) for t in operands if padding]
    b, rows, heads = q.shape[:3]
    out = contiguous((b, rows, heads, width), q.dtype)[..., :head]
    if rows == 1 and heads > k_cache.shape[-2]:  # rows of a group are swapped
        heads, rows = k_cache.shape[-2], heads // k_cache.shape[-2]
    lse = contiguous((b, heads, rows), torch.float32)
    sums = split_sums(b, heads, rows, columns, width, splits)
    del sums, copies
    return out, lse


@_provides
def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
    rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None, cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None, cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None, num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:  # fmt: skip
    """Attention to a cache, which it extends in place; it has no backward."""
    _check(q)
    if isinstance(cache_seqlens, int):
        torch.full((k_cache.shape[0],), cache_seqlens, dtype=torch.int32, device=k_cache.device)
    columns = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    with torch.no_grad():
        out, lse = _cached(q, k_cache, v_cache, k, v, columns, num_splits)
    return (out, lse) if return_softmax_lse else out


# --- padding: flash_attn/bert_padding.py


class _IndexFirstAxis(torch.autograd.Function):
    """Rows of a tensor by `gather`, whose gradient is scattered into zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.num_rows = x.shape[0]
        flat = x.reshape(x.shape[0], -1)
        rows = indices.unsqueeze(1).expand(-1, flat.shape[1])
        return torch.gather(flat, 0, rows).reshape(-1, *x.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (indices,) = ctx.saved_tensors
        flat = grad.reshape(grad.shape[0], -1)
        result = torch.zeros((ctx.num_rows, flat.shape[1]), dtype=grad.dtype, device=grad.device)
        result.scatter_(0, indices.unsqueeze(1).expand(-1, flat.shape[1]), flat)
        return result.reshape(ctx.num_rows, *grad.shape[1:]), None


class _IndexPutFirstAxis(torch.autograd.Function):
    """Rows put into zeros."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, indices: Tensor, num_rows: int) -> Tensor:
        ctx.save_for_backward(indices)
        out = torch.zeros((num_rows, *values.shape[1:]), dtype=values.dtype, device=values.device)
        out[indices] = values
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad[ctx.saved_tensors[0]], None, None


_padding = library.provides("flash_attn.bert_padding")


@_padding
def index_first_axis(x: Tensor, indices: Tensor) -> Any:
    """`x[indices]`."""
    return _IndexFirstAxis.apply(x, indices)  # type: ignore[no-untyped-call]


@_padding
def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Any:
    """Zeros with `values` at `indices`."""
    return _IndexPutFirstAxis.apply(values, indices, first_axis_dim)  # type: ignore[no-untyped-call]


@_padding
def unpad_input(hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None) -> Any:
    """Rows that the mask keeps, their indices, and cumulative and largest lengths."""
    mask = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    longest = lengths.max().item()
    ends = F.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, ends, longest, used


@_padding
def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Any:
    """The inverse of `unpad_input`."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))


# --- rotary embedding: flash_attn/layers/rotary.py, ops/triton/rotary.py


@library.kernel("rotate(Tensor x, Tensor cos, Tensor sin) -> Tensor")
def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return torch.empty_like(x)


@library.kernel("rotate_(Tensor(a!) x, Tensor cos, Tensor sin) -> ()")
def _rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    pass


class _Rotary(torch.autograd.Function):
    """Saves cosines and sines; what is rotated in place has its gradient rotated in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, part: Callable[[Tensor], Tensor], inplace: bool, cos: Tensor, sin: Tensor) -> Any:
        ctx.save_for_backward(cos, sin)
        ctx.part, ctx.inplace = part, inplace
        if not inplace:
            return _rotate(x, cos, sin)
        _rotate_(part(x), cos, sin)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if not ctx.inplace:
            grad = _rotate(grad, *ctx.saved_tensors)
        else:
            _rotate_(ctx.part(grad), *ctx.saved_tensors)
        return grad, None, None, None, None


_rotary = library.provides("flash_attn.layers.rotary")


@_rotary
def apply_rotary_emb(
    x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, inplace: bool = False,
    seqlen_offsets: int | Tensor = 0, cu_seqlens: Tensor | None = None, max_seqlen: int | None = None,
) -> Any:  # fmt: skip
    """Rotate the first dimensions of each head."""
    return _Rotary.apply(x, lambda x: x, inplace, cos, sin)  # type: ignore[no-untyped-call]


library.modules["flash_attn.layers.rotary"]["apply_rotary_emb_func"] = apply_rotary_emb


@_rotary
def apply_rotary_emb_qkv_(
    qkv: Tensor, cos: Tensor, sin: Tensor, cos_k: Tensor | None = None, sin_k: Tensor | None = None,
    interleaved: bool = False, seqlen_offsets: int | Tensor = 0, num_heads_q: int | None = None,
) -> Any:  # fmt: skip
    """Rotate queries and keys in place."""
    return _Rotary.apply(qkv, lambda qkv: qkv[:, :, :2] if qkv.dim() == 5 else qkv, True, cos, sin)  # type: ignore[no-untyped-call]


@_rotary
def apply_rotary_emb_kv_(
    kv: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, seqlen_offsets: int | Tensor = 0
) -> Any:
    """Rotate keys in place."""
    return _Rotary.apply(kv, lambda kv: kv[:, :, 0], True, cos, sin)  # type: ignore[no-untyped-call]


@library.provides("flash_attn.ops.triton.rotary")
def apply_rotary(
    x: Tensor, cos: Tensor, sin: Tensor, seqlen_offsets: int | Tensor = 0, cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None, interleaved: bool = False, inplace: bool = False, conjugate: bool = False,
) -> Any:  # fmt: skip
    """Launch the kernel alone, which has no gradient."""
    if not inplace:
        return _rotate(x, cos, sin)
    _rotate_(x, cos, sin)
    return x


# --- cross entropy: flash_attn/ops/triton/cross_entropy.py


@library.kernel("losses(Tensor logits, Tensor labels) -> (Tensor, Tensor, Tensor)")
def _losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    return tuple(contiguous(logits.shape[:1], torch.float32) for _ in range(3))


@library.kernel("grad(Tensor logits, Tensor lse, Tensor labels, Tensor grad_losses) -> Tensor")
def _grad(logits: Tensor, lse: Tensor, labels: Tensor, grad_losses: Tensor) -> Tensor:
    return torch.empty_like(logits)


@library.kernel("grad_(Tensor(a!) logits, Tensor lse, Tensor labels, Tensor grad_losses) -> ()")
def _grad_(logits: Tensor, lse: Tensor, labels: Tensor, grad_losses: Tensor) -> None:
    pass


class _CrossEntropy(torch.autograd.Function):
    """Saves the logits, which the gradient may overwrite, and float32 losses of rows."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, inplace_backward: bool) -> Any:
        logits = logits if logits.stride(-1) == 1 else logits.contiguous()
        losses, lse, z_losses = _losses(logits, labels)
        ctx.save_for_backward(logits, lse, labels)
        ctx.mark_non_differentiable(z_losses)
        ctx.inplace = inplace_backward
        return losses, z_losses

    @staticmethod
    def backward(ctx: Any, grad_losses: Tensor, _z: Any) -> Any:
        logits, lse, labels = ctx.saved_tensors
        if not ctx.inplace:
            return _grad(logits, lse, labels, grad_losses), None, None
        _grad_(logits, lse, labels, grad_losses)
        return logits, None, None


@library.provides("flash_attn.ops.triton.cross_entropy")
def cross_entropy_loss(
    logits: Tensor, labels: Tensor, precomputed_lse: Tensor | None = None, label_smoothing: float = 0.0,
    logit_scale: float = 1.0, lse_square_scale: float = 0.0, ignore_index: int = -100, inplace_backward: bool = False,
    process_group: Any = None,
) -> Any:  # fmt: skip
    """Losses of rows, and of their logsumexps."""
    return _CrossEntropy.apply(logits, labels, inplace_backward)  # type: ignore[no-untyped-call]


@library.provides("flash_attn.losses.cross_entropy")
class CrossEntropyLoss(torch.nn.Module):
    """Cross entropy of [rows, classes]."""

    def __init__(
        self, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0,
        logit_scale: float = 1.0, lse_square_scale: float = 0.0, inplace_backward: bool = False,
        process_group: Any = None, return_z_loss: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.ignore_index, self.reduction = ignore_index, reduction
        self.inplace_backward, self.return_z_loss = inplace_backward, return_z_loss

    def forward(self, input: Tensor, target: Tensor, precomputed_lse: Tensor | None = None) -> Any:  # noqa: A002
        """The loss, and that of logsumexps where it is asked for."""
        losses = cross_entropy_loss(input, target, inplace_backward=self.inplace_backward)
        if self.reduction == "mean":
            losses = tuple(each.sum() / (target != self.ignore_index).sum() for each in losses)
        elif self.reduction == "sum":
            losses = tuple(each.sum() for each in losses)
        return losses if self.return_z_loss else losses[0]
