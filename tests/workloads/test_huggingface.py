from __future__ import annotations

import dataclasses
import json

import pytest

from memlint.base.errors import WorkloadError
from memlint.workloads.build.construct import build
from memlint.workloads.discover import build_program, complete, find_workloads
from tests.workloads.tables import read_workloads

pytest.importorskip("transformers")

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


def test_loading_by_name_from_the_hub_fails_instead_of_downloading(write):
    path = write(
        "from transformers import AutoModel\ndef make():\n    return AutoModel.from_pretrained('bert-base-uncased')\n"
    )
    (workload,) = find_workloads(f"{path}::make", path.parent).workloads
    with pytest.raises(WorkloadError, match="make cannot be built"):
        complete(workload)


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
