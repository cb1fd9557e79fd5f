"""Plans: each step simulated on top of those before it, and true when made by hand."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from memlint.config import Settings
from memlint.memory.estimate import CACHE_SPREAD
from memlint.worker.protocol import Request
from memlint.workloads.discover import find_workloads
from tests.in_process import analyse, analysed

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
SOURCE = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from memlint.targets.declare import Declaration
from tests.in_process import analyse, analysed


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(4096, 256)
        self.blocks = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(256, 4096, bias=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = {block}
        {loss}

    def of_chunk(self, x, targets):
        return nn.functional.cross_entropy(self.head(x), targets, reduction="sum")


def memlint_workload(batch):
    model = Model()
    {written}

    def step(model, inputs, optimizer):
        {forward}
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    tokens = torch.zeros(batch, 256, dtype=torch.int64)
    return Declaration(model, {{"tokens": tokens, "targets": tokens}}, step=step)
"""
PLAIN = {
    "written": "",
    "block": "block(x)",
    "forward": "logits, loss = model(**inputs)",
    "loss": """\
logits = self.head(x)
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())""",
}
BY_HAND = {
    "CheckpointModules": {"block": "checkpoint(block, x, use_reentrant=False)"},
    "every second": {"block": "checkpoint(block, x, use_reentrant=False) if block in self.blocks[::2] else block(x)"},
    "DropReference": {"forward": "loss = model(**inputs)[1]"},
    "ChunkedCrossEntropy": {
        "loss": """\
x, targets = x.flatten(0, -2), targets.flatten()
        chunks = zip(x.chunk(8), targets.chunk(8))
        losses = [checkpoint(self.of_chunk, h, t, use_reentrant=False) for h, t in chunks]
        return None, torch.stack(losses).sum() / (targets != -100).sum()"""
    },
    "FusedCrossEntropy": {  # which is found where Liger is installed
        "loss": """\
from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
        x, targets = x.flatten(0, -2), targets.flatten()
        loss = LigerFusedLinearCrossEntropyLoss(reduction="sum")(self.head.weight, x, targets)
        return None, loss / (targets != -100).sum()"""
    },
}


def planned(folder: Path, budget: int, source: str, *, dynamics: bool = False, batch: int = 16, **settings: Any) -> Any:
    file = folder / "model.py"
    file.write_text(source)
    chosen = Settings.model_validate(
        {"batch": batch, "budget": {"*": {"max": budget}}, "select": ["MEM010"], **settings}
    )
    request = Request(target=str(file), path=str(file), root=str(folder), settings=chosen)
    (workload,) = analyse(request, plan=True, allow_dynamics=dynamics).workloads
    assert workload.error is None
    return workload


def estimate(folder: Path, source: str, **overrides: Any) -> Any:
    file = folder / f"by_hand_{len(list(folder.iterdir()))}.py"  # a file is imported once
    file.write_text(source)
    (workload,) = find_workloads(str(file), folder, (), {"batch": 16, **overrides}).workloads
    return analysed(workload, folder).estimate


@pytest.fixture(scope="module")
def needed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return estimate(tmp_path_factory.mktemp("plain"), SOURCE.format(**PLAIN))


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The plan for a limit that nothing can meet."""
    return planned(tmp_path_factory.mktemp("best"), 1 * MIB, SOURCE.format(**PLAIN)).plan


def test_the_steps_made_by_hand_take_what_the_plan_says(needed: Any, tmp_path: Path) -> None:
    workload = planned(tmp_path, needed.device.high - 250 * MIB, SOURCE.format(**PLAIN))
    plan = workload.plan
    assert plan.met
    assert {change.kind for change in plan.changes} <= {*BY_HAND, "CheckpointSelectively"}
    edits = dict(PLAIN)
    for change in plan.changes:
        written = {"written": textwrap.indent("\n".join(change.snippet), "    ").strip()}
        edits |= (
            written if change.snippet else BY_HAND["every second" if "every second" in change.text else change.kind]
        )
        by_hand = estimate(tmp_path, SOURCE.format(**edits))
        # A scalar stands for the logits in the simulation of chunks.
        assert 0 <= change.peak.requested.estimate - by_hand.requested.estimate <= 4
        assert abs(change.peak.device.high - by_hand.device.high) <= CACHE_SPREAD * 512  # the scalar's block
    assert by_hand.device.high <= plan.limit


def test_a_variable_to_let_go_of_is_named_and_letting_go_of_it_is_enough(tmp_path: Path) -> None:
    makes = 'spare = torch.zeros(2**26, device=inputs["tokens"].device)\n        scale = spare.sum()\n        {rest}loss = model(**inputs)'
    parts = PLAIN | {"loss": "return x.mean()"}
    source = SOURCE.format(**parts | {"forward": makes.format(rest="")})
    now = estimate(tmp_path, source, gpu="cpu")  # without an allocator, which may not find a use for what is freed
    plan = planned(tmp_path, now.device.high - 200 * MIB, source, gpu="cpu").plan
    (change,) = plan.changes
    assert (change.kind, change.effect) == ("DropReference", "exact")
    assert change.text.startswith("let go of `spare`, the float32 [67108864]")
    by_hand = estimate(
        tmp_path, SOURCE.format(**parts | {"forward": makes.format(rest="del spare\n        ")}), gpu="cpu"
    )
    assert tuple(change.peak.requested.model_dump().values()) == by_hand.requested


def test_a_limit_that_holds_needs_no_change(needed: Any, tmp_path: Path) -> None:
    plan = planned(tmp_path, needed.device.high, SOURCE.format(**PLAIN)).plan
    assert plan.met
    assert not plan.changes
    assert plan.num_traces == 0


def test_one_change_is_enough_where_one_does(needed: Any, tmp_path: Path) -> None:
    plan = planned(tmp_path, needed.device.high - 40 * MIB, SOURCE.format(**PLAIN)).plan
    assert plan.met
    assert len(plan.changes) == 1


def test_a_limit_out_of_reach_ends_with_the_best_that_was_found(needed: Any, best: Any) -> None:
    assert not best.met
    peaks = [change.peak.device.estimate for change in best.changes]
    assert [needed.device.estimate, *peaks] == sorted([needed.device.estimate, *peaks], reverse=True)
    assert all(change.effect != "dynamics" for change in best.changes)


@pytest.mark.slow
def test_another_course_of_training_is_taken_only_if_allowed(best: Any, tmp_path: Path) -> None:
    allowed = planned(tmp_path, 1 * MIB, SOURCE.format(**PLAIN), dynamics=True).plan
    assert any(change.effect == "dynamics" for change in allowed.changes)
    assert allowed.changes[-1].peak.device.estimate < best.changes[-1].peak.device.estimate


def test_the_report_says_where_each_peak_is(needed: Any, best: Any) -> None:
    for change in best.changes:
        assert change.phase in {"forward", "backward", "optimizer"}
        assert change.op
        assert change.peak_change == change.peak.requested.estimate - needed.requested.estimate
