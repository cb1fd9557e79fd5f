"""torchtitan's own trainer under `memlint run --ranks 8`: what `torchrun -m torchtitan.train` does with its debug model.

Its tokenizer and its data are made here. What a rank holds follows from the 6,163,712 parameters of that model.
"""

from __future__ import annotations

import contextlib
import json
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import pytest

from tests.script.isolated import needs
from tests.script.running import run_text

if TYPE_CHECKING:
    from pathlib import Path

    from memlint.report.model import Workload

pytestmark = [pytest.mark.slow, needs("torchtitan", "tokenizers", "datasets", "torchdata")]
try:
    IS_TOML = version("torchtitan").startswith("0.2.")
except PackageNotFoundError:
    IS_TOML = False
"""Whether it is configured by a file, as in 0.2, or by a function that is named, as in 0.3."""

SCRIPT = """
import runpy
import torch.distributed as dist

if not hasattr(dist, "set_timeout"):  # torchtitan 0.3 calls what PyTorch has after 2.13
    dist.set_timeout = lambda *_, **__: None
runpy.run_module("torchtitan.train", run_name="__main__")
"""
CONFIG = """
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "./tests/assets/tokenizer"
[training]
local_batch_size = 8
seq_len = 2048
steps = 10
dataset = "c4_test"
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""
NUM = 6_163_712
"""Parameters."""
VARLEN = ("--module", "llama3", "--config", "llama3_debugmodel_varlen_attn", "--checkpoint.no-enable")
RANKS = 8


def write_assets(folder: Path) -> None:
    """A tokenizer with the words of the data."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "<|begin_of_text|>", "<|end_of_text|>", *(f"w{number}" for number in range(100))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    assets = folder / "tests/assets"
    (assets / "tokenizer").mkdir(parents=True)
    (assets / "c4_test").mkdir()
    tokenizer.save(str(assets / "tokenizer/tokenizer.json"))
    names = {"bos_token": words[1], "eos_token": words[2]}
    (assets / "tokenizer/tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    line = json.dumps({"text": " ".join(words[3:] * 10)}) + "\n"
    (assets / "c4_test/data.json").write_text(line * 500, encoding="utf-8")


def trained(folder: Path, *options: str, rank: int = 0) -> Workload:
    write_assets(folder)
    (folder / "debug.toml").write_text(CONFIG, encoding="utf-8")
    arguments = ["--job.config_file", "debug.toml"] if IS_TOML else [*VARLEN, "--training.steps", "3"]
    if not IS_TOML:
        options = ("--parallelism.spmd_backend", "partial_dtensor", *options)
    # 0.3 takes FlashAttention 3 on Hopper, which is installed apart from PyTorch
    with contextlib.chdir(folder):
        checked = run_text(folder, SCRIPT, *arguments, *options, ranks=RANKS, rank=rank, gpu="a100-80gb")
    (workload,) = checked.report.workloads
    assert workload.error is None, checked.outputs
    assert workload.ranks is not None
    return workload


def held(workload: Workload) -> dict[str, int]:
    """Bytes at the peak, by category."""
    assert workload.estimate is not None
    return {str(name): nbytes for name, nbytes in workload.estimate.categories.items()}


def calls(workload: Workload) -> dict[str, int]:
    assert workload.ranks is not None
    return {each.kind: each.calls for each in workload.ranks.traffic}


def test_fsdp2(tmp_path: Path) -> None:
    workload = trained(tmp_path)
    most = held(workload)
    assert most["parameter"] == 4 * NUM // RANKS
    assert 8 * NUM // RANKS <= most["optimizer_state"] <= 8 * NUM // RANKS + 4096  # and the counters of steps
    assert workload.batch == 8
    assert calls(workload)["reduce_scatter"] >= 6  # each of six blocks


def test_fsdp2_with_tensor_parallel(tmp_path: Path) -> None:
    alone = trained(tmp_path / "alone")
    parallel = trained(tmp_path / "parallel", "--parallelism.tensor_parallel_degree", "2")
    assert 4 * NUM // RANKS <= held(parallel)["parameter"] <= 4 * NUM // RANKS * 1.01  # norms are whole among the two
    assert held(parallel)["activation"] < 0.75 * held(alone)["activation"]
    assert parallel.ranks is not None
    assert {each.ranks for each in parallel.ranks.traffic} >= {2, RANKS // 2}


@pytest.mark.skipif(not IS_TOML, reason="0.3 hands on microbatches as no released PyTorch takes them")
@pytest.mark.parametrize("rank", [0, 4])
def test_fsdp2_with_pipeline_parallel(tmp_path: Path, rank: int) -> None:
    workload = trained(tmp_path, "--parallelism.pipeline_parallel_degree", "2", rank=rank)
    assert calls(workload)["send"] == calls(workload)["recv"] == 8
    assert calls(workload)["reduce_scatter"] >= 3
    assert held(workload)["parameter"] == pytest.approx(4 * NUM // RANKS, rel=0.02)
