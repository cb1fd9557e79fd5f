"""The weights that a rank loads, by hand and against PyTorch's caching allocator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.memory.allocator.reference import Allocator
from memlint.serving.quantization import Experts, method_named, sizes_of
from memlint.serving.weights import Weight, allocated, padded_vocabulary, weights_of
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


@pytest.mark.parametrize(
    ("layers", "num_experts", "experts", "logged"),
    [
        (36, 128, Experts(2880, 1, 256, 128), 65.9651),  # vLLM 0.10 on H100: github.com/vllm-project/vllm/issues/23278
        (36, 128, Experts(2880, 1, 1, 64, 256), 64.38),  # 0.14 on H100, Triton's kernels: issues/33155
        (24, 32, Experts(2880, 1, 256, 128), 13.72),  # 0.19 on A100: myoceane.fr/index.php/ai-vllm-a100-gemma-4
    ],
)
def test_experts_of_gpt_oss_are_padded_as_its_logs_say(layers, num_experts, experts, logged):
    own = [
        Weight("experts.gate_up_proj", (num_experts, 2880, 5760), True, num_experts * 2880 * 5760),
        Weight("experts.down_proj", (num_experts, 2880, 2880), True, num_experts * 2880 * 2880),
    ]
    in_16_bits = 2 * 201088 * 2880 + layers * (2880 * 5120 + 4096 * 2880 + num_experts * (2880 + 5760 + 2880))
    nbytes = 2 * in_16_bits + layers * sum(sum(sizes_of(each, 2, method_named("mxfp4"), experts)) for each in own)
    assert nbytes / 2**30 == pytest.approx(logged, rel=0.005)


def test_ranks_pad_their_own_part_of_the_experts():
    up = Weight("experts.gate_up_proj", (8, 2880, 5760), True, 8 * 2880 * 5760 // 4)
    assert Experts(2880, 4, 256, 128).stored(up) == (8 * 3072 * 2 * 768, 8 * 3072 * 2 * 768)
    assert Experts(2880, 4, 256, 128).stored(up._replace(shape=(2880, 5760))) is None
