"""Blocks of the cache: worked by hand from pages of known models, and properties that hold for any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.base.errors import WorkloadError
from memlint.serving.cache import Lengths, layout_of
from memlint.serving.model import CacheLayer, State

FULL = CacheLayer(attention="full", num_heads=8, head=128, head_of_value=128)
LENGTHS = Lengths(max_model_len=8192, max_num_batched_tokens=8192)


def windowed(window: int) -> CacheLayer:
    return FULL.model_copy(update={"attention": "sliding", "window": window})


def test_a_block_of_equal_layers_has_a_page_of_each():
    layout = layout_of([FULL] * 32, 1, 2, 2, 16)
    assert layout.nbytes_of_block == 32 * 16 * 8 * 2 * 128 * 2
    assert layout.blocks_of_request(LENGTHS) == 512


def test_heads_are_repeated_where_there_are_more_ranks():
    assert layout_of([FULL], 16, 2, 2, 16) == layout_of([FULL], 8, 2, 2, 16)


def test_a_latent_has_no_value_and_is_the_same_on_every_rank():
    latent = CacheLayer(attention="latent", num_heads=1, head=576)
    for ranks in (1, 8):
        assert layout_of([latent] * 61, ranks, 2, 2, 64).nbytes_of_block == 61 * 64 * 576 * 2


def test_gemma_2_has_two_groups_of_21_layers_as_its_log_says():
    # 54.12 GiB were 21,110 blocks: v1/core/kv_cache_utils.py shares blocks among both kinds of layers.
    layers = [windowed(4096).model_copy(update={"head": 256, "head_of_value": 256}), FULL] * 21
    layers = [each.model_copy(update={"head": 256, "head_of_value": 256}) for each in layers]
    layout = layout_of(layers, 1, 2, 2, 16)
    assert [len(group.pages) for group in layout.groups] == [21, 21]
    assert layout.nbytes_of_block == 21 * 131072
    assert int(54.12 * 2**30) // layout.nbytes_of_block == pytest.approx(21_110, rel=2e-4)


def test_fewer_layers_of_one_kind_decide_how_large_groups_are():
    layers = [windowed(1024)] * 52 + [FULL] * 10  # gemma-3-27b
    assert [len(group.pages) for group in layout_of(layers, 1, 2, 2, 16).groups] == [9, 9, 9, 9, 8, 8, 10]


def test_kinds_of_about_equal_numbers_are_padded_from_the_version_that_does_so():
    layers = [windowed(128)] * 13 + [FULL] * 10
    assert [len(group.pages) for group in layout_of(layers, 1, 2, 2, 16, ratio=1.5).groups] == [13, 10]
    assert [len(group.pages) for group in layout_of(layers, 1, 2, 2, 16, ratio=1.25).groups] == [7, 6, 10]


def test_a_window_needs_its_own_tokens_and_those_in_flight_and_one_block_more():
    lengths = Lengths(max_model_len=131072, max_num_batched_tokens=2048)
    assert layout_of([windowed(4096)], 1, 2, 2, 16).blocks_of_request(lengths) == -(-(4095 + 2048) // 16) + 1


def test_blocks_of_attention_grow_until_a_state_fits_and_the_state_is_padded():
    state = CacheLayer(attention="state", states=(State(cut=8192, rest=3), State(cut=32, rest=128 * 128)))
    token = 8 * 256 * 2
    nbytes = (8192 * 3 + 32 * 128 * 128) * 2
    layout = layout_of([state, state, state, FULL], 1, 2, 2, 16)
    assert layout.num_tokens == 16 * -(-nbytes // (16 * token))
    assert len({page.nbytes for group in layout.groups for page in group.pages}) == 1
    assert layout.groups[0].pages[0].nbytes >= nbytes


def test_pages_that_cannot_be_made_equal_are_refused():
    odd = windowed(1024).model_copy(update={"head": 96, "head_of_value": 96})
    with pytest.raises(WorkloadError, match="cannot be made equal"):
        layout_of([odd, FULL], 1, 2, 2, 16)


def test_smaller_pages_hold_more_tokens():
    small = windowed(1024).model_copy(update={"num_heads": 2})
    layout = layout_of([small, FULL], 1, 2, 2, 16)
    assert {group.num_tokens for group in layout.groups} == {16, 64}


@given(
    st.lists(st.sampled_from([FULL, windowed(512), windowed(4096)]), min_size=1, max_size=64),
    st.integers(1, 4096),
    st.integers(1, 65536),
)
def test_the_longest_length_is_the_longest_that_fits(layers, num_blocks, length):
    layout = layout_of(layers, 1, 2, 2, 16)
    longest = layout.longest(num_blocks, Lengths(length, 2048))
    assert 0 <= longest <= length
    if longest:
        assert layout.blocks_of_request(Lengths(longest, 2048)) <= num_blocks
    if longest < length:
        assert layout.blocks_of_request(Lengths(longest + 1, 2048)) > num_blocks


@given(
    st.lists(st.sampled_from([FULL, windowed(512), windowed(4096)]), min_size=1, max_size=64),
    st.sampled_from([1.0, 1.25, 1.5]),
)
def test_every_layer_is_in_one_group_and_a_block_holds_a_page_of_each_layer_of_any_group(layers, ratio):
    layout = layout_of(layers, 1, 2, 2, 16, ratio)
    assert sum(len(group.pages) for group in layout.groups) == len(layers)
    assert all(group.nbytes <= layout.nbytes_of_block for group in layout.groups)
    assert all(len({(page.attention, page.window) for page in group.pages}) == 1 for group in layout.groups)
