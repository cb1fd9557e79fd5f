"""`memlint serve` from what is typed to what is printed; the child's jobs are done in this process."""

import json

import pytest

from memlint.base.errors import MemlintError, UsageError
from memlint.commands.serve.serve import Serving, _ask, order_of
from memlint.commands.serve.text import render
from memlint.commands.targets import resolve
from memlint.report.text_style import TextStyle
from tests.in_process import InProcess

SMALL = (
    "transformers::LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8, "
    "num_key_value_heads=4, vocab_size=32000, max_position_embeddings=4096)"
)
PLAIN = TextStyle(color=False, width=100, is_terminal=False, blocks=False, verbosity=0)


def serve(target=SMALL, prices=None, engine="vllm", version=None, tp=None, gpu=None, users=None, **others):
    request = resolve(target, {}).requests[0]
    return _ask(InProcess(request), order_of(engine, version, tp, gpu, users, **others), prices or {})


def test_without_a_number_of_gpus_there_is_a_table_of_four():
    serving = serve(gpu="rtx4090")
    assert [each.options.tensor_parallel for each in serving.served] == [1, 2, 4, 8]
    weights = [each.stage.weights.estimate for each in serving.served]
    assert weights == sorted(weights, reverse=True)
    text = render(serving, "text", PLAIN)
    assert "  tp " in text
    assert "starts" in text


def test_a_plan_says_each_part_and_what_was_assumed():
    serving = serve(tp="1", gpu="h100-80gb", version="0.19.0", max_model_len=2048)
    text = render(serving, "text", PLAIN)
    for part in ("weights", "activations of the profile run", "CUDA graphs", "tokens", "Available KV cache memory"):
        assert part in text
    assert "It starts." in text
    assert "Assumed:" in text
    assert Serving.model_validate(json.loads(render(serving, "json", PLAIN))) == serving


def test_a_model_that_does_not_start_has_changes_with_which_it_does():
    big = SMALL.replace("4096)", "40000000)")
    serving = serve(big, tp="1", gpu="l4", version="0.19.0")
    served = serving.served[0]
    assert served.start == "does not start"
    assert serving.status == 1
    lengths = [each.option for each in served.remedies if each.option.startswith("--max-model-len")]
    again = serve(big, tp="1", gpu="l4", version="0.19.0", max_model_len=int(lengths[0].split()[1]))
    assert again.served[0].start == "starts"


def test_the_smallest_gpu_for_some_users_is_the_cheapest_without_prices():
    serving = serve(users=4, max_model_len=4096, tp="1,2")
    first = serving.choices[0]
    assert first.concurrency >= 4
    assert all(first.num_gpus * first.gpu_nbytes <= each.num_gpus * each.gpu_nbytes for each in serving.choices)
    assert first.gpu in render(serving, "text", PLAIN)


def test_prices_decide_where_there_are_some():
    prices = {"h100-80gb": 3.0, "l4": 1.0, "t4": 5.0}
    serving = serve(users=4, max_model_len=4096, tp="1", prices=prices)
    assert (serving.choices[0].gpu, serving.choices[0].price) == ("l4", 1.0)


def test_the_dtype_of_the_config_is_served_unless_another_is_asked_for():
    half = serve(SMALL.replace("4096)", "4096, dtype='float16')"), tp="1", gpu="h100-80gb")
    assert half.served[0].options.dtype == "float16"
    assert serve(tp="1", gpu="h100-80gb", dtype="float32").served[0].options.dtype == "float32"


@pytest.mark.parametrize(
    "options", [{"engine": "tgi"}, {"tp": "two"}, {"gpu": "h42"}, {"kv_cache_dtype": "int3"}, {"dtype": "int8"}]
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(UsageError):
        order_of(
            **{
                "engine": "vllm",
                "version": None,
                "ranks": options.pop("tp", None),
                "gpu": None,
                "users": None,
                **options,
            }
        )


def test_sizes_that_cannot_be_divided_are_named_in_the_table():
    serving = serve(gpu="h100-80gb", tp="1,3")
    assert [each.tensor_parallel for each in serving.refused] == [3]
    with pytest.raises(UsageError, match="8 attention heads"):
        serve(gpu="h100-80gb", tp="3")


@pytest.mark.parametrize("target", ["transformers::T5Config", "transformers::ViTConfig"])
def test_a_model_that_no_engine_serves_as_text_is_refused(target):
    with pytest.raises(MemlintError):
        serve(target, tp="1", gpu="h100-80gb")


def test_a_known_model_is_served_by_its_name():
    serving = serve("meta-llama/Llama-3.2-1B-Instruct", tp="1", gpu="l4", max_model_len=8192)
    assert serving.model == "meta-llama/Llama-3.2-1B-Instruct"
    assert serving.served[0].stage.weights.estimate == pytest.approx(2 * 1_235_814_400 + 2 * 131072 * 64, rel=1e-3)


def test_sglang_is_served_by_its_rules():
    assert serve(engine="sglang", tp="1", gpu="h100-80gb").served[0].options.utilization < 0.9
