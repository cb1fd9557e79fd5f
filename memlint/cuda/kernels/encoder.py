"""The fast path of `nn.TransformerEncoderLayer` and `nn.MultiheadAttention` in inference.

PyTorch calls one op for a whole layer. The kernels inside are those of
aten/src/ATen/native/transformers/transformer.cpp and cuda/attention.cu.
"""

from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import contiguous
from memlint.accelerator.registration import composite, kernel
from memlint.cuda.kernels.attention_choice import EFFICIENT, FLASH, choose

aten = torch.ops.aten
Tensor = torch.Tensor
linear = torch.nn.functional.linear


@composite("_transformer_encoder_layer_fwd")
def _layer(x: Tensor, embed_dim: int, num_heads: int, *rest: Any) -> Tensor:
    projections, (use_gelu, norm_first, eps) = rest[:4], rest[4:7]
    norms, (weight_1, bias_1, weight_2, bias_2) = (rest[7:9], rest[9:11]), rest[11:15]
    mask, mask_type = (*rest[15:], None, None)[:2]

    def normalised(x: Tensor, number: int) -> Tensor:
        weight, bias = norms[number]
        return torch.layer_norm(x, [embed_dim], weight, bias, eps)

    source = x
    x = normalised(x, 0) if norm_first else x
    arguments = (*projections, mask, False, True, mask_type)
    x = _attention(x, x, x, embed_dim, num_heads, *arguments)[0]
    x.add_(source)
    x = x if norm_first else normalised(x, 0)
    before = x
    x = normalised(x, 1) if norm_first else x
    rows = x.reshape(-1, embed_dim)
    hidden = aten._addmm_activation(bias_1, rows, weight_1.t(), use_gelu=use_gelu)
    x = torch.addmm(bias_2, hidden, weight_2.t()).view(x.shape)
    del hidden, rows
    x.add_(before)
    return x if norm_first else normalised(x, 1)


@composite("_native_multi_head_attention")
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    batch, steps = query.shape[:2]
    head = embed_dim // num_heads
    if mask is None and query is key and key is value and head % 8 == 0 and not need_weights:
        split = query.view(batch, -1, num_heads, head).transpose(1, 2)
        if choose(split, split, split, None, 0.0, causal=False, grouped=False) in (FLASH, EFFICIENT):
            packed = linear(query, qkv_weight, qkv_bias)
            q, k, v = (p.view(batch, -1, num_heads, head).transpose(1, 2) for p in packed.chunk(3, -1))
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
            del q, k, v, packed
            return linear(mixed.reshape(batch, -1, embed_dim), proj_weight, proj_bias), None
    if key is value and query is key:
        q, k, v = aten._transform_bias_rescale_qkv(linear(query, qkv_weight), qkv_bias, num_heads)
    else:
        shared = key is value  # then they are projected together
        weights = qkv_weight.split([embed_dim, 2 * embed_dim]) if shared else qkv_weight.chunk(3)
        projected = torch.cat([linear(x, w) for x, w in zip((query, key, value), weights, strict=False)], 2)
        del weights
        q, k, v = aten._transform_bias_rescale_qkv(projected, qkv_bias, num_heads)
        del projected
    scores = torch.matmul(q, k.transpose(-1, -2))
    if mask is None:
        torch.softmax(scores, -1, out=scores)
    else:
        scores = aten._masked_softmax(scores, mask.to(torch.bool), 3, mask_type)
    # The result overwrites the queries, which share a storage with keys and values.
    torch.bmm(scores.flatten(0, 1), v.flatten(0, 1), out=q.flatten(0, 1))
    probabilities = scores if need_weights else None
    del scores
    rows = q.permute(0, 2, 1, 3).contiguous().view(batch, steps, embed_dim)
    out = linear(rows, proj_weight, proj_bias)
    del rows  # unlike the projections, which live to the end
    if probabilities is None or not average_attn_weights:
        return out, probabilities
    weights = probabilities.sum(1)
    weights /= num_heads
    return out, weights


@kernel("_transform_bias_rescale_qkv")
def _transform(qkv: Tensor, bias: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    batch, steps, width = qkv.shape
    return tuple(contiguous((3, batch, num_heads, steps, width // 3 // num_heads), qkv.dtype).unbind(0))


@kernel("_nested_tensor_from_mask_left_aligned")
def _left_aligned(x: Tensor, mask: Tensor) -> bool:
    state.assume("the encoder is taken to compute on padded tensors, not on nested ones")
    return False
