"""Transformer Engine 2.9: attention: pytorch/attention/dot_product_attention."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlint.libraries.library import assume_once
from memlint.libraries.transformer_engine.layer import Layer
from memlint.libraries.transformer_engine.recipes import library

Tensor = torch.Tensor
_provides = library.provides("transformer_engine.pytorch")


@_provides
class DotProductAttention(Layer):
    """Attention by cuDNN, whose workspace nothing tells: it is taken as FlashAttention's. A mask is causal or none."""

    def __init__(
        self, num_attention_heads: int, kv_channels: int, num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0, qkv_format: str = "sbhd", attn_mask_type: str = "causal", **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, None, "cuda")
        if qkv_format not in _HEADS_FIRST:
            self._refuse(f"qkv_format={qkv_format!r}")
        self.qkv_format, self.attn_mask_type, self.attention_dropout = qkv_format, attn_mask_type, attention_dropout

    def forward(
        self, query_layer: Tensor, key_layer: Tensor, value_layer: Tensor, attention_mask: Any = None,
        attn_mask_type: str | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Attention of [sequence, batch, heads, size] or [batch, sequence, heads, size], heads made one dimension."""
        mask = attn_mask_type or self.attn_mask_type
        if mask not in {"causal", "no_mask"}:
            self._refuse(f"attn_mask_type={mask!r}")
        for name, value in {"attention_mask": attention_mask, **options}.items():
            if value is not None:
                self._refuse(name)
        assume_once("cuDNN's attention in Transformer Engine is taken to need what FlashAttention needs")
        order = _HEADS_FIRST[self.qkv_format]
        q, k, v = (each.permute(order) for each in (query_layer, key_layer, value_layer))
        dropout = self.attention_dropout if self.training else 0.0
        options = {"is_causal": mask == "causal", "enable_gqa": q.shape[1] != k.shape[1]}
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, **options)
        back = [order.index(n) for n in range(4)]
        return out.permute(back).flatten(2)


_HEADS_FIRST = {"sbhd": (1, 2, 0, 3), "bshd": (0, 2, 1, 3)}
"""From each format to the one that PyTorch takes."""
