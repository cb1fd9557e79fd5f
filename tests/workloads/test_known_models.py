"""Targets that are names of well-known models on the Hugging Face Hub."""

from pathlib import Path

import pytest

from memlint.base.errors import TargetError
from memlint.commands.targets import resolve
from memlint.session.target import Target
from memlint.targets.known_configs import KNOWN_CONFIGS, known_config
from memlint.targets.target import is_known_model, parse_target
from memlint.workloads import torchvision_schemas
from memlint.workloads.discover import find_workloads
from memlint.workloads.huggingface.configs import with_arguments

transformers = pytest.importorskip("transformers")


def test_a_name_stands_for_the_class_and_the_arguments_of_its_config():
    target = parse_target("meta-llama/Llama-3.2-1B-Instruct", Path.cwd())
    assert (target.module, target.qualname) == ("transformers", "LlamaConfig")
    assert target.arguments["hidden_size"] == 2048


def test_a_folder_with_a_copy_of_a_known_model_has_its_config():
    assert known_config("../pretrained_models/bert_base_uncased/") == known_config("bert-base-uncased")


def test_a_file_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "openai-community" / "gpt2").mkdir(parents=True)
    (tmp_path / "openai-community" / "gpt2" / "config.json").write_text('{"model_type": "gpt2", "n_layer": 1}')
    assert not is_known_model("openai-community/gpt2")
    assert parse_target("openai-community/gpt2", Path.cwd()).is_config


@pytest.mark.parametrize("text", ["me/mine", "gpt2", "a/b/gpt2", "models/gpt2.py"])
def test_what_is_neither_a_file_nor_a_known_model_does_not_exist(text):
    with pytest.raises(TargetError, match="does not exist"):
        resolve(text, {})


@pytest.mark.parametrize(
    ("overrides", "dtype"),
    [
        ({"mode": "inference"}, "bfloat16"),
        ({"mode": "generate"}, "bfloat16"),
        ({"mode": "generate", "dtype": "float32"}, "float32"),
        ({}, "float32"),  # what is trained has its weights in the precision that the user names
    ],
)
def test_without_training_the_weights_have_the_dtype_of_the_config(tmp_path, overrides, dtype):
    (tmp_path / "config.json").write_text('{"model_type": "llama", "torch_dtype": "bfloat16"}')
    for text in ("meta-llama/Llama-3.2-1B-Instruct", str(tmp_path / "config.json")):
        (workload,) = find_workloads(text, tmp_path, overrides=overrides).workloads
        assert workload.dtype == dtype
        assert any("the config's" in each.text for each in workload.found) == (dtype == "bfloat16")


def test_a_known_model_is_traced_by_its_name():
    request = resolve("openai-community/gpt2", {"mode": "inference", "batch": 1}).requests[0]
    capture = Target(request).trace(0)
    parameters = sum(buffer.nbytes for buffer in capture.trace.buffers if buffer.category == "parameter")
    assert parameters >= 4 * 124_439_808


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN_CONFIGS)
def test_every_known_config_can_be_typed(name):
    torchvision_schemas.install()
    kind, values = KNOWN_CONFIGS[name]
    assert with_arguments(getattr(transformers, kind), values).to_dict()
