"""The shell completes targets, GPUs, dtypes and rules."""

import pytest
from click.shell_completion import BashComplete, ZshComplete

from memlint import cli
from memlint.base.units import DTYPES
from memlint.memory.devices import CATALOGUE


@pytest.fixture
def completed(tmp_path, monkeypatch):
    """The words that a shell is offered for the last one of a command line."""
    (tmp_path / "model.py").write_text("class Net: ...\nclass Norm: ...\ndef build(): ...\nsize = 3\n")
    monkeypatch.chdir(tmp_path)

    def completed(*words: str, shell: type = ZshComplete) -> list[str]:
        shown = shell(cli.main, {}, "memlint", "_MEMLINT_COMPLETE")
        return [item.value for item in shown.get_completions(list(words[:-1]), words[-1])]

    return completed


def test_behind_a_file_its_classes_and_functions_are_completed(completed):
    assert completed("check", "model.py::N") == ["model.py::Net", "model.py::Norm"]
    assert completed("sweep", "other.py", "model.py::") == ["model.py::Net", "model.py::Norm", "model.py::build"]
    assert completed("check", "absent.py::N") == []


def test_bash_takes_the_colons_for_a_word_of_their_own(completed):
    assert completed("check", "model.py", "::", "N", shell=BashComplete) == ["Net", "Norm"]
    assert completed("check", "model.py", "::", shell=BashComplete) == ["::Net", "::Norm", "::build"]


def test_files_are_left_to_the_shell(completed):
    shown = ZshComplete(cli.main, {}, "memlint", "_MEMLINT_COMPLETE").get_completions(["check"], "mod")
    assert [(item.value, item.type) for item in shown] == [("mod", "file")]


def test_gpus_are_completed_by_their_names_and_titles_are_shown(completed):
    assert completed("check", "model.py", "--gpu", "h100")
    assert set(completed("check", "--gpu", "")) == set(CATALOGUE)
    shown = ZshComplete(cli.main, {}, "memlint", "_MEMLINT_COMPLETE").get_completions(["run", "--gpu"], "t4")
    assert [item.help for item in shown] == [CATALOGUE["t4"].title]


def test_of_several_by_comma_the_last_is_completed_once(completed):
    assert completed("fit", "model.py", "--gpu", "a100-80gb,a100") == ["a100-80gb,a100-40gb"]
    assert completed("sweep", "model.py", "--dtype", "bfloat16,bf") == ["bfloat16,bf16-amp"]
    assert completed("check", "--dtype", "bfloat16,bf") == [], "check takes one"


def test_dtypes_and_rules_are_completed(completed):
    assert set(completed("check", "--dtype", "")) == set(DTYPES)
    assert "MEM101" in completed("check", "--select", "mem10")
    assert all(code.startswith("MEM301,MEM4") for code in completed("check", "--ignore", "MEM301,MEM4"))
    assert "MEM107" in completed("rule", "MEM1")


def test_serve_completes_the_dtypes_of_engines(completed):
    assert completed("serve", "--dtype", "") == ["bfloat16", "float16", "float32"]
    assert completed("serve", "--kv-cache-dtype", "fp8_") == ["fp8_e4m3", "fp8_e5m2"]


@pytest.mark.parametrize(
    "command", ["check", "explain", "run", "report", "diff", "rules", "serve", "sweep", "validate"]
)
def test_gpus_are_completed_wherever_one_is_named(completed, command):
    if completed(command, "--gpu"):
        assert "h100" in " ".join(completed(command, "--gpu", "h100"))


@pytest.mark.parametrize(
    "command", ["check", "explain", "run", "report", "diff", "rules", "serve", "sweep", "fit", "validate"]
)
def test_the_format_has_the_same_two_names_everywhere(completed, command):
    for option in ("--format", "--output-format"):
        assert option in completed(command, option)
        assert {"text", "json"} <= set(completed(command, option, ""))
