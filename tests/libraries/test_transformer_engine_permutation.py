"""Transformer Engine orders tokens by experts in the bytes that its sources say: worked out here by hand."""

from __future__ import annotations

import pytest
import torch

from memlint.cuda.hidden import cub
from tests.libraries.events import on_gpu, simulated
from tests.libraries.transformer_engine import te

TOKENS, WIDTH, EXPERTS, CHOSEN = 2048, 256, 8, 2
ROWS = TOKENS * CHOSEN
UNIT = 2 * TOKENS * WIDTH
IDS = 4 * TOKENS * (2 * EXPERTS + 1)


def numbers(*shape, dtype=torch.int32):
    return torch.zeros(shape, dtype=dtype, device="cuda")


def test_a_mask_moves_rows_and_their_probabilities():
    with simulated() as seen:
        x, mask = on_gpu(TOKENS, WIDTH), numbers(TOKENS, EXPERTS)
        probs = on_gpu(TOKENS, EXPERTS, dtype=torch.float32)
        te.moe_permute(x, mask, ROWS)  # Triton chooses among configurations once for a width
        seen.begin()
        rows, moved, ids = te.moe_permute_with_probs(x, probs, mask, ROWS)
        assert (rows.shape, moved.shape, ids.shape) == ((ROWS, WIDTH), (ROWS,), (TOKENS, 2 * EXPERTS + 1))
        assert seen.held == CHOSEN * UNIT + 4 * ROWS + IDS
        te.moe_unpermute(rows, ids, restore_shape=x.shape)
        seen.begin()
        torch.autograd.backward((rows, moved), (torch.empty_like(rows), torch.empty_like(moved)))
        assert seen.held == UNIT + 4 * TOKENS * EXPERTS
        assert (x.grad.shape, probs.grad.shape) == (x.shape, probs.shape)


@pytest.mark.parametrize("merges", [False, True])
def test_rows_come_back_and_are_saved_where_probabilities_merge_them(merges):
    with simulated() as seen:
        rows, ids = on_gpu(ROWS, WIDTH), numbers(TOKENS, 2 * EXPERTS + 1)
        probs = on_gpu(TOKENS, EXPERTS, dtype=torch.float32) if merges else None
        te.moe_unpermute(rows, ids, merging_probs=probs, restore_shape=(TOKENS, WIDTH)).sum().backward()
        rows.grad = None
        seen.begin()
        out = te.moe_unpermute(rows, ids, merging_probs=probs, restore_shape=(TOKENS, WIDTH))
        assert seen.held == UNIT
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        assert seen.peak == CHOSEN * UNIT + merges * 4 * TOKENS * EXPERTS
        assert rows.grad.shape == rows.shape
        assert (probs is None) or probs.grad.shape == probs.shape


def test_of_no_rows_probabilities_are_their_own_gradient():
    with simulated():
        rows, ids = on_gpu(0, WIDTH), numbers(0, 2 * EXPERTS + 1)
        probs = on_gpu(TOKENS, EXPERTS, dtype=torch.float32)
        te.moe_unpermute(rows, ids, merging_probs=probs, restore_shape=(0, WIDTH)).sum().backward()
        assert (rows.grad.shape, probs.grad.shape) == (rows.shape, probs.shape)


def test_indices_are_sorted_in_a_workspace_that_is_kept():
    with simulated() as seen:
        x, index = on_gpu(TOKENS, WIDTH), numbers(TOKENS, CHOSEN)
        probs = on_gpu(TOKENS, CHOSEN, dtype=torch.float32)
        kept = 3 * 4 * ROWS + cub.radix_sort(ROWS, 4, 4)
        seen.begin()
        rows, ids = te.moe_permute(x, index, map_type="index")
        assert (rows.shape, ids.shape) == ((ROWS, WIDTH), (ROWS,))
        assert seen.held == kept + CHOSEN * UNIT + 4 * ROWS
        seen.begin()
        te.moe_permute(x, index, map_type="index")
        assert (seen.held, seen.peak) == (0, CHOSEN * UNIT + 4 * ROWS)
        out = te.moe_unpermute(rows, ids, probs, map_type="index")
        assert out.shape == x.shape
        out.sum().backward()
        assert (x.grad.shape, probs.grad.shape) == (x.shape, probs.shape)
        seen.begin()
        te.moe_permute(x, index, max_token_num=2 * TOKENS, map_type="index")
        assert seen.held == 2 * 3 * 4 * ROWS + cub.radix_sort(2 * ROWS, 4, 4) - kept  # the smaller one goes first
        with pytest.raises(ValueError, match="map_type"):
            te.moe_permute(x, index, map_type="other")


def test_chunks_change_their_order():
    with simulated() as seen:
        x, probs = on_gpu(TOKENS, WIDTH), on_gpu(TOKENS, dtype=torch.float32)
        sizes, order = numbers(4), numbers(4)
        te.moe_sort_chunks_by_index(x, sizes, order)
        seen.begin()
        out, moved = te.moe_sort_chunks_by_index_with_probs(x, probs, sizes, order)
        assert seen.held == UNIT + 2 * 4 * TOKENS
        torch.autograd.backward((out, moved), (torch.empty_like(out), torch.empty_like(moved)))
        assert (x.grad.shape, probs.grad.shape) == (x.shape, probs.shape)
