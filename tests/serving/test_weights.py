"""The weights that a rank loads, by hand and against PyTorch's caching allocator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.memory.allocator.reference import Allocator
from memlint.serving.quantization import method_named, sizes_of
from memlint.serving.weights import allocated, padded_vocabulary, weights_of
from tests.serving.test_vllm import LLAMA_8B


def test_queries_keys_and_values_are_one_allocation_and_so_are_gate_and_up():
    own = weights_of(LLAMA_8B, 1)
    assert len(own) == 2 + 32 * 4
    assert [each.numel for each in own[1:5]] == [6144 * 4096, 4096 * 4096, 2 * 14336 * 4096, 14336 * 4096]


@pytest.mark.parametrize(("ranks", "heads"), [(2, 4), (8, 1), (16, 1)])
def test_each_rank_has_a_head_of_keys_at_least(ranks, heads):
    qkv = weights_of(LLAMA_8B, ranks)[1]
    assert qkv.numel == (4096 // ranks + 2 * heads * 128) * 4096


def test_vocabularies_are_padded_to_64_before_they_are_cut():
    assert padded_vocabulary(50257) == 50304
    odd = LLAMA_8B.parameters[0].model_copy(update={"shape": (50257, 4096)})
    model = LLAMA_8B.model_copy(update={"parameters": (odd,)})
    assert weights_of(model, 4)[0].numel == 50304 // 4 * 4096


def test_a_block_whose_tail_is_below_a_mebibyte_counts_as_a_whole():
    # 31.5 MiB come out of a segment of 32: Qwen2.5-7B logs 14.25 GiB, and its tensors are 14.19.
    assert allocated([63 * 2**19]) == 32 * 2**20
    assert allocated([65 * 2**19]) == 65 * 2**19


@given(st.lists(st.integers(1, 2**28), min_size=1, max_size=60))
def test_what_is_allocated_is_what_the_caching_allocator_says(sizes):
    allocator = Allocator()
    for size in sizes:
        allocator.malloc(size)
    assert allocated(sizes) == allocator.allocated


@pytest.mark.parametrize(
    ("method", "nbytes"),
    [
        ("fp8", 4096 * 4096 + 4 * 4096),
        ("w4a16", 4096 * 4096 // 2 + 2 * 4096 * 32),
        ("awq", 4096 * 4096 // 2 + 2 * 4096 * 32 + 4096 * 32 // 2),
        ("mxfp4", 2 * 4096 * 4096),
    ],
)
def test_a_matrix_of_bits_has_scales_beside_it(method, nbytes):
    output = weights_of(LLAMA_8B, 1)[2]
    assert sum(sizes_of(output, 2, method_named(method))) == nbytes


def test_the_head_and_the_embeddings_are_not_quantized():
    own = weights_of(LLAMA_8B, 1)
    assert [sizes_of(each, 2, method_named("fp8")) for each in (own[0], own[-1])] == [[2 * 128256 * 4096]] * 2
