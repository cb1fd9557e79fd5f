"""Values of options that hold more than a word."""

import json
from pathlib import Path

import pytest

from memlint.base.errors import UsageError
from memlint.cli.options import configs_by_name


def stated(*texts: str) -> dict[str, object]:
    return {name: json.loads(text) for name, text in configs_by_name(None, None, texts)}  # type: ignore[arg-type]


def write(file: Path, values: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))


def test_a_folder_states_a_pipeline_and_each_of_its_parts(tmp_path: Path) -> None:
    write(tmp_path / "model_index.json", {"_class_name": "Pipeline"})
    write(tmp_path / "unet/config.json", {"width": 1})
    write(tmp_path / "scheduler/scheduler_config.json", {"steps": 2})
    write(tmp_path / "tokenizer/vocab.json", {"a": 0})
    assert stated(f"me/pipe={tmp_path}") == {
        "me/pipe/model_index": {"_class_name": "Pipeline"},
        "me/pipe/unet": {"width": 1},
        "me/pipe/scheduler": {"steps": 2},
    }


def test_a_file_states_what_is_named(tmp_path: Path) -> None:
    write(tmp_path / "config.json", {"width": 1})
    assert stated(f"a=b.pt={tmp_path}/config.json", f"me/model={tmp_path}") == {
        "a=b.pt": {"width": 1},
        "me/model": {"width": 1},
    }


@pytest.mark.parametrize("text", ["me/model=nowhere.json", "=config.json", "config.json", "me/model=list.json"])
def test_what_states_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    write(tmp_path / "config.json", {})
    write(tmp_path / "list.json", [])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        stated(text)
