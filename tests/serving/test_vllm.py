"""vLLM's rules by version, with a profile run that is given; and what its own logs say, with one that is run."""

import functools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.serving import NAMES, Compared, compared, model_of, profile_of, rows_of
from memlint.base.errors import UsageError
from memlint.memory.devices import CATALOGUE, device_named
from memlint.serving.engines import vllm
from memlint.serving.model import CacheLayer, Encoder, Parameter, Profile, ServedModel
from memlint.serving.options import GIB, ServeOptions

H100 = device_named("h100-80gb")
LLAMA_8B = ServedModel(
    name="llama",
    torch="2.13.0",
    dtype="bfloat16",
    vocab_size=128256,
    hidden_size=4096,
    max_positions=131072,
    rotary=131072 * 128,
    num_heads=32,
    num_kv_heads=8,
    num_layers=32,
    parameters=(
        Parameter(name="model.embed_tokens.weight", shape=(128256, 4096), role="vocabulary"),
        *(
            Parameter(name=f"model.layers.{layer}.{name}.weight", shape=shape, role="linear", layer=layer)
            for layer in range(32)
            for name, shape in (
                ("self_attn.q_proj", (4096, 4096)),
                ("self_attn.k_proj", (1024, 4096)),
                ("self_attn.v_proj", (1024, 4096)),
                ("self_attn.o_proj", (4096, 4096)),
                ("mlp.gate_proj", (14336, 4096)),
                ("mlp.up_proj", (14336, 4096)),
                ("mlp.down_proj", (4096, 14336)),
            )
        ),
        Parameter(name="lm_head.weight", shape=(128256, 4096), role="vocabulary"),
    ),
    layers=(CacheLayer(attention="full", num_heads=8, head=128, head_of_value=128),) * 32,
)


def planned(version=(0, 19, 0), model=LLAMA_8B, device=H100, activations=int(1.89 * GIB), **options):
    options = ServeOptions(engine="vllm", version=version, **options)
    orders = []

    def profile(order):
        orders.append(order)
        return Profile(nbytes=activations)

    return vllm.plan(model, options, device, profile), orders


def test_a_log_of_llama_follows_from_its_activations_alone():
    served, _ = planned(max_model_len=8192, utilization=0.95)  # llmd-18: 58.11 GiB, 476,000 tokens
    assert served.stage.cache.estimate / GIB == pytest.approx(58.11, abs=0.02)
    assert served.num_tokens.estimate == pytest.approx(476_000, rel=5e-4)
    assert served.start == "starts"


def test_half_the_bytes_of_a_value_are_twice_the_tokens():
    half, _ = planned(max_model_len=8192, kv_cache_dtype="fp8")
    whole, _ = planned(max_model_len=8192)
    assert half.num_tokens.estimate == pytest.approx(2 * whole.num_tokens.estimate, abs=32)


@pytest.mark.parametrize(
    ("version", "share", "sampler", "subtracts"),
    [
        ((0, 8, 5), 0.9, "sort", False),
        ((0, 16, 0), 0.9, "sort", False),
        ((0, 17, 0), 0.9, "threshold", False),
        ((0, 19, 1), 0.9, "threshold", False),
        ((0, 20, 2), 0.92, "threshold", True),
        ((0, 24, 0), 0.92, "masks", True),
        ((0, 33, 0), 0.92, "masks", True),
    ],
)
def test_defaults_and_sampler_are_those_of_the_version(version, share, sampler, subtracts):
    served, orders = planned(version)
    assert served.options.utilization == share
    assert served.requested == math.ceil(H100.total_nbytes * share)
    assert {order.sampler for order in orders} == {sampler}
    assert served.subtracts_graphs is subtracts


@pytest.mark.parametrize(
    ("gpu", "version", "tokens", "sequences"),
    [
        ("h100-80gb", (0, 33), 8192, 1024),
        ("h200", (0, 33), 8192, 1024),
        ("a100-80gb", (0, 33), 2048, 256),
        ("rtx4090", (0, 33), 2048, 256),
        ("b200", (0, 33), 16384, 1024),
        ("b200", (0, 19), 8192, 1024),
    ],
)
def test_the_gpu_decides_how_much_a_server_batches(gpu, version, tokens, sequences):
    served, orders = planned(version, device=device_named(gpu))
    assert (served.options.max_num_batched_tokens, served.options.max_num_seqs) == (tokens, sequences)
    assert [(order.num_tokens, order.num_sequences) for order in orders] == [(tokens, sequences)]


def test_logged_tokens_are_blocks_up_to_0_19_and_requests_times_length_since():
    before, _ = planned((0, 19, 0), max_model_len=1000)
    since, _ = planned((0, 20, 2), max_model_len=1000)
    assert before.num_tokens.estimate == 16 * before.num_blocks.estimate
    assert since.num_tokens.estimate == int(since.num_blocks.estimate / 63 * 1000)  # 63 blocks hold 1,008 tokens


def test_a_window_is_kept_as_all_tokens_before_there_were_groups():
    windowed = CacheLayer(attention="sliding", num_heads=8, head=128, head_of_value=128, window=1024)
    model = LLAMA_8B.model_copy(update={"layers": (windowed, LLAMA_8B.layers[0]) * 16})
    assert planned((0, 8, 5), model)[0].num_groups == 1
    assert planned((0, 11, 0), model)[0].num_groups == 2


def test_stages_of_a_pipeline_have_their_layers_and_the_last_one_samples():
    served, orders = planned(pipeline_parallel=3, max_model_len=8192)
    assert [order.is_last_stage for order in orders] == [False, False, True]
    # distributed/utils.py gives what is left over to the stages before the last.
    layer = 2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    ends = 2 * 128256 * 4096
    rotary = 2 * 131072 * 128
    assert [round((stage.weights.estimate - rotary) / layer, 2) for stage in served.stages] == [
        round(11 + ends / layer, 2),
        11.0,
        round(10 + ends / layer, 2),
    ]


def test_without_graphs_nothing_is_taken_off_for_them():
    eager, orders = planned((0, 33, 0), enforce_eager=True)
    assert eager.stage.cuda_graphs.high == 0
    assert not orders[0].is_compiled


def test_images_of_the_largest_size_live_during_the_profile_run():
    encoder = Encoder(tokens_of_item=256, values_of_item=3 * 896 * 896)
    seen, _ = planned(model=LLAMA_8B.model_copy(update={"encoder": encoder}))
    plain, _ = planned()
    images = 8192 // 256
    assert seen.stage.activations.estimate - plain.stage.activations.estimate == 2 * images * (
        256 * 4096 + 3 * 896 * 896
    )


def test_an_engine_whose_weights_do_not_fit_does_not_start():
    served, _ = planned(device=device_named("l4"), dtype="float32")
    assert served.start == "does not start"
    assert "weights alone" in served.reason


def test_more_than_the_gpu_has_free_cannot_be_asked_for():
    served, _ = planned(utilization=1.0)
    assert served.start == "does not start"
    assert "less free" in served.reason


def test_graphs_that_come_off_nothing_may_not_fit_beside_what_the_engine_takes():
    served, _ = planned(device=device_named("rtx4090"), utilization=0.97, max_model_len=2048)
    assert served.start == "may start"
    assert "CUDA graphs" in served.reason
    eager, _ = planned(device=device_named("rtx4090"), utilization=0.97, max_model_len=2048, enforce_eager=True)
    assert eager.start == "starts"


@given(st.floats(0.5, 0.95), st.floats(0.5, 0.95), st.sampled_from(["auto", "fp8"]), st.sampled_from([1, 2, 4, 8]))
def test_a_larger_share_never_leaves_less_for_the_cache(one, other, dtype, ranks):
    shares = sorted((one, other))
    plans = [planned(utilization=share, kv_cache_dtype=dtype, tensor_parallel=ranks)[0] for share in shares]
    assert plans[0].stage.cache.estimate <= plans[1].stage.cache.estimate
    assert plans[0].num_tokens.low <= plans[1].num_tokens.low


def test_the_longest_length_of_an_engine_that_does_not_start_does_start():
    served, _ = planned(device=device_named("rtx4090"))
    assert served.start == "does not start"
    longest = vllm.longest_length(served, LLAMA_8B)
    assert planned(device=device_named("rtx4090"), max_model_len=longest)[0].start == "starts"
    assert planned(device=device_named("rtx4090"), max_model_len=longest + 16)[0].start == "may start"


@pytest.mark.parametrize("ranks", [3, 5, 64])
def test_heads_that_cannot_be_divided_are_refused(ranks):
    with pytest.raises(UsageError, match="32 attention heads"):
        planned(tensor_parallel=ranks)


def test_a_version_that_was_not_read_is_refused():
    with pytest.raises(UsageError, match="older"):
        planned((0, 6, 0))


@pytest.mark.parametrize("gpu", ["t4", "v100-32gb", "cpu"])
def test_a_gpu_that_does_not_compute_in_the_dtype_is_refused(gpu):
    with pytest.raises(UsageError, match="bfloat16"):
        planned(device=device_named(gpu))


@pytest.mark.parametrize("gpu", [name for name, device in CATALOGUE.items() if device.is_cuda])
def test_bounds_hold_the_likely_value_on_every_gpu(gpu):
    served, _ = planned((0, 33, 0), device=device_named(gpu), activations=GIB, dtype="float16")
    for name in ("weights", "activations", "buffers", "non_torch", "cuda_graphs", "cache"):
        interval = getattr(served.stage, name)
        assert interval.low <= interval.estimate <= interval.high
    assert served.concurrency.low <= served.concurrency.estimate <= served.concurrency.high


# --- with the profile run


@pytest.fixture(scope="module")
def logs():
    return {each.row["id"]: each for each in compared("fitted", only=FAST) if isinstance(each, Compared)}


FAST = ("llmd-06", "llmd-10", "llmd-28", "llmd-31", "llmd-35", "llmd-57")
"""Gemma 2 and 3, Llama, Llama 4, Mixtral and Mistral, with one, two and four GPUs."""


@pytest.mark.parametrize("log", FAST)
def test_a_log_is_predicted(logs, log):
    each = logs[log]
    assert abs(each.error("weights")) < 0.002
    assert abs(each.error("activations")) < 0.01
    assert abs(each.error("cache")) < 0.006
    assert abs(each.error("tokens")) < 0.006
    assert each.is_inside("non_torch")
    assert each.is_inside("cuda_graphs")


@pytest.mark.parametrize(("version", "logged"), [((0, 16, 0), 5.64), ((0, 17, 0), 2.23)])
def test_a_sampler_that_sorts_takes_what_vllm_logged_for_qwen_3(version, logged):
    name = "Qwen/Qwen3-14B"  # 14.8 billion parameters on an H100, of llm-d-planner's results by version
    options = ServeOptions(engine="vllm", version=version, max_model_len=8192)
    served = vllm.plan(model_of(name), options, H100, functools.partial(profile_of, name))
    assert served.stage.activations.estimate / GIB == pytest.approx(logged, rel=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("half", ["fitted", "held_out"])
def test_logs_are_predicted_within_what_the_page_says(half):
    logs = [each for each in compared(half) if isinstance(each, Compared)]
    assert len(logs) >= 15
    errors = {name: [abs(error) for each in logs if (error := each.error(name)) is not None] for name in NAMES}
    assert statistics.median(errors["cache"]) < 0.015
    assert statistics.median(errors["tokens"]) < 0.02
    assert statistics.median(errors["activations"]) < 0.1


def test_no_log_is_in_both_halves():
    ids = [{row["id"] for row in rows_of(half)} for half in ("fitted", "held_out")]
    assert not ids[0] & ids[1]
    assert len(ids[0]) == len(ids[1]) == 27
