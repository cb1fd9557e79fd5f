"""Transformer Engine 2.9: attention by cuDNN, or by PyTorch's own ops: pytorch/attention/dot_product_attention.

cuDNN (`FusedAttention`) serves float16 and bfloat16 with every mask but one of values, `arbitrary`
(get_attention_backend, utils.py:269; nvte_get_fused_attn_backend, common/fused_attn/fused_attn.cpp). Nothing tells its
workspace, which is taken as FlashAttention's.
"""

from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlint.cuda.simulated import simulated
from memlint.libraries.library import assume_once
from memlint_libraries.transformer_engine.layer import Layer
from memlint_libraries.transformer_engine.recipes import library
from memlint_libraries.transformer_engine.unfused_attention import attend

Tensor = torch.Tensor
_provides = library.provides("transformer_engine.pytorch")


_MASKS = {
    "no_mask", "causal", "padding", "padding_causal", "causal_bottom_right", "padding_causal_bottom_right", "arbitrary",
}  # fmt: skip
_OTHER_NAMES = {
    "causal_padding": "padding_causal",
    "padding,causal": "padding_causal",
    "causal,padding": "padding_causal",
}


@_provides
class DotProductAttention(Layer):
    """Attention by cuDNN where that serves the mask, the window and the dtype."""

    def __init__(
        self, num_attention_heads: int, kv_channels: int, num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0, qkv_format: str = "sbhd", attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, None, "cuda")
        if qkv_format not in _HEADS_FIRST:
            self._refuse(f"qkv_format={qkv_format!r}")
        self.qkv_format, self.attn_mask_type, self.attention_dropout = qkv_format, attn_mask_type, attention_dropout
        self.window_size = window_size

    def forward(
        self, query_layer: Tensor, key_layer: Tensor, value_layer: Tensor, attention_mask: Any = None,
        attn_mask_type: str | None = None, window_size: tuple[int, int] | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Attention of [sequence, batch, heads, size] or [batch, sequence, heads, size], heads made one dimension.

        `attention_mask` is True where a position is left out: [batch, 1, 1, sequence] for `padding`, a pair of these
        for attention to others, anything that broadcasts to [batch, heads, queries, keys] for `arbitrary`.
        """
        mask = attn_mask_type or self.attn_mask_type
        mask = _OTHER_NAMES.get(mask, mask)
        if mask not in _MASKS:
            self._refuse(f"attn_mask_type={mask!r}")
        for name, value in options.items():
            if value is not None:
                self._refuse(name)
        if "padding" in mask and attention_mask is None:
            raise AssertionError("Please provide attention_mask or cu_seqlens for padding!")
        dropout = self.attention_dropout if self.training else 0.0
        window = window_size or self.window_size or (-1, -1)
        queries_first = 0 if self.qkv_format == "sbhd" else 1
        lengths = query_layer.shape[queries_first], key_layer.shape[queries_first]
        if not self._is_fused(query_layer, mask, lengths, window, dropout):
            operands = query_layer, key_layer, value_layer
            q, k, v = (each.transpose(0, 1) if queries_first else each for each in operands)
            return attend(q, k, v, mask, attention_mask, window, dropout, self.qkv_format)
        assume_once("cuDNN's attention in Transformer Engine is taken to need what FlashAttention needs")
        if "padding" in mask:
            _lengths_of(attention_mask)
        order = _HEADS_FIRST[self.qkv_format]
        q, k, v = (each.permute(order) for each in (query_layer, key_layer, value_layer))
        options = {"is_causal": "causal" in mask, "enable_gqa": q.shape[1] != k.shape[1]}
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, **options)
        back = [order.index(n) for n in range(4)]
        return out.permute(back).flatten(2)

    def _is_fused(
        self, query: Tensor, mask: str, lengths: tuple[int, int], window: tuple[int, int], dropout: float
    ) -> bool:
        """Return True if cuDNN 9.7 and later has a kernel for it."""
        if query.dtype not in {torch.float16, torch.bfloat16} or mask == "arbitrary":
            return False
        if "bottom_right" in mask and (lengths[0] > lengths[1] or (dropout and "padding" in mask)):
            return False
        has_window = window[0] != -1 or window[1] not in {-1, 0}
        if has_window and (window[1] != 0 or dropout or lengths[0] > lengths[1]):
            return False
        capability, size = simulated().device.capability, query.shape[-1]
        widest = 256 if capability[0] == 9 or not torch.is_grad_enabled() else 128
        return capability >= (8, 0) and size % 8 == 0 and size <= widest


@torch.no_grad()
def _lengths_of(mask: Any) -> None:
    """Compute the positions at which sequences begin, in int32, from a padding mask: `get_cu_seqlens`."""
    for each in mask if isinstance(mask, (tuple, list)) else (mask,):
        ends = each.squeeze(1).squeeze(1).logical_not().sum(dim=1).cumsum(dim=0).to(torch.int32)
        torch.cat((torch.zeros(1, dtype=torch.int32, device=ends.device), ends))


_HEADS_FIRST = {"sbhd": (1, 2, 0, 3), "bshd": (0, 2, 1, 3)}
"""The permutation of each format to the one that PyTorch takes."""
