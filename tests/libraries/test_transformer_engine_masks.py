"""Which masks of Transformer Engine cuDNN serves, and what the others take: worked out here by hand."""

from __future__ import annotations

import pytest
import torch

from tests.libraries.events import on_gpu, simulated
from tests.libraries.transformer_engine import te

LENGTH, BATCH, HEADS, SIZE = 256, 2, 16, 64
OUT = 2 * LENGTH * BATCH * HEADS * SIZE
SCORES = BATCH * HEADS * LENGTH * LENGTH
BF16 = torch.bfloat16


def operands(dtype=BF16):
    return [on_gpu(LENGTH, BATCH, HEADS, SIZE, dtype=dtype) for _ in range(3)]


def padding():
    return torch.zeros(BATCH, 1, 1, LENGTH, dtype=torch.bool, device="cuda")


@pytest.mark.parametrize("mask", ["padding", "padding_causal", "padding_causal_bottom_right", "causal_bottom_right"])
def test_masks_of_lengths_take_what_none_takes(mask):
    with simulated("h100-80gb") as seen:
        attention = te.DotProductAttention(HEADS, SIZE, attn_mask_type=mask)
        given = padding()
        attention(*operands(), given)
        q, k, v = operands()
        seen.begin()
        out = attention(q, k, v, given)
        assert 0 <= seen.held - (OUT + 4 * BATCH * HEADS * LENGTH) <= 64
        out.sum().backward()
        assert v.grad.shape == v.shape
        if "padding" in mask:
            with pytest.raises(AssertionError, match="attention_mask"):
                attention(q, k, v)


@pytest.mark.parametrize("shape", [(1, 1, LENGTH, LENGTH), (BATCH, HEADS, LENGTH, LENGTH)])
def test_a_mask_of_values_makes_all_scores(shape):
    with simulated("h100-80gb") as seen:
        attention = te.DotProductAttention(HEADS, SIZE, attn_mask_type="arbitrary")
        q, k, v = operands()
        mask = torch.zeros(shape, dtype=torch.bool, device="cuda")
        attention(q, k, v, mask)
        seen.begin()
        out = attention(q, k, v, mask)
        # a softmax of one kernel for a mask of all heads, else PyTorch's, which keeps float32 beside its rounding
        weights = 2 * SCORES if shape[1] == 1 else (4 + 2) * SCORES
        # a mask in full, which what was filled in place keeps
        full = 0 if shape[1] == 1 else mask.numel()
        assert seen.held == OUT + weights + full
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        assert q.grad.shape == q.shape


def test_float32_and_windows_to_both_sides_make_all_scores():
    with simulated("h100-80gb") as seen:
        q, k, v = operands(torch.float32)
        seen.begin()
        te.DotProductAttention(HEADS, SIZE)(q, k, v).sum().backward()
        assert seen.peak > 4 * SCORES
        assert v.grad.shape == v.shape
        q, k, v = operands()
        given = padding()
        kept = {}
        for window in ((64, 0), (64, 64)):
            attention = te.DotProductAttention(HEADS, SIZE, attn_mask_type="padding", window_size=window)
            seen.begin()
            out = attention(q, k, v, (given, given))
            kept[window] = seen.held
            del out
        assert kept[64, 0] < SCORES < kept[64, 64]


def test_layers_take_masks_and_windows():
    with simulated("h100-80gb"):
        layer = te.TransformerLayer(
            256, 512, 4, num_gqa_groups=2, layer_type="decoder", window_size=(16, 0), params_dtype=BF16,
            self_attn_mask_type="padding_causal", enc_dec_attn_mask_type="arbitrary",
        )  # fmt: skip
        x, encoded = on_gpu(64, BATCH, 256), on_gpu(96, BATCH, 256)
        mask = torch.zeros(BATCH, 1, 1, 64, dtype=torch.bool, device="cuda")
        other = torch.zeros(1, 1, 64, 96, dtype=torch.bool, device="cuda")
        y = layer(x, mask, encoder_output=encoded, enc_dec_attn_mask=other)
        y.sum().backward()
        assert encoded.grad.shape == encoded.shape
