"""`memlint serve` as it is typed."""

from __future__ import annotations

import json

import pytest

from tests.integration import commands

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("copied_pythons")

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "dtype": "float16",
}


def test_a_config_json_is_planned_in_a_child(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    run = commands.memlint(tmp_path, "serve", "config.json", "--gpu", "t4", "--tp", "1", "--output-format", "json")
    assert run.returncode == 0, run.stderr
    served = json.loads(run.stdout)["served"][0]
    assert served["options"]["dtype"] == "float16"
    assert served["start"] == "starts"


def test_what_is_wrong_is_said_in_one_line_with_advice(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "dtype": "bfloat16"}))
    run = commands.memlint(tmp_path, "serve", "config.json", "--gpu", "t4", "--tp", "1")
    assert run.returncode == 2
    assert "does not compute in bfloat16" in run.stderr
    assert "--dtype float16" in run.stderr
