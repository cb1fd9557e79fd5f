"""Training with accelerate, Lightning and DeepSpeed under `memlint run --ranks 8`: what each rank holds, by arithmetic.

All train the same eight layers, whose parameters are what their shapes say; the rest is what the pages of the libraries
say that a rank keeps whole and what it keeps an eighth of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.script.isolated import needs
from tests.script.running import run_text

if TYPE_CHECKING:
    from pathlib import Path

    from memlint.report.model import Workload

pytestmark = pytest.mark.slow

RANKS = 8
WIDTH = 1024
NUM = 8 * (WIDTH * WIDTH + WIDTH)
"""Parameters of the model."""

ACCELERATE = f"""
import sys, torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.utils.data import DataLoader, TensorDataset

version = int(sys.argv[1])
wrapping = dict(auto_wrap_policy="size_based_wrap", min_num_params=1000)
plugin = FullyShardedDataParallelPlugin(fsdp_version=version, **wrapping) if version else None
accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin)
model = torch.nn.Sequential(*[torch.nn.Linear({WIDTH}, {WIDTH}) for _ in range(8)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = DataLoader(TensorDataset(torch.randn(1024, {WIDTH})), batch_size=16)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for (x,) in data:
    loss = model(x).float().pow(2).mean()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.print(accelerator.gather(loss.detach()).mean().item())
"""

LIGHTNING = f"""
import sys, torch, lightning
from lightning.pytorch.strategies import FSDPStrategy
from torch.utils.data import DataLoader, TensorDataset

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(*[torch.nn.Linear({WIDTH}, {WIDTH}) for _ in range(8)])

    def training_step(self, batch, number):
        loss = self.net(batch[0]).float().pow(2).mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.trainer.model.parameters(), lr=1e-4)

strategy = FSDPStrategy(auto_wrap_policy={{torch.nn.Linear}}) if sys.argv[1] == "fsdp" else "ddp"
options = dict(precision="bf16-mixed", enable_progress_bar=False, logger=False)
trainer = lightning.Trainer(max_epochs=1, accelerator="gpu", devices=8, strategy=strategy, **options)
trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(1024, {WIDTH})), batch_size=16))
"""

DEEPSPEED = f"""
import sys, torch, deepspeed

zero = {{"stage": int(sys.argv[1])}} | {{name: {{"device": "cpu", "pin_memory": True}} for name in sys.argv[2:]}}
config = {{
    "train_micro_batch_size_per_gpu": 16,
    "bf16": {{"enabled": True}},
    "zero_optimization": zero,
    "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}},
}}
model = torch.nn.Sequential(*[torch.nn.Linear({WIDTH}, {WIDTH}) for _ in range(8)])
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(10):
    x = torch.randn(16, {WIDTH}, device=engine.device, dtype=torch.bfloat16)
    engine.backward(engine(x).float().pow(2).mean())
    engine.step()
"""
BUCKET = 500_000_000 * 2
"""Bytes of `reduce_bucket_size` elements, as DeepSpeed has it where nothing else is asked for."""


def ran(folder: Path, text: str, *arguments: str) -> Workload:
    checked = run_text(folder, text, *arguments, ranks=RANKS, gpu="h100-80gb")
    (workload,) = checked.report.workloads
    assert workload.error is None, checked.outputs
    assert workload.batch == 16
    assert workload.ranks is not None
    return workload


def held(workload: Workload) -> dict[str, int]:
    """Bytes at the peak, by category."""
    assert workload.estimate is not None
    return {str(name): nbytes for name, nbytes in workload.estimate.categories.items()}


def gathered(workload: Workload) -> int:
    assert workload.ranks is not None
    return sum(each.nbytes for each in workload.ranks.traffic if each.kind == "all_gather")


@pytest.mark.parametrize("library", [pytest.param(each, marks=needs(each)) for each in ("accelerate", "lightning")])
def test_ddp_holds_everything_on_every_rank(tmp_path: Path, library: str) -> None:
    text, argument = {"accelerate": (ACCELERATE, "0"), "lightning": (LIGHTNING, "ddp")}[library]
    workload = ran(tmp_path, text, argument)
    most = held(workload)
    assert (most["parameter"], most["gradient"], most["optimizer_state"]) == (4 * NUM, 4 * NUM, 8 * NUM)
    assert 4 * NUM <= most["communication"] <= 4 * NUM + 16  # buckets, and a value that is logged
    assert workload.ranks is not None
    assert sum(each.nbytes for each in workload.ranks.traffic if each.kind == "all_reduce") >= 4 * NUM


@pytest.mark.parametrize(
    ("library", "argument"),
    [
        pytest.param("accelerate", "2", marks=needs("accelerate")),
        pytest.param("lightning", "fsdp", marks=needs("lightning")),
    ],
)
def test_fsdp_holds_an_eighth_on_every_rank(tmp_path: Path, library: str, argument: str) -> None:
    workload = ran(tmp_path, {"accelerate": ACCELERATE, "lightning": LIGHTNING}[library], argument)
    most = held(workload)
    assert (most["parameter"], most["optimizer_state"]) == (4 * NUM // RANKS, 8 * NUM // RANKS)
    layer = 4 * NUM // 8
    assert most["communication"] <= 2 * layer  # at most two layers are whole at a time, in bfloat16
    assert gathered(workload) > 2 * NUM


@needs("accelerate")
def test_the_first_fsdp_under_accelerate_gathers_every_layer(tmp_path: Path) -> None:
    workload = ran(tmp_path, ACCELERATE, "1")
    assert 2 * 2 * NUM * 0.8 <= gathered(workload) <= 2 * 2 * NUM + 1024  # in bfloat16, in forward and in backward


@needs("deepspeed")
@pytest.mark.parametrize("stage", [1, 2])
def test_zero_1_and_2_hold_half_precision_whole_and_the_rest_as_shards(tmp_path: Path, stage: int) -> None:
    most = held(ran(tmp_path, DEEPSPEED, str(stage)))
    assert most["parameter"] == 2 * NUM + 4 * NUM // RANKS
    assert most["optimizer_state"] == 8 * NUM // RANKS
    assert most["temporary"] >= BUCKET


@needs("deepspeed")
@pytest.mark.parametrize("offloaded", [(), ("offload_optimizer",), ("offload_optimizer", "offload_param")])
def test_zero_3_holds_shards_of_all(tmp_path: Path, offloaded: tuple[str, ...]) -> None:
    workload = ran(tmp_path, DEEPSPEED, "3", *offloaded)
    most: dict[str, Any] = held(workload)
    in_half = 2 * NUM // RANKS
    master, states = (0, 0) if offloaded else (4 * NUM // RANKS, 8 * NUM // RANKS)
    assert most.get("optimizer_state", 0) == states
    if "offload_param" not in offloaded:
        assert most["parameter"] == pytest.approx(in_half + master, abs=16)
    assert most["communication"] >= 2 * NUM  # all layers are gathered: prefetching, and within max_live_parameters
    assert most["other"] + most.get("temporary", 0) >= BUCKET


@needs("deepspeed")
def test_deepspeed_without_a_launcher_is_the_only_rank(tmp_path: Path) -> None:
    alone, launched = (run_text(tmp_path, DEEPSPEED, "2", ranks=ranks, gpu="h100-80gb") for ranks in (None, 1))
    (workload,), (expected,) = alone.report.workloads, launched.report.workloads
    assert workload.error is None, alone.outputs
    assert held(workload) == held(expected)
