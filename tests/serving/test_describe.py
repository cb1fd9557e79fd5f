"""Models described by their configs: layers, parameters and images; oracles are pages and logs of others."""

import math

import pytest
import torch

from memlint.base.errors import WorkloadError
from memlint.session.serving.describe import describe
from memlint.workloads import torchvision_schemas

torchvision_schemas.install()
transformers = pytest.importorskip("transformers")


def described(kind, **fields):
    return describe(getattr(transformers, kind)(**fields), kind, "bfloat16")


def test_layers_with_a_window_are_told_from_others():
    model = described("Gemma3TextConfig", num_hidden_layers=12, sliding_window=512)
    assert [layer.attention for layer in model.layers] == (["sliding"] * 5 + ["full"]) * 2
    assert {layer.window for layer in model.layers} == {0, 512}


def test_a_window_that_is_not_used_counts_for_nothing():
    assert {each.attention for each in described("Qwen2Config", num_hidden_layers=2).layers} == {"full"}
    assert {each.attention for each in described("MistralConfig", num_hidden_layers=2).layers} == {"sliding"}


def test_latent_attention_keeps_one_latent_for_a_token():
    model = described("DeepseekV3Config", num_hidden_layers=4, n_routed_experts=8, n_group=1)
    assert {(each.attention, each.num_heads, each.head, each.head_of_value) for each in model.layers} == {
        ("latent", 1, 512 + 64, 0)
    }


def test_states_are_those_of_vllms_page_for_gated_delta_nets():
    # Qwen3-Next: 32 heads of values and 16 of keys, 128 each, and the last three inputs of a convolution.
    model = described("Qwen3NextConfig", num_hidden_layers=4, num_experts=8)
    states = model.layers[0].states
    assert [(state.cut, state.rest) for state in states] == [(2 * 2048 + 4096, 3), (32, 128 * 128)]
    assert [each.attention for each in model.layers] == ["state", "state", "state", "full"]


@pytest.mark.parametrize(
    ("kind", "fields", "attentions"),
    [
        ("BambaConfig", {"attn_layer_indices": [1]}, ["state", "full", "state"]),
        ("JambaConfig", {"attn_layer_period": 2, "attn_layer_offset": 1}, ["state", "full", "state"]),
        ("FalconH1Config", {}, ["full", "state"] * 3),
        ("Lfm2Config", {"layer_types": ["conv", "full_attention", "conv"]}, ["state", "full", "state"]),
    ],
)
def test_hybrid_models_have_layers_with_states(kind, fields, attentions):
    model = described(kind, num_hidden_layers=3, **fields)
    assert [each.attention for each in model.layers] == attentions
    assert all(each.states for each in model.layers if each.attention == "state")


@pytest.mark.parametrize(
    ("rope", "positions"),
    [
        ({"rope_type": "default", "rope_theta": 1e4}, 4096),
        ({"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4}, 8 * 4096),
        ({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 2048}, 4 * 2048),
    ],
)
def test_tables_of_rotary_embeddings_are_as_long_as_their_scaling_says(rope, positions):
    model = described(
        "LlamaConfig",
        num_hidden_layers=1,
        max_position_embeddings=4096,
        rope_parameters=rope,
        hidden_size=1024,
        num_attention_heads=8,
        intermediate_size=64,
    )
    assert model.rotary == positions * 128


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}}}, "w4a16"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8}}}}, "w8a8"),
    ],
)
def test_the_method_of_a_checkpoint_is_that_of_its_config(settings, method):
    config = transformers.LlamaConfig(num_hidden_layers=1)
    config.quantization_config = settings
    assert describe(config, "llama", "bfloat16").quantization == method


def test_parameters_are_those_of_the_model_each_once():
    config = transformers.LlamaConfig(num_hidden_layers=2, tie_word_embeddings=True)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    described = describe(config, "llama", "bfloat16")
    assert sum(math.prod(each.shape) for each in described.parameters) == model.num_parameters()
    assert [each.role for each in described.parameters].count("vocabulary") == 1
    assert {each.layer for each in described.parameters} == {-1, 0, 1}


@pytest.mark.parametrize("kind", ["T5Config", "ViTConfig"])
def test_a_model_that_generates_no_text_from_a_decoder_is_refused(kind):
    with pytest.raises(WorkloadError):
        described(kind)
