"""Checkpoints that keep dear outputs: what the cut expects, what another trace takes, and what a real step takes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import nn

from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.devices import device_named
from memlint.targets.workload import Workload
from memlint.tracing.recorder import trace_program
from memlint.whatif.change import ChangedProgram, Names
from memlint.whatif.changes import CheckpointModules, CheckpointSelectively
from memlint.whatif.changes.selective_checkpoint import KeptOutput
from memlint.whatif.changes.selective_recompute import cheaper_checkpoints
from memlint.whatif.plan import Planner
from memlint.whatif.repeated_blocks import Blocks, blocks_that_save, granularities
from memlint.whatif.simulation import Simulation
from tests.oracles.measure import measure_cpu_step
from tests.oracles.programs import PROGRAMS, TrainingProgram, image_inputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlint.memory.devices import Device
    from memlint.memory.records import Trace
    from memlint.whatif.change import Change

CPU, A100 = device_named("cpu"), device_named("a100-80gb")
GENERATOR_NBYTES = 5056
"""State of the host's random generator, which each checkpoint keeps; memlint does not count it."""
MODELS = ["gpt2-dropout", "llama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("vit", "swin", "bert"))]


class Pasted(TrainingProgram):
    """A program into which somebody has pasted the code of a plan."""

    def __init__(self, program: TrainingProgram, code: list[str]) -> None:
        super().__init__(program.make_model, program.make_inputs, program.loss, program.make_optimizer, program.device)
        self.code = code

    def setup(self) -> None:
        super().setup()
        exec("\n".join(self.code), {"model": self.model})


class Case(NamedTuple):
    """A program that nobody has changed, simulated."""

    make: Callable[[], TrainingProgram]
    simulation: Simulation
    blocks: Blocks
    names: Names

    @classmethod
    def of(cls, make: Callable[[], TrainingProgram], device: Device) -> Case:
        program, settings = make(), AllocatorSettings()
        trace = trace_program(program, device).trace

        def retrace(changes: tuple[Change, ...]) -> Trace:
            return trace_program(ChangedProgram(make(), *changes), device).trace

        simulation = Simulation(trace, device, settings, retrace)
        (blocks, *_) = granularities(blocks_that_save(trace, simulation.estimate.at_peak))
        return cls(make, simulation, blocks, Names(trace.modules, {}))

    def changes(self) -> list[tuple[Change, int, int]]:
        """What a plan may take in place of checkpoints of all blocks, with the bytes and FLOPs that the cut expects."""
        return [
            (CheckpointSelectively(each.paths, each.kept) if each.kept else CheckpointModules(each.paths), *each[2:])
            for each in cheaper_checkpoints(self.simulation.trace(), self.blocks)
        ]


def case(name: str, device: str) -> Case:
    make = PROGRAMS[name]
    return Case.of(partial(make, device="cpu" if device == "cpu" else "cuda"), CPU if device == "cpu" else A100)


def gradients(program: Any) -> list[torch.Tensor]:
    """The loss of one step, the gradients and what the model keeps of the step besides them."""
    torch.manual_seed(0)
    program.setup()
    _, loss = program.loss(program.model, program.inputs)
    loss.backward()
    return [
        loss,
        *(parameter.grad for parameter in program.model.parameters() if parameter.grad is not None),
        *program.model.buffers(),
    ]


def assert_equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> None:
    assert len(some) == len(others)
    assert all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("device", ["cpu", "a100"])
@pytest.mark.parametrize("name", MODELS)
def test_a_trace_repeats_the_operations_that_the_cut_expects(name: str, device: str) -> None:
    program = case(name, device)
    changes = program.changes()
    assert any(isinstance(change, CheckpointSelectively) for change, *_ in changes)
    for change, nbytes, flops in changes:
        answer = program.simulation.what_if(change)
        assert answer is not None
        assert answer.recompute_flops == flops
        assert 0 < -answer.peak_change <= 1.15 * nbytes  # less where the peak is elsewhere then
    saved, flops = [nbytes for _, nbytes, _ in changes], [flops for *_, flops in changes]
    assert (saved, flops) == (sorted(saved), sorted(flops))


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_with_fewer_operations_than_checkpointed_blocks_meets_the_same_limit(name: str) -> None:
    program = case(name, "cpu")
    whole = program.simulation.what_if(CheckpointModules(program.blocks.paths))
    assert whole is not None
    before = program.simulation.estimate.requested.estimate
    limit = whole.estimate.requested.estimate - whole.peak_change // 3
    workload = Workload("test", "test", batch=4, gpu="cpu")
    plan = Planner(workload, program.simulation, lambda *_: {}, limit, "requested", exact=True).plan()
    (planned,) = plan.steps
    (change,) = planned.changes
    assert plan.met
    assert isinstance(change, CheckpointSelectively)
    assert planned.recompute_flops < 0.8 * whole.recompute_flops
    assert planned.estimate.requested.estimate <= limit < before

    code = change.snippet(program.names)
    assert_equal(gradients(Pasted(program.make(), code)), gradients(program.make()))
    measured = measure_cpu_step(Pasted(program.make(), code)).peak_nbytes
    states = GENERATOR_NBYTES * len(change.paths)
    assert 0 <= measured - planned.estimate.requested.estimate <= states
    assert measured <= limit + states < measure_cpu_step(program.make()).peak_nbytes


def test_random_numbers_are_drawn_again_in_order_or_not_at_all() -> None:
    """A checkpoint sets the generator back once: what is drawn after a kept output would be other numbers."""
    draws = {"aten._scaled_dot_product_efficient_attention.default", "aten.native_dropout.default"}
    program = case("gpt2-dropout", "a100")
    kept = [
        {output.op for output in change.kept}
        for change, *_ in program.changes()
        if isinstance(change, CheckpointSelectively) and change.paths == program.blocks.paths
    ]
    assert kept
    assert all(not draws & ops or draws <= ops for ops in kept)


class Twice(TrainingProgram):
    """A program that adds the gradients of two forwards."""

    def step(self) -> None:
        self.loss(self.model, self.inputs)[1].backward()
        super().step()


def test_of_several_forwards_one_is_looked_at() -> None:
    def make() -> TrainingProgram:
        return Twice(plain.make_model, plain.make_inputs, plain.loss, device="cuda")

    plain = PROGRAMS["gpt2-dropout"](device="cuda")
    assert Case.of(make, A100).changes() == case("gpt2-dropout", "a100").changes()


class Norm(nn.Module):
    """A BatchNorm without a counter of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("variance", torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.batch_norm(x, self.mean, self.variance, training=True)


class Convolution(nn.Module):
    def __init__(self, make_norm: Callable[[], nn.Module], activation: nn.Module) -> None:
        super().__init__()
        self.inner, self.norm, self.outer = nn.Conv2d(16, 16, 3, padding=1), make_norm(), nn.Conv2d(16, 16, 1)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(self.activation(self.norm(self.inner(x))))


class Convolutions(nn.Module):
    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 10)
        self.blocks = nn.Sequential(*(Convolution(*parts) for _ in range(4)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


@pytest.mark.parametrize(
    ("make_norm", "activation", "is_possible"),
    [
        (Norm, nn.GELU(), True),
        (partial(nn.GroupNorm, 4, 16), nn.Hardswish(inplace=True), True),
        (Norm, nn.Hardswish(inplace=True), False),
        (partial(nn.BatchNorm2d, 16), nn.GELU(), False),
    ],
    ids=["statistics", "in-place", "statistics-in-place", "counter"],
)
def test_statistics_are_updated_once_and_what_is_written_in_place_is_not_kept(
    make_norm: Callable[[], nn.Module], activation: nn.Module, is_possible: bool
) -> None:
    def loss(model: nn.Module, inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logits = model(inputs["images"])
        return logits, nn.functional.cross_entropy(logits, inputs["labels"])

    program = Case.of(
        lambda: TrainingProgram(lambda: Convolutions(make_norm, activation), image_inputs(8, 32, 10), loss), CPU
    )
    plain = gradients(program.make())
    changes = [change for change, *_ in program.changes() if isinstance(change, CheckpointSelectively)]
    assert bool(changes) == is_possible
    for change in changes:
        assert (make_norm is Norm) == any("batch_norm" in kept.op for kept in change.kept)
        assert_equal(gradients(ChangedProgram(program.make(), change)), plain)


MODULES = [("", "Model"), *((f"blocks.{i}", "Block") for i in range(4)), ("head", "Linear")]


def test_a_list_says_it_where_all_calls_are_alike() -> None:
    kept = KeptOutput("aten.addmm.default", (), ("up", "experts.0.down", "experts.1.down"))
    lines = CheckpointSelectively(("blocks.0", "blocks.1", "blocks.2", "blocks.3"), (kept,)).snippet(Names(MODULES, {}))
    assert "    torch.ops.aten.addmm.default,  # up, experts.*.down" in lines
    assert "for module in [each for each in model.modules() if type(each).__name__ == 'Block']:" in lines


def test_a_function_says_it_where_weights_differ_and_paths_where_some_modules_are_left_out() -> None:
    shapes = tuple((width, 4 * width) for width in range(100, 2000, 100))
    kept = (KeptOutput("aten.addmm.default", shapes, ("up",)), KeptOutput("aten.bmm.default", (), ("attention",)))
    lines = CheckpointSelectively(("blocks.0", "blocks.2"), kept).snippet(Names(MODULES, {}))
    assert "for path in ['blocks.0', 'blocks.2']:" in lines
    assert max(map(len, lines)) <= 101
    policy: dict[str, Any] = {}
    exec("\n".join(lines[: lines.index("for path in ['blocks.0', 'blocks.2']:")]), policy)
    aten, up, down = torch.ops.aten, torch.empty(100, 400), torch.empty(400, 100)
    saved = [policy["kept"](None, aten.addmm.default, None, None, weight).name for weight in (up, down)]
    saved += [policy["kept"](None, op).name for op in (aten.bmm.default, aten.gelu.default)]
    assert saved == ["MUST_SAVE", "PREFER_RECOMPUTE", "MUST_SAVE", "PREFER_RECOMPUTE"]
