"""A Change of a program gives the Trace that the program changed by hand gives."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from memlint.cuda.versions import torch_version
from memlint.memory.devices import device_named
from memlint.memory.estimate import Estimate, estimate
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program
from memlint.whatif.change import ChangedProgram, NotApplicableError
from memlint.whatif.changes import ChannelsLast, CheckpointModules, OptimizerImplementation
from tests.oracles.programs import resnet50

if TYPE_CHECKING:
    from memlint.memory.records import Trace

A100 = device_named("a100-80gb")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x


class Training:
    def __init__(self, *, checkpointed: bool = False, make_optimizer: Any = torch.optim.AdamW, **options: Any) -> None:
        self.checkpointed, self.make_optimizer, self.options = checkpointed, make_optimizer, options

    def setup(self) -> None:
        self.model = Model(checkpointed=self.checkpointed).cuda()
        self.inputs = {"x": torch.rand(512, 64, device="cuda")}
        self.optimizer = self.make_optimizer(self.model.parameters(), lr=1e-3, **self.options)

    def step(self) -> None:
        output = self.model(self.inputs["x"])
        output.sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def traced(program: Any) -> Trace:
    return trace_program(program, A100).trace


def estimated(trace: Trace) -> Estimate:
    return estimate(Timeline.of(trace), A100, trace.nodes)


def kernels(trace: Trace) -> list[tuple[str, str]]:
    return [(n.op, n.phase.value) for n in trace.nodes]


def steps(trace: Trace) -> tuple[list[tuple[str, str]], list[int]]:
    """Kernels and events of the steps; the first optimizer may have made its states in the setup already."""
    first = trace.step_nodes[0]
    return kernels(trace)[first:], sizes(trace)[trace.nodes[first].event :]


def sizes(trace: Trace) -> list[int]:
    return [(1 if e >= 0 else -1) * trace.buffers[e if e >= 0 else ~e].nbytes for e in trace.events]


def test_checkpointed_modules_take_what_a_model_checkpointed_by_hand_takes() -> None:
    changed = traced(ChangedProgram(Training(), CheckpointModules(tuple(f"blocks.{i}" for i in range(4)))))
    by_hand = traced(Training(checkpointed=True))
    assert kernels(changed) == kernels(by_hand)
    assert sizes(changed) == sizes(by_hand)
    assert estimated(changed).requested == estimated(by_hand).requested
    assert estimated(changed).requested.estimate < estimated(traced(Training())).requested.estimate


def test_some_modules_may_be_checkpointed() -> None:
    peaks = [
        estimated(
            traced(ChangedProgram(Training(), CheckpointModules(tuple(f"blocks.{i}" for i in range(n)))))
        ).requested.estimate
        for n in (0, 2, 4)
    ]
    assert peaks[0] > peaks[1] > peaks[2]


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
def test_an_optimizer_implementation_takes_what_one_made_so_takes(options: dict[str, bool], make: Any) -> None:
    if make is torch.optim.Adagrad and "fused" in options and torch_version() < (2, 12):
        pytest.skip("PyTorch has no fused Adagrad for CUDA before 2.12")
    extra: dict[str, Any] = {"momentum": 0.9} if make is torch.optim.SGD else {}
    changed = traced(ChangedProgram(Training(make_optimizer=make, **extra), OptimizerImplementation(**options)))
    by_hand = traced(Training(make_optimizer=make, **extra, **options))
    assert steps(changed) == steps(by_hand)


def test_the_options_of_an_optimizer_are_kept() -> None:
    program = Training(weight_decay=0.3, betas=(0.5, 0.6), amsgrad=True)
    changed = ChangedProgram(program, OptimizerImplementation(foreach=False))
    traced(changed)
    (group,) = program.optimizer.param_groups
    assert (group["weight_decay"], group["betas"], group["amsgrad"], group["lr"], group["foreach"]) == (
        0.3,
        (0.5, 0.6),
        True,
        1e-3,
        False,
    )
    assert type(program.optimizer) is torch.optim.AdamW


def test_channels_last_leaves_the_bytes_of_every_tensor_as_they_are() -> None:
    plain, changed = traced(resnet50(device="cuda")), traced(ChangedProgram(resnet50(device="cuda"), ChannelsLast()))
    convolutions = [b for b in changed.buffers if b.op == "aten.convolution.default" and b.nbytes and len(b.shape) == 4]
    assert convolutions

    def outputs(trace: Trace) -> Counter[tuple[str, int]]:
        made = [
            g
            for n in trace.nodes
            for g in n.outputs
            if n.op.startswith(("aten.convolution", "aten.cudnn_batch_norm")) and len(g.shape) == 4
        ]
        return Counter(("x".join(map(str, g.shape)), trace.buffers[g.buffer].nbytes) for g in made)

    assert outputs(plain) == outputs(changed)
    strides = {
        g.stride[1]
        for n in changed.nodes
        for g in n.outputs
        if n.op == "aten.convolution.default" and len(g.shape) == 4 and g.shape[2] > 1
    }
    assert strides == {1}


@pytest.mark.parametrize(
    "change",
    [CheckpointModules(("blocks.9",)), CheckpointModules(("nowhere",)), OptimizerImplementation(fused=True)],
)
def test_what_a_program_has_not_cannot_be_changed(change: Any) -> None:
    program = Training(make_optimizer=torch.optim.Adamax)
    with pytest.raises(NotApplicableError):
        traced(ChangedProgram(program, change))
    traced(Training())  # and nothing of it remains


def test_programs_without_a_model_cannot_be_changed() -> None:
    class Bare:
        def setup(self) -> None:
            self.model = self.optimizer = None

        def step(self) -> None:
            torch.rand(3, device="cuda")

    for change in (CheckpointModules(("x",)), ChannelsLast(), OptimizerImplementation(foreach=False)):
        with pytest.raises(NotApplicableError):
            traced(ChangedProgram(Bare(), change))
