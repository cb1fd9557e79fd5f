"""The call in the loop that trains a model decides what it is fed, and which methods a step calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memlint.memory.records import Frame
from memlint.targets.built import Asked, Built, BuiltInput, BuiltModel
from memlint.targets.script import Ending
from memlint.workloads.construction.construct import build, complete
from memlint.workloads.construction.recorded_arguments import dump_arguments
from memlint.workloads.discover import find_workloads
from tests.in_process import analysed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memlint.targets.workload import Workload

GPT = """
class Net(nn.Module):
    def __init__(self, vocabulary=300, width=32, block_size=24):
        super().__init__()
        self.block_size = block_size
        self.embedding = nn.Embedding(vocabulary, width)
        self.layer = nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, idx, targets=None, scale=None):
        h = self.layer(self.embedding(idx))
        h = h if scale is None else h * scale.unsqueeze(-1)
        if targets is None:
            return self.head(h[:, -1:]), None
        logits = self.head(h)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())
"""
TRAIN = """
import torch
from model import Net

def main():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for {batch} in loader:
        loss = {call}
        loss.backward()
        optimizer.step()

main()
"""


def trained(write: Callable[..., Path], model: str, batch: str, call: str) -> tuple[Workload, Path]:
    path = write(model)
    (path.parent / "train.py").write_text(TRAIN.format(batch=batch, call=call))
    (workload,) = find_workloads(str(path), path.parent).workloads
    return workload, path


@pytest.mark.parametrize(
    ("batch", "call", "names"),
    [
        ("x, y", "model(x, y)[1]", ["idx", "targets"]),
        ("x, y", "criterion(model(x)[0], y)", ["idx"]),
        ("x, y, w", "model(x, targets=y, scale=w.float())[1]", ["idx", "scale", "targets"]),
        ("batch", "model(**batch)[1]", ["idx", "targets"]),
    ],
)
def test_optional_inputs_are_those_that_the_loop_feeds(
    write: Callable[..., Path], batch: str, call: str, names: list[str]
) -> None:
    workload, path = trained(write, GPT, batch, call)
    inputs = complete(workload, path.parent)[0].inputs
    assert inputs is not None
    assert [each.name for each in inputs] == names


TRANSLATOR = """
class Side(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(200, width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x, memory, mask):
        x = self.embedding(x)
        memory = x if memory is None else memory
        scores = (x @ memory.transpose(1, 2)).unsqueeze(1).masked_fill(mask == 0, -1e9)
        return scores.softmax(-1)[:, 0] @ memory

class Net(nn.Module):
    def __init__(self, width=32, seq_len=40):
        super().__init__()
        self.seq_len = seq_len
        self.source, self.target = Side(width), Side(width)
        self.projection = nn.Linear(width, 200)

    def encode(self, src, mask):
        return self.source(src, None, mask)

    def decode(self, memory, mask, tgt):
        return self.projection(self.target(tgt, memory, mask))
{forward}
"""
FORWARD = """
    def forward(self, src, src_mask, tgt):
        return self.decode(self.encode(src, src_mask), src_mask, tgt)
"""
STEPS = "criterion(model.decode(model.encode(src, src_mask), src_mask, tgt), label)"


def test_a_step_of_a_model_without_forward_calls_the_methods_that_the_loop_calls(write: Callable[..., Path]) -> None:
    peaks = []
    for forward, call in (("", STEPS), (FORWARD, "criterion(model(src, src_mask, tgt), label)")):
        workload, path = trained(write, TRANSLATOR.format(forward=forward), "src, src_mask, tgt, label", call)
        done = complete(workload, path.parent)[0]
        assert [(each.name, each.shape) for each in done.inputs or ()] == [
            ("src", ("batch", 40)),
            ("src_mask", ("batch", 1, 1, 40)),
            ("tgt", ("batch", 40)),
        ]
        peaks.append(analysed(workload, path.parent).estimate.requested)
        texts = [each.text for each in build(workload, path.parent).assumptions]
        assert ("a step calls decode, encode" in texts) is (not forward)
        path.unlink()
    assert peaks[0] == peaks[1]


def test_a_call_that_only_initializes_does_not_stand_for_the_loops(write: Callable[..., Path]) -> None:
    workload, path = trained(write, GPT, "x, y", "model(x, y)[1]")
    fields: dict[str, Any] = {"module": "model", "qualname": "Net", "path": str(path), "num_parameters": 9}
    fields |= {"arguments": dump_arguments((), {}), "shown": "Net()", "inputs": (BuiltInput("idx", (1, 16), "int64"),)}
    fields |= {"is_called": True, "has_optimizer": True, "fed": workload.fed}
    assert workload.fed is not None
    here = workload.fed.path
    for line, names in ((workload.fed.line, ["idx"]), (workload.fed.line - 2, ["idx", "targets"])):
        model = BuiltModel(**fields, called_at=Frame(here, line, "main"))
        told = Asked(Built("train.py", Ending("no data"), (model,)), "train.py")
        (built,) = find_workloads(str(path), path.parent, asked=told).workloads
        inputs = complete(built, path.parent)[0].inputs
        assert inputs is not None
        assert [each.name for each in inputs] == names
        assert {each.shape for each in inputs} <= {("batch", 16), ("batch", "seq")}
