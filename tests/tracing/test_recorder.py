"""A Trace is complete, consistent and the same every time."""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks

from memlint.accelerator import state
from memlint.base import garbage
from memlint.memory.devices import device_named
from memlint.memory.records import Buffer, Category, Phase, Trace
from memlint.tracing.recorder import Recorded, trace_program
from tests.oracles.programs import PROGRAMS

A100 = device_named("a100-80gb")


class Training:
    """Two linear layers with BatchNorm between, cross-entropy and AdamW."""

    def setup(self) -> None:
        self.model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)).cuda()
        self.inputs = {"x": torch.rand(8, 16, device="cuda"), "y": torch.randint(10, (8,), device="cuda")}
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self) -> None:
        output = self.model(self.inputs["x"])
        loss = nn.functional.cross_entropy(output, self.inputs["y"])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return trace_program(Training(), A100)


@pytest.fixture
def trace(recorded: Recorded) -> Trace:
    return recorded.trace


def named(trace: Trace, name: str, category: Category) -> Buffer:
    found = [b for b in trace.buffers if b.name == name and b.category is category]
    assert found, (name, category, [(b.name, b.category) for b in trace.buffers if b.name])
    return found[-1]


def test_parameters_buffers_and_inputs_are_named(trace: Trace) -> None:
    assert named(trace, "0.weight", Category.PARAMETER).nbytes == 4 * 16 * 32
    assert named(trace, "1.running_mean", Category.BUFFER).nbytes == 128
    assert named(trace, "1.num_batches_tracked", Category.BUFFER).dtype == "int64"
    assert named(trace, "x", Category.INPUT).shape == (8, 16)
    on_gpu = set(trace.events)
    assert Counter(b.category for b in trace.buffers if b.id in on_gpu and b.died is None)[Category.PARAMETER] == 6


def test_gradients_are_named_after_their_parameter(trace: Trace) -> None:
    gradients = [b for b in trace.buffers if b.category is Category.GRADIENT]
    assert Counter(b.name for b in gradients) == dict.fromkeys(
        (
            n
            for n, _ in nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1), nn.ReLU(), nn.Linear(1, 1)).named_parameters()
        ),
        2,
    )
    assert all(b.phase is Phase.BACKWARD and b.died is not None for b in gradients)


def test_the_states_of_the_optimizer_are_named(trace: Trace) -> None:
    states = [b for b in trace.buffers if b.category is Category.OPTIMIZER_STATE]
    assert {b.name for b in states if "0.weight" in b.name} == {"exp_avg of 0.weight", "exp_avg_sq of 0.weight"} | (
        {"step of 0.weight"} & {b.name for b in states}
    )
    assert sum(b.nbytes for b in states if "exp_avg" in b.name) == 2 * sum(
        b.nbytes for b in trace.buffers if b.category is Category.PARAMETER and b.id in set(trace.events)
    )
    assert all(b.step == 0 and b.died is None for b in states)


def test_activations_are_what_the_backward_reads(trace: Trace) -> None:
    activations = {b.op for b in trace.buffers if b.category is Category.ACTIVATION}
    assert {"aten.addmm.default", "aten._log_softmax.default"} <= activations
    assert any("relu" in op for op in activations)
    assert all(b.phase is Phase.FORWARD for b in trace.buffers if b.category is Category.ACTIVATION)


def test_temporaries_of_the_optimizer_die_in_it(trace: Trace) -> None:
    temporaries = [b for b in trace.buffers if b.phase is Phase.OPTIMIZER and b.category is Category.TEMPORARY]
    assert temporaries
    assert all(b.died is not None for b in temporaries)


def test_workspaces_are_those_of_cublas(trace: Trace) -> None:
    workspaces = [b for b in trace.buffers if b.category is Category.WORKSPACE]
    assert [b.nbytes for b in workspaces if b.op == "cublas"] == [8_519_680] * 2
    assert all(b.died is None for b in workspaces if b.op == "cublas")


def check(trace: Trace) -> None:
    """Everything a reader of a Trace may rely on."""
    assert [n.index for n in trace.nodes] == list(range(len(trace.nodes)))
    assert [b.id for b in trace.buffers] == list(range(len(trace.buffers)))
    assert len(trace.events) == len(trace.event_nodes)
    assert list(trace.event_nodes) == sorted(trace.event_nodes)
    assert all(-1 <= n < len(trace.nodes) for n in trace.event_nodes)
    opened: set[int] = set()
    for position, event in enumerate(trace.events):
        buffer = trace.buffers[event if event >= 0 else ~event]
        if event >= 0:
            assert event not in opened
            opened.add(event)
            assert buffer.born == position
        else:
            assert ~event in opened
            assert buffer.died == position
    assert [n.event for n in trace.nodes] == sorted(n.event for n in trace.nodes)
    for buffer in trace.buffers:
        assert buffer.node <= buffer.last_used < len(trace.nodes)
        if buffer.id in opened:
            assert buffer.nbytes > 0 or buffer.category is Category.WORKSPACE  # whose size is in doubt
            assert buffer.died is None or buffer.died > buffer.born
            if buffer.died is not None:
                assert buffer.last_used <= trace.event_nodes[buffer.died]
        else:
            assert buffer.died is None
    for node in trace.nodes:
        for geometry in (*node.inputs, *node.outputs):
            assert -1 <= geometry.buffer < len(trace.buffers)
            assert len(geometry.shape) == len(geometry.stride) or geometry.buffer == -1
            if geometry.buffer in opened:
                buffer = trace.buffers[geometry.buffer]
                assert buffer.born <= (
                    trace.nodes[node.index + 1].event if node.index + 1 < len(trace.nodes) else len(trace.events)
                )
                assert buffer.died is None or buffer.died >= node.event


@pytest.mark.parametrize("name", ["gpt2-dropout", "bert", "resnet50", "lstm", "unet"])
def test_traces_of_models_are_consistent(name: str) -> None:
    check(trace_program(PROGRAMS[name](device="cuda"), A100).trace)


def test_the_trace_is_consistent(trace: Trace) -> None:
    check(trace)


def test_two_traces_of_one_program_are_equal(trace: Trace) -> None:
    again = trace_program(Training(), A100).trace
    for field in Trace.__dataclass_fields__:
        assert getattr(again, field) == getattr(trace, field), field


def test_steps_repeat_after_the_first(trace: Trace) -> None:
    longer = trace_program(Training(), A100, num_steps=4).trace
    ends = (*longer.step_nodes, len(longer.nodes))
    second, third, fourth = (
        [(n.op, n.phase, n.frame, n.module) for n in longer.nodes[a:b]] for a, b in itertools.pairwise(ends[1:])
    )
    assert second == third == fourth
    live = [
        sum(
            longer.buffers[e].nbytes if e >= 0 else -longer.buffers[~e].nbytes
            for e in longer.events[: longer.nodes[i].event]
        )
        for i in longer.step_nodes[1:]
    ]
    assert live[1:] == live[:-1]


def test_last_used_is_the_last_reader(trace: Trace) -> None:
    for buffer in trace.buffers:
        users = [n.index for n in trace.nodes if buffer.id in {g.buffer for g in (*n.inputs, *n.outputs)}]
        if users:
            assert buffer.last_used == max(*users, buffer.node)


def test_the_graph_has_a_node_for_every_kernel(recorded: Recorded) -> None:
    trace = recorded.trace
    nodes = [n for n in recorded.graph.nodes if n.op == "call_function"]
    assert [n.meta["memlint"] for n in nodes] == list(trace.nodes)
    assert [str(n.target) for n in nodes] == [n.op for n in trace.nodes]
    recorded.graph.lint()
    writer: dict[int, int] = {}
    for node, record in zip(nodes, trace.nodes, strict=True):
        expected = {writer[g.buffer] for g in record.inputs if g.buffer in writer}
        assert {a.meta["memlint"].index for a in node.args if "memlint" in a.meta} == expected
        writer |= {g.buffer: record.index for g in record.outputs if g.buffer >= 0}


class Failing(Training):
    def step(self) -> None:
        self.model(self.inputs["x"] @ self.inputs["x"])  # shapes do not fit


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No object is out of reach of the collector, as when Python starts."""
    monkeypatch.setattr(garbage._Frozen, "is_known", False)
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_the_process_is_clean_after_an_exception_of_the_program() -> None:
    call, before, assume, enabled = nn.Module.__call__, state.current, state.current.assume, gc.isenabled()
    hooks = len(_global_optimizer_pre_hooks)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        trace_program(Failing(), A100)
    assert nn.Module.__call__ is call
    assert state.current is before
    assert state.current.assume is assume
    assert not state.current.observers
    assert gc.isenabled() == enabled
    assert gc.get_freeze_count() == 0
    assert len(_global_optimizer_pre_hooks) == hooks
    check(trace_program(Training(), A100).trace)


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        trace_program(Training(), A100, num_steps=1)
        assert gc.isenabled() is enabled
        assert gc.get_freeze_count() == 0
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.usefixtures("thawed")
def test_what_the_owner_of_the_process_froze_stays_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    trace_program(Training(), A100, num_steps=1)
    assert gc.get_freeze_count() > before // 2 > 0  # some of them end all the same


def test_a_kernel_that_raises_inside_try_leaves_the_trace_whole() -> None:
    class Tries(Training):
        def step(self) -> None:
            with pytest.raises(RuntimeError):
                self.inputs["x"] @ self.inputs["x"]
            super().step()

    check(trace_program(Tries(), A100).trace)


class Cyclic(Training):
    """Leaves a tensor in a dictionary that refers to itself."""

    num_values = 1000

    def step(self) -> None:
        super().step()
        holder: dict[str, Any] = {"x": torch.rand(self.num_values, device="cuda")}
        holder["self"] = holder


def test_cycles_outlive_the_steps_as_python_seldom_looks_for_them() -> None:
    trace = trace_program(Cyclic(), A100).trace
    held = [b for b in trace.buffers if b.nbytes == 4000]
    assert [b.died is not None for b in held] == [False, False]
    assert not [each.text for each in trace.assumptions if "collector" in each.text]


def test_how_much_cycles_keep_is_said_where_it_is_much() -> None:
    class Large(Cyclic):
        num_values = 1 << 20

    trace = trace_program(Large(), A100).trace
    (text,) = [each.text for each in trace.assumptions if "collector" in each.text]
    assert text.startswith("8.00 MiB of the steps")
    check(trace)


class Remade:
    """A program that makes its model anew in every step."""

    def setup(self) -> None:
        self.make()

    def make(self) -> None:
        self.model = nn.Linear(64, 64, device="cuda")

    def step(self) -> None:
        self.model(torch.zeros(4, 64, device="cuda")).sum().backward()
        del self.model
        self.make()


def test_a_module_that_the_program_lets_go_of_dies() -> None:
    found = trace_program(Remade(), device_named("a100-80gb")).trace
    first, second, third = [b for b in found.buffers if b.shape == (64, 64) and b.frame and b.frame.function == "make"]
    assert first.died is not None
    assert second.died is not None
    assert first.died < second.born < second.died < third.born
    assert third.died is None


def test_programs_need_no_model() -> None:
    class Bare:
        def setup(self) -> None:
            self.x = torch.rand(4, device="cuda")

        def step(self) -> None:
            self.x = self.x + 1

    trace = trace_program(Bare(), A100).trace
    check(trace)
    assert trace.modules == ()
    assert {b.category for b in trace.buffers if b.step == 0} == {Category.TEMPORARY}


class FlatGradients:
    """Keeps all gradients in one tensor, as FSDP's reduction and DDP's buckets do."""

    def setup(self) -> None:
        self.model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        parameters = list(self.model.parameters())
        flat = torch.zeros(sum(each.numel() for each in parameters), device="cuda")
        for parameter, part in zip(parameters, flat.split([each.numel() for each in parameters]), strict=True):
            parameter.grad = part.view_as(parameter)

    def step(self) -> None:
        self.model(torch.zeros(4, 16, device="cuda")).sum().backward()
        self.optimizer.step()


def test_parameters_whose_gradients_share_one_buffer_all_have_a_gradient() -> None:
    trace = trace_program(FlatGradients(), A100).trace
    parameters = {b.id for b in trace.buffers if b.category is Category.PARAMETER}
    assert len([b for b in trace.buffers if b.category is Category.GRADIENT]) == 1
    assert len(parameters) == 4
    assert trace.trained == (parameters,)
    assert trace.with_gradient == parameters


def test_a_kernel_that_raised_is_named_so() -> None:
    class Catches:
        def setup(self) -> None:
            pass

        def step(self) -> None:
            with pytest.raises(RuntimeError):
                torch.zeros(3, 4, device="cuda") @ torch.zeros(3, 4, device="cuda")
            torch.zeros(3, 4, device="cuda") @ torch.zeros(4, 4, device="cuda")

    products = [node for node in trace_program(Catches(), A100, num_steps=1).trace.nodes if ".mm." in node.op]
    assert [(node.op, len(node.inputs)) for node in products] == [
        ("aten.mm.default (failed)", 0),
        ("aten.mm.default", 2),
    ]
