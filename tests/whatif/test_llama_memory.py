"""A Llama of twelve layers: what checkpointing, letting go of the logits, and both together save, predicted and real."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from memlint.memory.liveness import origin
from memlint.whatif.changes import CheckpointModules, DropReference
from memlint.whatif.changes.drop_reference import dead_references
from memlint.workloads.discover import find_workloads
from tests import in_process

if TYPE_CHECKING:
    from memlint.commands.analyse.analysis import Analysis

ROOT = Path(__file__).parents[2]
MIB = 2**20
SOURCE = """\
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from fixtures.models.llama import Llama, LlamaConfig
from memlint.targets.declare import Declaration


class Checkpointed(Llama):
    def forward(self, tokens, targets):
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, cos, sin, use_reentrant=False)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def memlint_workload(batch):
    def step(model, inputs, optimizer):
        {forward}
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    tokens = torch.zeros(batch, 1024, dtype=torch.int64)
    config = LlamaConfig(vocab_size=32_000, num_layers=12, dim=768)
    return Declaration({model}(config), {{"tokens": tokens, "targets": tokens}}, step=step)
"""
KEEPS = "logits, loss = model(**inputs)"
DROPS = "loss = model(**inputs)[1]"
BLOCKS = CheckpointModules(tuple(f"blocks.{i}" for i in range(12)))


def analysed(folder: Path, forward: str, model: str) -> Analysis:
    file = folder / "model.py"
    file.write_text(SOURCE.format(forward=forward, model=model))
    (workload,) = find_workloads(str(file), folder, (), {"batch": 4}).workloads
    return in_process.analysed(workload, folder)


@pytest.fixture(scope="module", autouse=True)
def once_before() -> None:
    """The first checkpoint of a process imports much, and what that leaves behind keeps an input to the step's end."""
    checkpoint(torch.nn.Linear(2, 2), torch.zeros(1, 2), use_reentrant=False).sum().backward()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysed(tmp_path_factory.mktemp("plain"), KEEPS, "Llama")


@pytest.fixture(scope="module")
def drop(plain: Analysis) -> DropReference:
    dead = dead_references(plain.trace, plain.estimate.peak_node)
    assert {each.shape for each in dead} == {(4096, 32_000)}
    held = plain.holders([each.id for each in dead])
    assert {holder.variable for holder in held.values()} == {"logits"}
    return DropReference(tuple({origin(each) for each in dead}))


@pytest.mark.parametrize(
    ("checkpointed", "dropped", "saved"), [(True, False, 2546.6), (False, True, 500.0), (True, True, 3046.6)]
)
def test_what_it_would_take_is_what_it_takes(
    plain: Analysis, drop: DropReference, tmp_path: Path, checkpointed: bool, dropped: bool, saved: float
) -> None:
    changes = [BLOCKS] * checkpointed + [drop] * dropped
    predicted = plain.what_if(*changes)
    by_hand = analysed(tmp_path, DROPS if dropped else KEEPS, "Checkpointed" if checkpointed else "Llama")
    assert predicted is not None
    for measure in ("requested", "allocated", "reserved", "device"):
        assert getattr(predicted.estimate, measure) == getattr(by_hand.estimate, measure)
    assert predicted.peak_change == by_hand.estimate.requested.estimate - plain.estimate.requested.estimate
    assert -predicted.peak_change / MIB == pytest.approx(saved, abs=0.1)
    assert (predicted.recompute_flops > 0) == checkpointed


def test_a_question_is_simulated_once(plain: Analysis, drop: DropReference) -> None:
    first, number = plain.what_if(BLOCKS), plain.simulation.num_traces
    assert plain.what_if(BLOCKS) is first
    assert plain.retrace(BLOCKS) is first.estimate
    assert plain.what_if(BLOCKS, drop) is not None  # an edit of the trace that is there
    assert plain.simulation.num_traces == number
