"""SGLang's rules, and the one published log that states its share."""

import pytest

from memlint.base.errors import UsageError, WorkloadError
from memlint.memory.devices import device_named
from memlint.serving.engines import ENGINES, engine_named, sglang
from memlint.serving.model import CacheLayer, Profile
from memlint.serving.options import GIB, ServeOptions, version_of
from tests.serving.test_vllm import LLAMA_8B


def planned(model=LLAMA_8B, gpu="h100-80gb", **options):
    options = ServeOptions(engine="sglang", version=(0, 5, 23), **options)
    return sglang.plan(model, options, device_named(gpu), lambda _order: Profile(nbytes=2**30))


@pytest.mark.parametrize(
    ("gpu", "ranks", "chunk", "reserved"),
    [
        # 512 + 1.5 x chunk + 128 for each GPU + 2 x decoded batch + 8 for each captured chunk: memory_hook.py.
        ("rtx4090", 1, 4096, 512 + 1.5 * 4096 + 128 + 2 * 48 + 8 * 50),
        ("h100-80gb", 1, 8192, 512 + 1.5 * 8192 + 128 + 2 * 256 + 8 * 58),
        ("h100-80gb", 4, 8192, 512 + 1.5 * 8192 + 512 + 2 * 512 + 8 * 58),
    ],
)
def test_the_share_leaves_a_reserve_for_activations_and_graphs(gpu, ranks, chunk, reserved):
    total = device_named(gpu).total_nbytes / 2**20
    options = planned(gpu=gpu, tensor_parallel=ranks).options
    assert options.max_num_batched_tokens == chunk
    assert options.utilization == pytest.approx((total - reserved) / total, abs=6e-4)


def test_large_gpus_reserve_ten_gibibytes_at_least():
    options = planned(max_num_batched_tokens=2048, enforce_eager=True).options
    total = device_named("h100-80gb").total_nbytes / GIB
    assert options.utilization == pytest.approx((total - 10) / total, abs=6e-4)


def test_tokens_are_bytes_of_the_cache_by_those_of_a_token():
    served = planned(utilization=0.9)
    assert served.num_tokens.estimate == served.stage.cache.estimate // (32 * 8 * 2 * 128 * 2)


def test_layers_with_a_window_keep_a_share_of_the_tokens():
    windowed = CacheLayer(attention="sliding", num_heads=8, head=128, head_of_value=128, window=1024)
    model = LLAMA_8B.model_copy(update={"layers": (windowed, LLAMA_8B.layers[0]) * 16})
    ratio = planned(model, utilization=0.9).num_tokens.estimate / planned(utilization=0.9).num_tokens.estimate
    assert ratio == pytest.approx(32 / (16 + 0.8 * 16), rel=1e-4)


def test_a_published_cache_holds_as_many_tokens_as_it_says():
    # vLLM's issue 21348: Qwen3-235B in fp8 on four H100s, 8.23 GiB of keys and as much of values are 367,404 tokens.
    layer = CacheLayer(attention="full", num_heads=4, head=128, head_of_value=128)
    options = ServeOptions(engine="sglang", version=(0, 5), tensor_parallel=4)
    token = sglang._nbytes_of_token((layer,) * 94, options)
    assert 2 * 8.23 * GIB / token == pytest.approx(367_404, rel=2e-3)


def test_what_is_not_modelled_is_refused():
    state = LLAMA_8B.model_copy(update={"layers": (CacheLayer(attention="state"),)})
    with pytest.raises(WorkloadError, match="state"):
        planned(state)
    with pytest.raises(UsageError, match="pipeline"):
        planned(pipeline_parallel=2)
    with pytest.raises(UsageError, match="no engine"):
        engine_named("tgi")


@pytest.mark.parametrize("name", ENGINES)
def test_the_newest_version_that_was_read_is_taken_by_default(name):
    assert ENGINES[name].newest >= ENGINES[name].oldest


@pytest.mark.parametrize(("text", "number"), [("0.19.0", (0, 19, 0)), ("v0.8", (0, 8))])
def test_a_version_is_read_as_numbers(text, number):
    assert version_of(text) == number


@pytest.mark.parametrize("text", ["new", "0.x", ""])
def test_what_is_no_version_is_refused(text):
    with pytest.raises(UsageError):
        version_of(text)
