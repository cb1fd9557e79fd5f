from __future__ import annotations

import dataclasses
import json
import re
import sys
from types import SimpleNamespace

import pytest
import torch

from memlint.base.errors import WorkloadError
from memlint.memory.devices import device_named
from memlint.workloads import torchvision_schemas
from memlint.workloads.config_parts import text_config
from memlint.workloads.construction import construct
from memlint.workloads.construction.construct import build, build_program, complete, simulated_device
from memlint.workloads.discover import find_workloads
from memlint.workloads.guess.inputs import infer_inputs
from memlint.workloads.huggingface import diffusion, processors
from memlint.workloads.huggingface.configs import few_layers
from memlint.workloads.huggingface.documented import documented_shape
from memlint.workloads.huggingface.models import model_from_config
from memlint.workloads.notes import noted
from memlint.workloads.safetensors_files import replace_safetensors
from tests.workloads.tables import read_workloads

transformers = pytest.importorskip("transformers")

TEXT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 99}
CONFIGS = {
    "BertForMaskedLM": (
        {"model_type": "bert", **TEXT},
        ["input_ids [batch, seq=512] int64 below 99", "labels [batch, seq=512] int64 below 99"],
    ),
    "ViTForImageClassification": (
        {"model_type": "vit", **TEXT, "image_size": 32, "patch_size": 8},
        ["pixel_values [batch, 3, 32, 32] float32", "labels [batch] int64 below 2"],
    ),
    "CLIPModel": (
        {
            "model_type": "clip",
            "text_config": {**TEXT, "max_position_embeddings": 77, "eos_token_id": 98, "bos_token_id": 97},
            "vision_config": {**TEXT, "image_size": 32, "patch_size": 8},
        },
        ["pixel_values [batch, 3, 32, 32] float32", "input_ids [batch, seq=77] int64 below 99", "return_loss = True"],
    ),
    "T5ForConditionalGeneration": (
        {
            "model_type": "t5",
            "d_model": 32,
            "d_kv": 16,
            "d_ff": 64,
            "num_layers": 1,
            "num_heads": 2,
            "vocab_size": 99,
            "decoder_start_token_id": 0,
            "pad_token_id": 0,
        },
        ["input_ids [batch, seq=512] int64 below 99", "labels [batch, seq=512] int64 below 99"],
    ),
    "WhisperForConditionalGeneration": (
        {
            "model_type": "whisper",
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "num_mel_bins": 16,
            "max_source_positions": 50,
            "max_target_positions": 64,
            "vocab_size": 99,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 1,
            "decoder_start_token_id": 2,
        },
        ["input_features [batch, 16, 100] float32", "labels [batch, 64] int64 below 99"],
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_file_gives_its_model_with_the_labels_of_its_head(name, tmp_path):
    config, expected = CONFIGS[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (workload,) = find_workloads(str(tmp_path), tmp_path, overrides={"batch": 2}).workloads
    completed, assumptions = complete(workload)
    assert [spec.described(completed.dimensions) for spec in completed.inputs] == expected
    assert name in assumptions[0].text
    program = build_program(completed, device="cpu")
    program.setup()
    program.step()
    assert all("mean" not in assumption.text for assumption in program.assumptions)


@pytest.mark.parametrize("refuses", [False, True])
def test_inputs_are_found_with_few_layers_where_the_model_runs_with_few(refuses, tmp_path, monkeypatch):
    layers = []

    def build_model(config):
        layers.append(config.num_hidden_layers)
        if refuses and config.num_hidden_layers < 6:
            raise WorkloadError("too few layers")
        return model_from_config(config)

    monkeypatch.setattr(construct, "model_from_config", build_model)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **TEXT, "num_hidden_layers": 6}))
    (workload,) = find_workloads(str(tmp_path / "config.json"), tmp_path).workloads
    completed, _ = complete(workload)
    assert [spec.name for spec in completed.inputs] == ["input_ids", "labels"]
    assert completed.arguments == workload.arguments
    assert layers == ([2, 6] if refuses else [2])


def test_few_layers_are_few_in_each_part_with_lists_as_long():
    text = {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}
    config = transformers.Gemma3Config(text_config=text, vision_config={"num_hidden_layers": 3})
    few = few_layers(config)
    assert few["text_config"]["layer_types"] == ["sliding_attention", "full_attention"]
    assert (few["text_config"]["num_hidden_layers"], few["vision_config"]["num_hidden_layers"]) == (2, 2)
    assert few_layers(transformers.BertConfig(num_hidden_layers=2)) == {}


def test_architectures_choose_the_head(tmp_path):
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **TEXT}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (workload,) = find_workloads(str(tmp_path / "config.json"), tmp_path).workloads
    assert [str(spec) for spec in complete(workload)[0].inputs][1] == "labels [batch] int64 below 2"


def test_a_config_of_an_unknown_model_type_is_an_error(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model"}')
    (workload,) = find_workloads(str(tmp_path / "config.json"), tmp_path).workloads
    with pytest.raises(WorkloadError, match="is not a config transformers knows"):
        complete(workload)


def test_a_model_that_is_loaded_by_name_from_the_hub_has_random_weights_of_its_sizes(write):
    path = write(
        "from transformers import AutoModel\ndef make():\n    return AutoModel.from_pretrained('bert-base-uncased')\n"
    )
    (workload,) = find_workloads(f"{path}::make", path.parent).workloads
    assert build(workload).model.num_parameters() == 109_482_240
    assert any(each.text.startswith("the weights of bert-base-uncased are not on this machine") for each in noted())


def test_a_constructor_that_loads_a_tokenizer_has_a_fake_one_with_as_many_words(write):
    path = write(
        """
        from torch import nn
        from transformers import AutoTokenizer

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
                self.table = nn.Embedding(len(self.tokenizer), 2)
        """
    )
    (workload,) = find_workloads(f"{path}::Net", path.parent).workloads
    assert build(workload).model.table.num_embeddings == 30_522
    assert any("replaced by a fake one of 30,522 words" in each.text for each in noted())


def test_a_model_of_the_hub_that_nobody_knows_names_the_option_for_its_config(write):
    path = write("from transformers import AutoModel\ndef make():\n    return AutoModel.from_pretrained('org/none')\n")
    (workload,) = find_workloads(f"{path}::make", path.parent).workloads
    with pytest.raises(WorkloadError) as caught:
        build(workload)
    assert "add --config-of org/none=config.json" in caught.value.hint


def model_of(target, arguments, root):
    (found,) = find_workloads(target, root, [], {"batch": 1}).workloads
    return build(dataclasses.replace(found, arguments=arguments), root).model


@pytest.mark.parametrize("as_file", [False, True])
def test_arguments_change_the_config(as_file, tmp_path):
    target = "transformers::BertConfig"
    if as_file:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "num_hidden_layers": 3}))
        target = str(tmp_path / "config.json")
    model = model_of(target, {"hidden_size": 24, "num_attention_heads": 2}, tmp_path)
    assert model.config.hidden_size == model.bert.embeddings.word_embeddings.embedding_dim == 24
    assert model.config.num_hidden_layers == (3 if as_file else 12)


def test_an_argument_the_config_does_not_have_is_an_error(tmp_path):
    with pytest.raises(WorkloadError, match="BertConfig has no hiden_size") as caught:
        model_of("transformers::BertConfig", {"hiden_size": 24}, tmp_path)
    assert caught.value.hint == "Did you mean hidden_size?"


def test_tables_for_a_config_class_or_file_are_used(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "pyproject.toml").write_text(
        "".join(
            f'[[tool.memlint.workload]]\nname = "{name}"\ntarget = "{target}"\nbatch = {batch}\n'
            for name, target, batch in [
                ("a", "transformers::BertConfig", 2),
                ("b", "config.json", 3),
                ("c", "transformers::BertConfig", 4),
                ("d", "transformers::GPT2Config", 5),
            ]
        )
    )
    tables = read_workloads(tmp_path / "pyproject.toml")

    def found(target):
        return [(w.name, w.batch, w.dtype) for w in find_workloads(target, tmp_path, tables, {"dtype": "bfloat16"})[0]]

    assert found("transformers::BertConfig") == [("a", 2, "bfloat16"), ("c", 4, "bfloat16")]
    assert found(str(tmp_path / "config.json")) == [("b", 3, "bfloat16")]
    assert found("transformers::T5Config") == [("T5Config", 8, "bfloat16")]


def test_quantized_weights_of_a_config_are_made_or_said_to_be_left_out(tmp_path):
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    _, texts, _ = completed(config, tmp_path)
    assert any(text.startswith("quantization_config (fp8) is not modelled") for text in texts)
    layers = pytest.importorskip("bitsandbytes.nn")
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (workload,) = find_workloads(str(tmp_path), tmp_path, overrides={"mode": "inference"}).workloads
    kinds = [type(each) for each in build(workload).model.modules()]
    assert kinds.count(layers.Linear4bit) == 7


VISION = {**TEXT, "image_size": 32, "patch_size": 8, "projection_dim": 32}
LLAMA = {"model_type": "llama", **TEXT, "num_key_value_heads": 2}
WITHOUT_WORDS = {key: value for key, value in TEXT.items() if key != "vocab_size"}
PATCHES = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "patch_size": 14}


def completed(config, folder, **overrides):
    """The Workload of a config with its inputs, and what was assumed; one real step has been taken with them."""
    (folder / "config.json").write_text(json.dumps(config))
    (workload,) = find_workloads(str(folder), folder, overrides={"batch": 2, **overrides}).workloads
    workload, assumptions = complete(workload)
    program = build_program(workload, device="cpu")
    program.setup()
    program.step()
    return workload, [each.text for each in (*assumptions, *program.assumptions)], program.inputs


def test_a_text_holds_as_many_image_tokens_as_the_tower_gives(tmp_path):
    vision = {"model_type": "clip_vision_model", **VISION}
    config = {"model_type": "llava", "text_config": LLAMA, "vision_config": vision, "image_token_index": 90}
    workload, _, inputs = completed(config, tmp_path)
    assert str(workload.inputs[0]) == "pixel_values [batch, 3, 32, 32] float32"
    assert ((inputs["input_ids"] == 90).sum(1) == (32 // 8) ** 2).all()


def test_a_token_beyond_the_vocabulary_is_replaced_and_said(tmp_path):
    vision = {"model_type": "clip_vision_model", **VISION}
    config = {"model_type": "llava", "text_config": LLAMA, "vision_config": vision, "image_token_index": 99}
    _, texts, inputs = completed(config, tmp_path)
    assert ((inputs["input_ids"] == 98).sum(1) == 16).all()
    assert any("token 98 stands for each image feature" in text for text in texts)


def test_images_are_flattened_to_patches_where_the_processor_does(tmp_path):
    pytest.importorskip("PIL")
    config = {
        "model_type": "qwen2_vl",
        "text_config": {
            **TEXT,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "mrope_section": [4, 2, 2]},
        },
        "vision_config": PATCHES,
        "image_token_id": 90,
        "video_token_id": 91,
        "vision_start_token_id": 92,
        "vision_end_token_id": 93,
    }
    workload, texts, inputs = completed(config, tmp_path)
    shapes = {spec.name: spec.shape for spec in workload.inputs}
    height, width = (int(size) for size in inputs["image_grid_thw"][0, 1:])
    assert shapes["pixel_values"] == (f"{height * width}*batch", 3 * 2 * 14 * 14)
    assert ((inputs["input_ids"] == 90).sum(1) == height * width // 4).all()
    assert any("through Qwen2VLImageProcessor" in text for text in texts)
    assert any("pixel_values_videos left out" in text for text in texts)


def test_what_a_model_cannot_take_is_left_out_and_said(tmp_path):
    vision = {"model_type": "clip_vision_model", **VISION, "image_size": 4}
    config = {"model_type": "llava", "text_config": LLAMA, "vision_config": vision, "image_token_index": 90}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (workload,) = find_workloads(str(tmp_path), tmp_path, overrides={"batch": 2}).workloads
    _, assumptions = complete(workload)
    assert any("pixel_values left out: with them it raises" in each.text for each in assumptions)


def test_a_recording_goes_through_the_feature_extractor(tmp_path):
    config = {"model_type": "audio-spectrogram-transformer", **TEXT, "num_mel_bins": 32, "max_length": 64}
    workload, texts, _ = completed(config, tmp_path)
    assert str(workload.inputs[0]) == "input_values [batch, 64, 32] float32"
    assert any("a recording of 10 s at 16000 Hz through ASTFeatureExtractor" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "arguments", "inputs"),
    [
        ("BlipTextConfig", TEXT, ["input_ids [batch, seq] int64 below 99"]),
        (
            "Blip2QFormerConfig",
            {**TEXT, "encoder_hidden_size": 24},
            ["query_embeds [batch, 32, 32] float32", "encoder_hidden_states [batch, 256, 24] float32"],
        ),
        (
            "XCLIPVisionConfig",
            {**WITHOUT_WORDS, "image_size": 32, "patch_size": 8, "num_frames": 4, "mit_hidden_size": 32},
            ["pixel_values [4*batch, 3, 32, 32] float32"],
        ),
        (
            "DiaDecoderConfig",  # tokens of several codebooks, and what its attention finds to be None
            {
                **TEXT,
                "head_dim": 16,
                "cross_hidden_size": 24,
                "cross_num_attention_heads": 2,
                "cross_head_dim": 16,
                "num_channels": 3,
                "num_key_value_heads": 2,
                "cross_num_key_value_heads": 2,
            },
            ["input_ids [batch, seq, 3] int64 below 99", "encoder_hidden_states [batch, 256, 24] float32"],
        ),
        (
            "Qwen3OmniMoeTalkerCodePredictorConfig",  # "`input_ids` is expected to be `None`"
            {**TEXT, "num_key_value_heads": 2, "head_dim": 16, "num_code_groups": 2},
            ["inputs_embeds [batch, 512, 32] float32"],
        ),
        (
            "MaskFormerDetrConfig",  # of the decoder alone
            {"d_model": 32, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 32},
            ["inputs_embeds [batch, 512, 32] float32"],
        ),
        (
            "MoshiDepthConfig",  # what the model's own line names, as wide as the layer that raises has it
            {
                **{name: size for name, size in TEXT.items() if name != "intermediate_size"},
                "ffn_dim": 64,
                "input_size": 48,
                "audio_vocab_size": 64,
                "num_codebooks": 3,
                "max_position_embeddings": 4,
            },
            ["input_ids [batch, seq] int64 below 65", "last_hidden_state [batch, seq, 48] float32"],
        ),
        ("Qwen2VLVisionConfig", PATCHES, ["hidden_states [1024*batch, 1176] float32", "grid_thw [batch, 3] int64"]),
    ],
)
def test_a_part_of_a_model_stands_on_its_own(name, arguments, inputs, tmp_path):
    pytest.importorskip("PIL")
    (workload,) = find_workloads(f"transformers::{name}", tmp_path, [], {"batch": 2, "mode": "inference"}).workloads
    workload, _ = complete(dataclasses.replace(workload, arguments=arguments))
    assert [str(spec).partition(" each")[0] for spec in workload.inputs] == inputs
    program = build_program(workload, device="cpu")
    program.setup()
    program.step()


def test_a_text_is_as_long_as_what_an_error_says_it_is_added_to(tmp_path):
    audio = {**WITHOUT_WORDS, "head_dim": 16, "num_mel_bins": 128}
    text = {"model_type": "voxtral_realtime_text", **TEXT, "num_key_value_heads": 2, "head_dim": 16}
    config = {
        "model_type": "voxtral_realtime",
        "audio_config": {**audio, "model_type": "voxtral_realtime_encoder"},
        "text_config": text,
    }
    workload, _, inputs = completed(config, tmp_path)
    frames = inputs["input_features"].shape[2]
    assert inputs["input_ids"].shape == (2, frames // 8)
    assert str(workload.inputs[-1]) == "labels [batch, seq] int64 below 99"


def test_a_part_gets_what_its_whole_gives_it(tmp_path):
    (workload,) = find_workloads("transformers::BltLocalDecoderConfig", tmp_path, [], {"mode": "inference"}).workloads
    workload, assumptions = complete(workload)
    specs = {spec.name: spec for spec in workload.inputs}
    length = specs["inputs_embeds"].shape[1]
    assert specs["inputs_embeds"].shape == ("batch", length, 1024)
    assert specs["patch_embeds"].shape == ("batch", length + 1, 2048)  # no patch is taken to be longer than a byte
    assert assumptions[0].text.endswith("(as BltForCausalLM gives them)")


def test_patches_without_time_are_of_one_image():
    pytest.importorskip("PIL")
    config = transformers.GlmImageVisionConfig(image_size=64, patch_size=16)
    prepared = processors.images(config)
    assert prepared.specs[0].shape[1] == 3 * 16 * 16  # Qwen2-VL's, with time, have two images each


def test_a_text_part_that_cannot_run_is_the_reason(tmp_path):
    pytest.importorskip("PIL")
    (workload,) = find_workloads("transformers::GlmImageConfig", tmp_path).workloads
    with pytest.raises(WorkloadError, match=re.escape("got split_sizes=[8, 12, 12]")):
        complete(workload)


def test_a_part_without_a_model_names_the_whole(tmp_path):
    (workload,) = find_workloads("transformers::SamMaskDecoderConfig", tmp_path).workloads
    with pytest.raises(WorkloadError, match="it is a part of SamConfig") as caught:
        complete(workload)
    assert "transformers::SamConfig" in caught.value.hint


def test_a_text_shorter_than_its_image_says_so(tmp_path):
    vision = {"model_type": "clip_vision_model", **VISION}
    config = {"model_type": "llava", "text_config": LLAMA, "vision_config": vision, "image_token_index": 90}
    with pytest.raises(WorkloadError, match="has no room for the 16 values"):
        completed(config, tmp_path, dimensions={"seq": 8})


SMALL_UNET = {
    "block_out_channels": [32, 32],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "cross_attention_dim": 24,
    "attention_head_dim": 8,
    "layers_per_block": 1,
    "sample_size": 16,
}
SMALL_FLUX = {
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "in_channels": 8,
    "joint_attention_dim": 24,
    "pooled_projection_dim": 12,
    "guidance_embeds": True,
    "axes_dims_rope": [4, 4, 8],
}


class CausalConv3d(torch.nn.Conv3d):
    pass


class Encoder(torch.nn.Module):
    def __init__(self, layer, **config):
        super().__init__()
        self.layer, self.config = layer, config

    def forward(self, sample): ...


def test_latents_follow_the_kind_of_a_convolution_that_is_a_class_of_its_own():
    (first, *_), *_ = diffusion.candidates(Encoder(CausalConv3d(3, 8, 3), in_channels=3, sample_size=32))
    assert first.shape == ("batch", 3, 9, 32, 32)
    image_model = Encoder(torch.nn.Linear(64, 8), in_channels=16)
    shapes = [specs[0].shape for specs in diffusion.candidates(image_model)]
    assert shapes.index(("batch", 16, 1, 256, 256)) < shapes.index(("batch", 16, 9, 256, 256))


@pytest.mark.parametrize(
    ("name", "arguments", "shapes"),
    [
        (
            "UNet2DConditionModel",
            SMALL_UNET,
            {"sample": ("batch", 4, 16, 16), "timestep": ("batch",), "encoder_hidden_states": ("batch", 77, 24)},
        ),
        (
            "FluxTransformer2DModel",
            SMALL_FLUX,
            {
                "hidden_states": ("batch", 64 * 64, 8),
                "encoder_hidden_states": ("batch", 256, 24),
                "pooled_projections": ("batch", 12),
                "guidance": ("batch",),
                "img_ids": (64 * 64, 3),
            },
        ),
        ("AutoencoderKL", {"block_out_channels": [32], "sample_size": 32}, {"sample": ("batch", 3, 32, 32)}),
        (
            "QwenImageTransformer2DModel",  # whose code asks for the sizes of the images
            {"num_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2, "axes_dims_rope": [8, 4, 4]},
            {"hidden_states": ("batch", 64 * 64, 64), "img_shapes.0.0.0": (), "timestep": ("batch",)},
        ),
        (
            "PriorTransformer",  # whose docstring says the shapes
            {"num_layers": 1, "attention_head_dim": 8, "num_attention_heads": 2, "embedding_dim": 24},
            {"proj_embedding": ("batch", 24), "encoder_hidden_states": ("batch", 77, 24)},
        ),
    ],
)
def test_a_diffusion_model_gets_the_latents_and_texts_of_its_config(name, arguments, shapes, tmp_path):
    pytest.importorskip("diffusers")
    (workload,) = find_workloads(f"diffusers::{name}", tmp_path, [], {"batch": 2}).workloads
    workload, _ = complete(dataclasses.replace(workload, arguments=arguments))
    inferred = {spec.name: spec.shape for spec in workload.inputs}
    assert inferred | shapes == inferred


SIZES = {"batch_size": "batch", "B": "batch", "C": 4, "T": 9, "in_channels": 4, "text_len": 77, "dim": 24, "len_ids": 5}
SIZES["prod_patch_size"] = 8


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("hidden_states", ("batch", 4, 9)),
        ("control", ("batch", 9, 9, 4)),
        ("texts", ("batch", 6, 77, 24)),
        ("position_ids", (86, 3)),
        ("timestep", ("batch",)),
        ("patches", ("batch", 32)),
        ("unsized", None),
        ("unknown", None),
        ("absent", None),
    ],
)
def test_the_shape_of_an_input_is_that_of_the_docstring(name, shape):
    def forward():
        """Run it.

        Args:
            hidden_states (`torch.Tensor` of shape `(batch_size, in_channels,
                T)`): Latents.
            control: Latents [B, T, 2C + 1, self.config.in_channels] of what is followed.
            texts (`torch.Tensor`, *optional*):
                Texts with the following shape `(batch_size, 1 + len(ids), text_len, dim)`.
            position_ids (`torch.Tensor` of shape `(text_len + T, 3)`): `(t, h, w)` of each.
            timestep (`torch.Tensor` of shape `(batch_size,)` or `(batch_size, T)`): Times.
            patches (`torch.Tensor` of shape `(batch_size, in_channels * prod(patch_size))`): Patches.
            unsized (`torch.Tensor`): What has no shape.
            unknown (`torch.Tensor` of shape `(batch_size, height)`): Of a size that no config has.
        """

    assert documented_shape(forward, name, SIZES) == shape


def test_texts_of_a_library_model_are_as_long_as_in_its_training():
    torchvision_schemas.install()
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=2048,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    lengths = []
    for stated in ({}, {"length": 340}, {"length": 4096}):
        inferred = infer_inputs(model, train=True, device="cpu", dimensions={}, stated=stated)
        lengths.append(inferred.dimensions["seq"])
    assert lengths == [1024, 340, 2048]


def test_configs_of_older_versions_of_transformers_name_their_text_part_or_are_it() -> None:
    of_text = SimpleNamespace(vocab_size=3)
    assert text_config(of_text) is of_text
    assert text_config(SimpleNamespace(text_config=of_text)) is of_text


def test_a_text_without_its_pictures_is_as_long_as_in_training():
    torchvision_schemas.install()

    class Seeing(transformers.LlamaForCausalLM):
        """Its pictures come in a form that nothing describes: it runs with its text alone."""

        def forward(self, input_ids, labels=None, pixel_values=None):
            if pixel_values is not None:
                raise ValueError(pixel_values.shape)
            return super().forward(input_ids, labels=labels)

    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    )  # fmt: skip
    inferred = infer_inputs(Seeing(config), train=True, device="cpu", dimensions={}, stated={"length": 96})
    assert inferred.dimensions == {"seq": 96}


def test_a_series_under_the_name_of_a_text_has_numbers(write):
    path = write(
        """
        import torch
        from torch import nn
        from transformers import PretrainedConfig, PreTrainedModel

        class SeriesConfig(PretrainedConfig):
            model_type = "series_of_numbers"

            def __init__(self, hidden_size=32, **others):
                self.hidden_size = hidden_size
                super().__init__(**others)

        class Series(PreTrainedModel):
            config_class = SeriesConfig

            def __init__(self, config: SeriesConfig):
                super().__init__(config)
                self.embed = nn.Linear(1, config.hidden_size)
                self.head = nn.Linear(config.hidden_size, 1)
                self.post_init()

            def forward(self, input_ids: torch.FloatTensor = None, labels: torch.FloatTensor = None):
                smallest = torch.finfo(input_ids.dtype).min
                out = self.head(self.embed(input_ids.unsqueeze(-1))).clamp(min=smallest)
                return out if labels is None else (((out.squeeze(-1) - labels) ** 2).mean(), out)
        """
    )
    workload, _ = complete(find_workloads(str(path), path.parent).workloads[0], path.parent)
    assert [(spec.name, spec.dtype) for spec in workload.inputs] == [("input_ids", "float32"), ("labels", "float32")]


def test_a_checkpoint_without_memory_is_written_by_who_took_the_function_before(tmp_path, monkeypatch):
    module = pytest.importorskip("safetensors.torch")

    user = type(module)("user_of_safetensors")
    user.saves = module.save_file
    monkeypatch.setitem(sys.modules, user.__name__, user)
    replace_safetensors(module, monkeypatch.setattr)
    with simulated_device(device_named("a100-80gb")):
        user.saves({"weight": torch.zeros(2**20, 8, device="cuda")}, tmp_path / "w.safetensors")
        loaded = module.load_file(tmp_path / "w.safetensors")
    assert loaded["weight"].shape == (2**20, 8)
