"""Suites as files: what they say, and that the committed one covers what changes memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from memlint.base.errors import MemlintError, UsageError
from memlint.validate.suite import Entry, read_suite

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def suite() -> tuple[Entry, ...]:
    return read_suite(ROOT / "fixtures" / "suite.toml", ROOT)


def write(folder: Path, text: str) -> Path:
    (folder / "net.py").write_text("")
    file = folder / "suite.toml"
    file.write_text(text)
    return file


def test_an_entry_is_a_workload_with_its_family_and_conditions(tmp_path: Path) -> None:
    text = """
[[workload]]
name = "a"
family = "cnn"
holdout = true
cpu = true
target = "net.py::Net"
batch = 3
arguments = { depth = [1, 2] }
matmul-precision = "high"
allocator = "expandable_segments:True"
"""
    folder = tmp_path / "fixtures"
    folder.mkdir()
    (entry,) = read_suite(write(folder, text), tmp_path)
    assert entry.cpu
    assert not entry.history
    subject = entry.subject
    assert (subject.name, subject.family, subject.holdout) == ("a", "cnn", True)
    assert subject.table["target"] == "fixtures/net.py::Net"
    assert subject.conditions.matmul_precision == "high"
    assert subject.allocator == "expandable_segments:True"
    workload = subject.workload(tmp_path, "h200")
    assert (workload.path, workload.batch, workload.gpu) == (str(folder / "net.py"), 3, "h200")
    assert workload.arguments == {"depth": [1, 2]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no workloads"),
        ("[[workload]\n", "cannot be read"),
        ('[[workload]]\ntarget = "net.py::Net"\n', "has no name"),
        ('[[workload]]\nname = "a"\ntarget = "net.py::Net"\nbatchsize = 3\n', "unknown key batchsize"),
        ('[[workload]]\nname = "a"\ntarget = "gone.py::Net"\n', "gone.py does not exist"),
        ('[[workload]]\nname = "a"\ntarget = "net.py::Net"\nmatmul-precision = "low"\n', "matmul_precision"),
        ('[[workload]]\nname = "a"\ntarget = "net.py::Net"\n' * 2, "two workloads are named a"),
    ],
)
def test_a_suite_that_makes_no_sense_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(MemlintError, match=message):
        read_suite(write(tmp_path, text), tmp_path)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_suite(tmp_path / "gone.toml", tmp_path)


def test_the_suite_has_at_least_80_workloads_for_a_gpu_and_40_for_the_host(suite: tuple[Entry, ...]) -> None:
    assert sum(not entry.cpu for entry in suite) >= 80
    assert sum(entry.cpu for entry in suite) >= 40


def test_the_suite_covers_what_changes_memory(suite: tuple[Entry, ...]) -> None:
    on_gpu = [entry.subject for entry in suite if not entry.cpu]
    tables = [subject.table for subject in on_gpu]
    assert {table["dtype"] for table in tables} == {"float32", "bfloat16", "float16", "bf16-amp", "fp16-amp"}
    assert {table["mode"] for table in tables} == {"train", "inference", "generate"}
    optimizers = {str(table["optimizer"]).rpartition("::")[2] for table in tables}
    assert {"sgd", "adam", "adamw", "adafactor", "adamw_loop", "adamw_foreach", "adamw_fused"} <= optimizers
    assert any(subject.conditions.matmul_precision == "high" for subject in on_gpu)
    assert {subject.allocator.partition(":")[0] for subject in on_gpu} >= {
        "expandable_segments", "max_split_size_mb", "roundup_power2_divisions",
    }  # fmt: skip
    arguments = Counter(key for table in tables for key in table.get("arguments", {}))  # type: ignore[union-attr]
    assert {"last", "checkpoint", "parts", "clip", "lora", "trained", "dropout", "length", "num_kv_heads"} <= set(
        arguments
    )
    assert any(int(table["batch"]) % 2 for table in tables)  # type: ignore[arg-type]
    assert sum(table.get("compile") == "on" for table in tables) >= 20
    assert sum(subject.conditions.cudnn_benchmark for subject in on_gpu) >= 5
    assert sum(entry.history for entry in suite) == 17


def test_the_suite_covers_every_kind_of_model(suite: tuple[Entry, ...]) -> None:
    families = {entry.subject.family for entry in suite if not entry.cpu}
    assert families >= {
        "resnet", "convnext", "efficientnet", "vgg", "unet", "deeplab", "densenet", "gpt", "llama", "bert", "t5", "vit",
        "swin", "whisper", "clip", "moe", "rnn", "gcn", "diffusion", "recommender", "generation", "torchvision",
        "transformers",
    }  # fmt: skip


@pytest.mark.parametrize("cpu", [True, False])
def test_half_of_each_device_s_suite_is_held_out(suite: tuple[Entry, ...], cpu: bool) -> None:
    mine = [entry.subject.holdout for entry in suite if entry.cpu is cpu]
    assert sum(mine) == len(mine) // 2


def test_each_family_comes_once_before_any_comes_again_in_detail(suite: tuple[Entry, ...]) -> None:
    first = [entry.subject.family for entry in suite][:22]
    assert len(set(first)) == len(first)
