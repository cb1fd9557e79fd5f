"""Masks of attention as transformers 4 made them for its models, in the module that version 5 no longer has.

Source: transformers/modeling_attn_mask_utils.py of transformers 4.46. Where that looks for a mask of ones alone, to do
without it, the mask is kept: nobody knows its values.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensor = torch.Tensor


class AttentionMaskConverter:
    """Masks of [batch, 1, queries, keys] from those of [batch, keys]."""

    def __init__(self, is_causal: bool, sliding_window: int | None = None) -> None:
        self.is_causal, self.sliding_window = is_causal, sliding_window

    def to_causal_4d(
        self,
        batch_size: int,
        query_length: int,
        key_value_length: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> Tensor | None:
        """Return a mask that hides what comes later; None for a single query without a window."""
        if query_length == 1 and self.sliding_window is None:
            return None
        past = key_value_length - query_length
        return self._make_causal_mask((batch_size, query_length), dtype, device, past, self.sliding_window)

    def to_4d(
        self,
        attention_mask_2d: Tensor,
        query_length: int,
        dtype: torch.dtype,
        key_value_length: int | None = None,
    ) -> Tensor:
        """Return the mask of each query, which hides what comes later, too, where it is causal."""
        expanded = self._expand_mask(attention_mask_2d, dtype, query_length)
        if not self.is_causal or (query_length == 1 and self.sliding_window is None):
            return expanded
        past = (attention_mask_2d.shape[-1] if key_value_length is None else key_value_length) - query_length
        shape = attention_mask_2d.shape[0], query_length
        causal = self._make_causal_mask(shape, dtype, attention_mask_2d.device, past, self.sliding_window)
        return causal.masked_fill(expanded.bool(), torch.finfo(dtype).min)

    @staticmethod
    def _make_causal_mask(
        input_ids_shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device | str,
        past_key_values_length: int = 0,
        sliding_window: int | None = None,
    ) -> Tensor:
        batch, queries = input_ids_shape
        lowest, keys = torch.finfo(dtype).min, queries + past_key_values_length
        ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
        hidden = ones.triu(past_key_values_length + 1)
        if sliding_window is not None:
            hidden = hidden | ones.tril(past_key_values_length - sliding_window)
        mask = torch.zeros(queries, keys, dtype=dtype, device=device).masked_fill_(hidden, lowest)
        return mask[None, None].expand(batch, 1, queries, keys)

    @staticmethod
    def _expand_mask(mask: Tensor, dtype: torch.dtype, tgt_len: int | None = None) -> Tensor:
        batch, keys = mask.shape
        return _inverted(mask[:, None, None].expand(batch, 1, tgt_len or keys, keys), dtype)

    @staticmethod
    def _unmask_unattended(expanded_mask: Tensor, min_dtype: float) -> Tensor:
        return expanded_mask.mul(~torch.all(expanded_mask == min_dtype, dim=-1, keepdim=True))


def _inverted(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to scores: nothing where a mask is 1, and the lowest number elsewhere."""
    inverted = 1.0 - mask.to(dtype)
    return inverted.masked_fill(inverted.to(torch.bool), torch.finfo(dtype).min)


def _prepare_4d_causal_attention_mask(
    attention_mask: Tensor | None,
    input_shape: Sequence[int],
    inputs_embeds: Tensor,
    past_key_values_length: int,
    sliding_window: int | None = None,
) -> Tensor | None:
    converter = AttentionMaskConverter(True, sliding_window)
    keys = input_shape[-1] + past_key_values_length
    if attention_mask is None:
        return converter.to_causal_4d(input_shape[0], input_shape[-1], keys, inputs_embeds.dtype, inputs_embeds.device)
    if attention_mask.dim() == 4:
        return _inverted(attention_mask, inputs_embeds.dtype)
    return converter.to_4d(attention_mask, input_shape[-1], inputs_embeds.dtype, keys)


def _prepare_4d_causal_attention_mask_for_sdpa(
    attention_mask: Tensor | None,
    input_shape: Sequence[int],
    inputs_embeds: Tensor,
    past_key_values_length: int,
    sliding_window: int | None = None,
) -> Tensor | None:
    is_plain = (
        attention_mask is None and sliding_window is None and (input_shape[-1] == 1 or not past_key_values_length)
    )
    if is_plain:  # its kernels know what comes later by themselves
        return None
    return _prepare_4d_causal_attention_mask(
        attention_mask, input_shape, inputs_embeds, past_key_values_length, sliding_window
    )


def _prepare_4d_attention_mask(mask: Tensor, dtype: torch.dtype, tgt_len: int | None = None) -> Tensor:
    return AttentionMaskConverter._expand_mask(mask, dtype, tgt_len)


_prepare_4d_attention_mask_for_sdpa = _prepare_4d_attention_mask


def _create_4d_causal_attention_mask(
    input_shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    past_key_values_length: int = 0,
    sliding_window: int | None = None,
) -> Tensor | None:
    keys = input_shape[-1] + past_key_values_length
    converter = AttentionMaskConverter(True, sliding_window)
    return converter.to_causal_4d(input_shape[0], input_shape[-1], keys, dtype, device)
