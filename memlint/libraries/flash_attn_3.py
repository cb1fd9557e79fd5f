"""FlashAttention 3, of version 3.0.0: attention on Hopper.

It saves its operands, its output, and a float32 logsumexp for each row and head: hopper/flash_attn_interface.py. What
its kernels take is in hopper/flash_api.cpp.
"""

from collections.abc import Sequence
from typing import Any

import torch

from memlint.cuda.kernels.attention import round_up
from memlint.cuda.simulated import simulated
from memlint.libraries.library import Library, assume_once, contiguous, launch, like, temporary

Tensor = torch.Tensor
library = Library("flash_attn_interface", distribution="flash_attn_3", version="3.0.0", extensions=("flash_attn_3._C",))
_provides = library.provides("flash_attn_interface")


def _rounded_head(head: int) -> int:
    """`round_up_headdim`, flash_api.cpp:492."""
    return next(n for n in (64, 96, 128, 192, 256) if head <= n)


def _blocks(head: int, causal: bool, window: bool, softcap: bool) -> tuple[int, int]:
    """Rows and columns of a tile of the backward, flash_api.cpp:1374."""
    capability = simulated().device.capability
    if capability >= (9, 0):
        tall = (96 if causal and softcap else 128) if head <= 64 else 80
        narrow = head <= 64 or (96 < head <= 128 and not (causal or window or softcap))
        return tall if narrow else 64, 128 if head <= 128 else 96 if head <= 192 else 80
    if capability in ((8, 6), (8, 9)):
        return 64 if head <= 192 else 32, 128 if head <= 96 else 96 if head <= 128 else 64
    return 128 if head <= 64 else 64, 128 if head <= 128 else 80 if head <= 192 else 64


@library.kernel(
    "forward(Tensor q, Tensor k, Tensor v, Tensor? cu_seqlens_q, int max_q, bool needs_counter, int splits)"
    " -> (Tensor, Tensor)"
)
def _forward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor | None, max_q: int, needs_counter: bool, splits: int
) -> tuple[Tensor, Tensor]:
    """`mha_fwd`, flash_api.cpp:658."""
    copies = [like(t) for t in (q, k, v) if t.stride(-1) != 1]
    out = contiguous((*q.shape[:-1], v.shape[-1]), torch.bfloat16 if q.element_size() == 1 else q.dtype)
    heads = q.shape[-2]
    lse = contiguous((q.shape[0], heads, max_q) if cu_seqlens is None else (heads, q.shape[0]), torch.float32)
    batch = q.shape[0] if cu_seqlens is None else round_up(cu_seqlens.shape[0] - 1, 4)
    counters = temporary(4 if cu_seqlens is None else 4 * (4 * batch + 1)) if needs_counter else None
    sums = [temporary(4 * splits * n) for n in (out.numel(), lse.numel())] if splits > 1 else None
    del sums, counters, copies
    return out, lse


@library.kernel(
    "backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor(a!) dq, Tensor(b!) dk,"
    " Tensor(c!) dv, Tensor? cu_seqlens_q, int max_q, int max_k, bool causal, bool window, bool softcap,"
    " bool deterministic) -> ()"
)
def _backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dq: Tensor, dk: Tensor, dv: Tensor,
    cu_seqlens: Tensor | None, max_q: int, max_k: int, causal: bool, window: bool, softcap: bool, deterministic: bool,
) -> None:  # fmt: skip
    """`mha_bwd`, flash_api.cpp:1270: row sums, logsumexps, float32 dq, and float32 dk and dv of grouped heads."""
    copies = [like(t) for t in (dout, q, k, v, out) if t.stride(-1) != 1]
    head = _rounded_head(max(q.shape[-1], v.shape[-1]))
    rows, columns = _blocks(head, causal, window, softcap)
    heads, heads_k = q.shape[-2], k.shape[-2]
    if cu_seqlens is None:
        b = q.shape[0]
        total_q, total_k = b * round_up(max_q, rows), b * round_up(max_k, columns)
    else:
        b = cu_seqlens.shape[0] - 1
        total_q, total_k = round_up(q.shape[0] + b * rows, rows), round_up(k.shape[0] + b * columns, columns)
    taken = [temporary(4 * heads * total_q) for _ in range(2)]
    taken.append(temporary(4 * heads * total_q * head))
    if heads_k != heads:
        taken += [temporary(4 * heads_k * total_k * head) for _ in range(2)]
    taken.append(temporary(4 * -(-max_q // rows) * b * heads))
    if heads_k != heads and deterministic:
        taken += [temporary(4 * -(-max_k // columns) * b * heads_k) for _ in range(2)]
    del taken, copies


class _Attention(torch.autograd.Function):
    """Attention of three tensors, or of one that holds them."""

    @staticmethod
    def forward(ctx: Any, options: dict[str, Any], *packed: Tensor) -> Any:
        operands = _unpacked(packed, options["num_heads_q"])
        lengths = options["lengths"]
        max_q, max_k = options["max_lengths"] or (operands[0].shape[1], operands[1].shape[1])
        window = tuple(options["window_size"]) != (-1, -1)
        needs_counter = lengths is not None or options["causal"] or window
        first = lengths[0] if lengths else None
        out, lse = _forward(*operands, first, int(max_q), needs_counter, options["num_splits"])
        ctx.save_for_backward(*operands, out, lse, *(lengths or ()))
        ctx.num_heads_q, ctx.is_packed = options["num_heads_q"], len(packed) == 1
        tiles = options["causal"], window, options["softcap"] > 0, options["deterministic"]
        ctx.call = int(max_q), int(max_k), *tiles
        return (out, lse) if options["return_attn_probs"] else out

    @staticmethod
    def backward(ctx: Any, dout: Tensor, *_: Any) -> Any:
        q, k, v, out, lse, *lengths = ctx.saved_tensors
        if ctx.is_packed:
            heads = q.shape[-2] + 2 * k.shape[-2]
            shape = (3, q.shape[-2]) if ctx.num_heads_q is None else (heads,)
            grads = [torch.empty((*q.shape[:-2], *shape, q.shape[-1]), dtype=q.dtype, device=q.device)]
        else:
            grads = [torch.empty_like(t) for t in (q, k, v)]
        parts = _unpacked(tuple(grads), ctx.num_heads_q)
        _backward(dout, q, k, v, out, lse, *parts, lengths[0] if lengths else None, *ctx.call)
        return None, *grads


def _unpacked(packed: tuple[Tensor, ...], num_heads_q: int | None) -> Sequence[Tensor]:
    if len(packed) == 3:
        return packed
    qkv = packed[0].detach()
    if num_heads_q is None:
        return qkv.unbind(-3)
    num_heads_k = (qkv.shape[2] - num_heads_q) // 2
    return torch.split(qkv, [num_heads_q, num_heads_k, num_heads_k], dim=-2)


def _attend(
    *packed: Tensor,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    deterministic: bool,
    return_attn_probs: bool,
    num_splits: int = 1,
    lengths: tuple[Tensor, Tensor] | None = None,
    max_lengths: tuple[int, int] | None = None,
    num_heads_q: int | None = None,
) -> Any:
    options = {
        "lengths": lengths, "max_lengths": max_lengths, "causal": causal, "window_size": window_size,
        "softcap": softcap, "deterministic": deterministic, "num_splits": num_splits, "num_heads_q": num_heads_q,
        "return_attn_probs": return_attn_probs,
    }  # fmt: skip
    return _Attention.apply(options, *packed)  # type: ignore[no-untyped-call]


@_provides
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False, qv: Tensor | None = None,
    q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1,
    pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of [batch, length, heads, head size]; keys and values may have fewer heads."""
    return _attend(q, k, v, causal=causal, window_size=window_size, softcap=softcap, deterministic=deterministic,
                   return_attn_probs=return_attn_probs, num_splits=num_splits)  # fmt: skip


@_provides
def flash_attn_qkvpacked_func(
    qkv: Tensor, softmax_scale: float | None = None, causal: bool = False, q_descale: Tensor | None = None,
    k_descale: Tensor | None = None, v_descale: Tensor | None = None, window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, deterministic: bool = False, num_heads_q: int | None = None,
    sm_margin: int = 0, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of [batch, length, 3, heads, head size], or of all heads one behind the other."""
    return _attend(qkv, causal=causal, window_size=window_size, softcap=softcap, deterministic=deterministic,
                   return_attn_probs=return_attn_probs, num_heads_q=num_heads_q)  # fmt: skip


@_provides
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
    seqused_q: Tensor | None = None, seqused_k: Tensor | None = None, softmax_scale: float | None = None,
    causal: bool = False, qv: Tensor | None = None, q_descale: Tensor | None = None, k_descale: Tensor | None = None,
    v_descale: Tensor | None = None, window_size: tuple[int, int] = (-1, -1), attention_chunk: int = 0,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    sm_margin: int = 0, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of sequences one behind the other, [total, heads, head size]."""
    return _attend(q, k, v, causal=causal, window_size=window_size, softcap=softcap, deterministic=deterministic,
                   return_attn_probs=return_attn_probs, num_splits=num_splits, lengths=(cu_seqlens_q, cu_seqlens_k),
                   max_lengths=(max_seqlen_q, max_seqlen_k))  # fmt: skip


@_provides
def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
    qv: Tensor | None = None, rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None, cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None, page_table: Tensor | None = None, cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None, max_seqlen_q: int | None = None, rotary_seqlens: Tensor | None = None,
    q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True, scheduler_metadata: Any = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0, return_softmax_lse: bool = False,
) -> Any:  # fmt: skip
    """Attention to a cache, to which new keys and values are written in place; it has no backward."""
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((k_cache.shape[0],), cache_seqlens, dtype=torch.int32, device=k_cache.device)
    if not num_splits:
        assume_once("FlashAttention 3 is taken to split no keys of a cache where it is left to choose")
    launch((k, v, cache_seqlens, page_table), (k_cache, v_cache) if k is not None else ())
    with torch.no_grad():
        out, lse = _forward(q, k_cache, v_cache, cu_seqlens_q, max_seqlen_q or q.shape[1], True, num_splits or 1)
    return (out, lse) if return_softmax_lse else out
