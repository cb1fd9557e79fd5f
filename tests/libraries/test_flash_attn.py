"""FlashAttention 2 and 3 take the bytes that flash_api.cpp of each says: worked out here by hand."""

from __future__ import annotations

import pytest
import torch

from memlint.libraries import flash_attn, flash_attn_3, flash_attn_norms
from memlint.libraries.library import UnknownFunctionError
from tests.libraries.events import on_gpu, simulated

B, S, H, D = 2, 512, 64, 64  # enough heads that keys are not split
OPERAND = B * S * H * D * 2
ROWS = 4 * B * H * S
SEED = 16


def test_attention_saves_its_output_and_a_logsumexp_of_each_row():
    with simulated() as seen:
        q, k, v = (on_gpu(B, S, H, D) for _ in range(3))
        seen.begin()
        out = flash_attn.flash_attn_func(q, k, v, causal=True)
        assert seen.held == seen.peak == OPERAND + ROWS + SEED
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        assert seen.peak == 3 * OPERAND + ROWS + 4 * B * S * H * D
        assert seen.held == 3 * OPERAND - ROWS - SEED
    assert seen.assumptions == ["kernels of flash-attn are not run: they take what the sources of version 2.8.3 say"]


def test_grouped_heads_take_gradients_of_every_head_for_a_while():
    with simulated() as seen:
        q, k, v = on_gpu(B, S, H, D), on_gpu(B, S, H // 8, D), on_gpu(B, S, H // 8, D)
        out = flash_attn.flash_attn_func(q, k, v)
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        assert seen.peak == OPERAND + 2 * OPERAND // 8 + ROWS + 4 * B * S * H * D + 2 * OPERAND


def test_a_deterministic_backward_takes_a_part_for_each_of_the_gpus_rounds():
    with simulated() as seen:
        q, k, v = (on_gpu(1, S, 16, D) for _ in range(3))
        out = flash_attn.flash_attn_func(q, k, v, dropout_p=0.1, deterministic=True)
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        parts = -(-108 // 16)
        assert seen.peak == 3 * S * 16 * D * 2 + 4 * 16 * S + parts * 4 * S * 16 * D


def test_a_head_size_that_is_no_multiple_of_8_is_padded():
    with simulated() as seen:
        q, k, v = (on_gpu(B, S, H, 60) for _ in range(3))
        seen.begin()
        out = flash_attn.flash_attn_func(q, k, v)
        assert out.shape == (B, S, H, 60)
        assert seen.held == 4 * OPERAND + ROWS + SEED
        out.backward(torch.empty_like(out))
        assert q.grad is not None
        assert q.grad.shape == q.shape


@pytest.mark.parametrize("num", [1, 2])
def test_what_is_packed_is_not_unpacked(num):
    with simulated() as seen:
        if num == 1:
            packed = [on_gpu(B, S, 3, H, D)]
            attention = flash_attn.flash_attn_qkvpacked_func
        else:
            packed = [on_gpu(B, S, H, D), on_gpu(B, S, 2, H, D)]
            attention = flash_attn.flash_attn_kvpacked_func
        seen.begin()
        out = attention(*packed)
        assert seen.held == OPERAND + ROWS + SEED
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        assert seen.peak == 3 * OPERAND + ROWS + 4 * B * S * H * D
        assert all(each.grad is not None and each.grad.shape == each.shape for each in packed)


def test_sequences_of_several_lengths():
    with simulated() as seen:
        total = B * S
        q, k, v = (on_gpu(total, H, D) for _ in range(3))
        ends = torch.tensor([0, 300, total], dtype=torch.int32, device="cuda")
        seen.begin()
        out = flash_attn.flash_attn_varlen_func(q, k, v, ends, ends, 724, 724, causal=True)
        assert seen.held == OPERAND + ROWS + SEED
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        padded = total + 128 * 2
        assert seen.peak == 3 * OPERAND + 4 * H * padded + 4 * padded * H * D


def test_keys_are_split_where_there_is_little_to_do():
    with simulated() as seen:
        q, k, v = (on_gpu(1, rows, 8, D, grad=False) for rows in (64, 8192, 8192))
        seen.begin()
        flash_attn.flash_attn_func(q, k, v)
        # 8 rows of blocks and 32 columns for 216 places: 22 parts of 2 blocks are 16, the least within 85 % of the best
        splits = 16
        assert seen.peak == 64 * 8 * D * 2 + 4 * 8 * 64 + SEED + splits * 4 * 8 * 64 * (1 + D)


def test_one_row_at_a_time_reads_a_cache():
    with simulated() as seen:
        q, cache = on_gpu(B, 1, H, D, grad=False), on_gpu(B, 4096, H, D, grad=False)
        seen.begin()
        out, lse = flash_attn.flash_attn_with_kvcache(
            q, cache, cache, cache_seqlens=12, num_splits=4, return_softmax_lse=True
        )
        assert out.shape == (B, 1, H, D)
        assert lse.shape == (B, H, 1)
        assert seen.peak == 2 * B * H * D + 4 * B * H + 4 * 4 * B * H * (1 + D)


def test_other_dtypes_and_gpus_are_refused():
    with simulated(), pytest.raises(RuntimeError, match="fp16 and bf16"):
        flash_attn.flash_attn_func(*(on_gpu(1, 8, 8, 8, dtype=torch.float32) for _ in range(3)))
    with simulated("t4"), pytest.raises(RuntimeError, match="Ampere"):
        flash_attn.flash_attn_func(*(on_gpu(1, 8, 8, 8, dtype=torch.float16) for _ in range(3)))


def test_padding_is_taken_out_and_put_back():
    with simulated():
        x = on_gpu(2, 4, 8)
        mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]], device="cuda")
        rows, indices, ends, longest, _ = flash_attn.unpad_input(x, mask)
        assert rows.shape == (4, 8)
        assert ends.tolist() == [0, 3, 4]
        assert longest == 3
        back = flash_attn.pad_input(rows, indices, 2, 4)
        assert back.shape == x.shape
        back.sum().backward()
        assert x.grad is not None


def test_rotation_in_place_takes_nothing():
    with simulated() as seen:
        table = on_gpu(S, D // 2, grad=False)
        qkv = on_gpu(B, S, 3, H, D) * 1
        seen.begin()
        rotated = flash_attn.apply_rotary_emb_qkv_(qkv, table, table)
        assert seen.peak == 0
        grad = torch.empty_like(rotated)
        seen.begin()
        rotated.backward(grad)
        assert seen.peak <= grad.nbytes  # of the multiplication
        x = on_gpu(B, S, H, D)
        seen.begin()
        flash_attn.apply_rotary_emb(x, table, table)
        assert seen.peak == x.nbytes


@pytest.mark.parametrize("inplace", [True, False])
def test_cross_entropy_may_overwrite_the_logits(inplace):
    with simulated() as seen:
        logits = on_gpu(1024, 32000)
        labels = torch.zeros(1024, dtype=torch.int64, device="cuda")
        loss = flash_attn.CrossEntropyLoss(inplace_backward=inplace)(logits, labels)
        seen.begin()
        loss.backward()
        assert (seen.peak >= logits.nbytes) is not inplace


def test_attention_on_hopper():
    with simulated("h100-80gb") as seen:
        q, k, v = on_gpu(B, S, H, 128), on_gpu(B, S, H // 8, 128), on_gpu(B, S, H // 8, 128)
        operand = B * S * H * 128 * 2
        seen.begin()
        out = flash_attn_3.flash_attn_func(q, k, v, causal=True)
        assert seen.held == operand + ROWS
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        accumulators = 2 * ROWS + 2 * operand + 2 * (4 * B * S * H // 8 * 128)
        assert seen.peak == operand + 2 * operand // 8 + accumulators + 4 * (S // 64) * B * H
        packed = on_gpu(B, S, 3, H, D)
        flash_attn_3.flash_attn_qkvpacked_func(packed).sum().backward()
        assert packed.grad is not None
        assert packed.grad.shape == packed.shape
        ends = torch.tensor([0, 300, B * S], dtype=torch.int32, device="cuda")
        q, k, v = (on_gpu(B * S, H, D) for _ in range(3))
        out = flash_attn_3.flash_attn_varlen_func(q, k, v, ends, ends, 724, 724)
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        rows = B * S + 2 * 128
        assert seen.peak == 3 * OPERAND + 2 * 4 * H * rows + 4 * H * rows * 64 + 4 * -(-724 // 128) * B * H


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_norm_with_a_residual_makes_and_saves_their_sum(dropout):
    rows, width = 512, 1024
    with simulated() as seen:
        norm = flash_attn_norms.RMSNorm(width, dropout_p=dropout, device="cuda", dtype=torch.bfloat16)
        x, residual = on_gpu(rows, width), on_gpu(rows, width, dtype=torch.float32)
        seen.begin()
        out, total = norm(x, residual, prenorm=True)
        seeds = 8 * rows if dropout else 0
        assert seen.held == out.nbytes + total.nbytes + 4 * rows + seeds
        assert (out.dtype, total.dtype) == (torch.bfloat16, torch.float32)
        grads = torch.empty_like(out), torch.empty_like(total)
        seen.begin()
        torch.autograd.backward((out, total), grads)
        sums = 4 * 8 * 108 * width  # an A100 has 108 multiprocessors
        assert seen.peak == x.nbytes + residual.nbytes + sums + (4 + 2) * width  # and their sum in both dtypes
        assert residual.grad.dtype is torch.float32


def test_a_norm_alone_saves_its_input():
    with simulated() as seen:
        weight, bias, x = (on_gpu(*shape) for shape in ((1024,), (1024,), (512, 1024)))
        seen.begin()
        out = flash_attn_norms.layer_norm_fn(x, weight, bias)
        assert seen.held == out.nbytes + 2 * 4 * 512
        with pytest.raises(UnknownFunctionError, match="rowscale"):
            flash_attn_norms.layer_norm_fn(x, weight, bias, rowscale=x)


def test_of_a_cache_version_3_gives_an_output_and_splits_where_it_is_told():
    with simulated("h100-80gb") as seen:
        q, cache = on_gpu(B, 1, H, D, grad=False), [on_gpu(B, 4096, H, D, grad=False) for _ in range(2)]
        new = [on_gpu(B, 1, H, D, grad=False) for _ in range(2)]
        seen.begin()
        out = flash_attn_3.flash_attn_with_kvcache(q, *cache, *new, cache_seqlens=7, causal=True, num_splits=4)
        output, row = 2 * B * H * D, 4 * B * H
        assert seen.held == out.nbytes == output
        assert seen.peak == output + row + 4 + 4 * B + 4 * (2 * output + row)  # a counter, lengths, and float32 parts
        flash_attn_3.flash_attn_with_kvcache(q, *cache)
        assert any("split no keys" in text for text in seen.assumptions)
