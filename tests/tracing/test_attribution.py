"""Where each kernel and Buffer belongs: phase, source line, module."""

from __future__ import annotations

import functools
import inspect
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from memlint.memory.devices import device_named
from memlint.memory.records import Node, Phase, Trace
from memlint.tracing.recorder import trace_program

if TYPE_CHECKING:
    from collections.abc import Callable

LINES = Path(__file__).read_text().splitlines()


def line_of(mark: str) -> int:
    """The line of this file that ends in a comment `# at MARK`."""
    (found,) = [i for i, text in enumerate(LINES, 1) if text.endswith(f"# at {mark}")]
    return found


class Steps:
    """A program whose step is `step`; its model, if any, is made by `make_model`."""

    def __init__(
        self, step: Callable[[Any], object], make_model: Callable[[], nn.Module] | None = None, optimizer: Any = None
    ) -> None:
        self.run, self.make_model, self.make_optimizer = step, make_model, optimizer

    def setup(self) -> None:
        self.x = torch.rand(4, 8, device="cuda", requires_grad=True)
        if self.make_model is not None:
            self.model = self.make_model().cuda()
        if self.make_optimizer is not None:
            self.optimizer = self.make_optimizer(self.model.parameters())

    def step(self) -> None:
        self.run(self)


def trace(step: Callable[[Any], object], make_model: Any = None, optimizer: Any = None, **options: Any) -> Trace:
    return trace_program(Steps(step, make_model, optimizer), device_named("a100-80gb"), **options).trace


def lines(found: Trace, op: str, phase: Phase) -> set[int]:
    return {
        n.frame.line for n in found.nodes if n.op.startswith(f"aten.{op}.") and n.phase is phase and n.frame is not None
    }


def test_forward_kernels_carry_their_line() -> None:
    def step(program: Any) -> None:
        y = program.x.exp()  # at exp
        z = [t.sin() for t in (y,)]  # at comprehension
        (lambda t: t.cos())(z[0])  # at lambda

    found = trace(step)
    assert lines(found, "exp", Phase.FORWARD) == {line_of("exp")}
    assert lines(found, "sin", Phase.FORWARD) == {line_of("comprehension")}
    assert lines(found, "cos", Phase.FORWARD) == {line_of("lambda")}
    assert {n.frame.path for n in found.nodes if n.frame is not None} == {__file__}
    names = {n.op.split(".")[1]: n.frame.function for n in found.nodes if n.frame is not None}
    assert names["exp"] == "step"
    assert names["cos"] == "<lambda>"


def test_the_backward_of_what_is_changed_in_place_has_its_line() -> None:
    def step(program: Any) -> None:
        y = program.x * 2
        y = y[:, 1:].flatten()
        z = y.pow_(3).sum()  # at pow in place
        z.backward()

    assert lines(trace(step), "pow", Phase.BACKWARD) == {line_of("pow in place")}


def test_the_backward_of_views_has_the_line_on_which_kernels_run_before_and_after() -> None:
    def step(program: Any) -> None:
        y = (program.x * 2)[:, 1:] * 3  # at a slice
        y.sum().backward()

    assert lines(trace(step), "zero_", Phase.BACKWARD) == {line_of("a slice")}


def test_the_backward_of_a_view_on_a_line_of_its_own_has_that_line() -> None:
    def step(program: Any) -> None:
        y = program.x * 2
        y = y[:, 1:]  # at a slice alone
        y.sum().backward()

    assert lines(trace(step), "zero_", Phase.BACKWARD) == {line_of("a slice alone")}


def test_code_inside_pytorch_belongs_to_the_line_that_calls_it() -> None:
    def step(program: Any) -> None:
        F.normalize(program.x)  # at normalize
        nn.utils.clip_grad_norm_([program.x], 1.0) if program.x.grad is not None else None
        torch.optim.SGD([program.x], 0.1).zero_grad()

    found = trace(step)
    assert lines(found, "clamp_min", Phase.FORWARD) == {line_of("normalize")}


def test_backward_kernels_carry_the_line_of_their_forward() -> None:
    def step(program: Any) -> None:
        y = program.x.sigmoid()  # at sigmoid
        z = y.tanh()  # at tanh
        loss = (z * z).sum()  # at product
        loss.backward()

    found = trace(step)
    assert lines(found, "tanh_backward", Phase.BACKWARD) == {line_of("tanh")}
    assert lines(found, "sigmoid_backward", Phase.BACKWARD) == {line_of("sigmoid")}
    assert lines(found, "mul", Phase.BACKWARD) == {line_of("product")}


def test_backward_kernels_carry_the_module_of_their_forward() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 2)))

    def step(program: Any) -> None:
        program.model(program.x).sum().backward()

    found = trace(step, make)
    modules = {(n.op, n.phase, n.module) for n in found.nodes}
    assert ("aten.tanh.default", Phase.FORWARD, "1.0") in modules
    assert ("aten.tanh_backward.default", Phase.BACKWARD, "1.0") in modules
    assert {m for op, phase, m in modules if op == "aten.mm.default" and phase is Phase.BACKWARD} == {"0", "1.1"}
    assert {m for op, phase, m in modules if op == "aten.addmm.default"} == {"0", "1.1"}
    assert dict(found.modules) == {"": "Sequential", "0": "Linear", "1": "Sequential", "1.0": "Tanh", "1.1": "Linear"}


def test_setup_is_no_step() -> None:
    found = trace(lambda program: program.x.exp(), lambda: nn.Linear(8, 8))
    assert {n.phase for n in found.nodes if n.step < 0} == {Phase.OTHER}
    assert [n.step for n in found.nodes] == sorted(n.step for n in found.nodes)
    assert [found.nodes[i].step for i in found.step_nodes] == [0, 1]
    assert found.num_steps == 2


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_carries_the_line_that_is_recomputed(reentrant: bool) -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        y = x.sigmoid()  # at recomputed
        return y.tanh()  # at last

    def step(program: Any) -> None:
        checkpoint(block, program.x, use_reentrant=reentrant).sum().backward()

    found = trace(step, num_steps=1)
    assert lines(found, "sigmoid", Phase.FORWARD) == {line_of("recomputed")}
    assert lines(found, "sigmoid", Phase.BACKWARD) == {line_of("recomputed")}
    assert lines(found, "sigmoid_backward", Phase.BACKWARD) == {line_of("recomputed")}
    assert lines(found, "tanh_backward", Phase.BACKWARD) == {line_of("last")}


def test_optimizer_kernels_carry_the_line_of_the_step() -> None:
    def step(program: Any) -> None:
        program.model(program.x).sum().backward()
        program.optimizer.step()  # at step
        program.optimizer.zero_grad()

    found = trace(step, lambda: nn.Linear(8, 8), torch.optim.AdamW)
    optimizing = [n for n in found.nodes if n.phase is Phase.OPTIMIZER]
    assert optimizing
    assert {n.frame.line for n in optimizing if n.frame is not None} == {line_of("step")}
    assert all(n.frame is not None for n in optimizing)
    phases = [n.phase for n in found.nodes if n.step == 1]
    order = [p for i, p in enumerate(phases) if i == 0 or phases[i - 1] is not p]
    assert order == [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]


def test_an_optimizer_that_clips_inside_its_step_is_the_optimizer_still() -> None:
    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad.mul_(0.5)  # at own
            return super().step(closure)

    def step(program: Any) -> None:
        program.model(program.x).sum().backward()
        program.optimizer.step()

    found = trace(step, lambda: nn.Linear(8, 8), lambda p: Own(p, 0.1))
    assert lines(found, "mul_", Phase.OPTIMIZER) == {line_of("own")}


def test_code_of_installed_packages_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = Path(sysconfig.get_path("purelib")) / "some_package" / "layer.py"
    scope: dict[str, Any] = {}
    exec(compile("def forward(x):\n    return x.exp()\n", str(installed), "exec"), scope)
    found = trace(lambda program: scope["forward"](program.x))
    (node, _) = [n for n in found.nodes if n.op == "aten.exp.default"]
    assert node.frame is not None
    assert (node.frame.path, node.frame.line, node.frame.function) == (str(installed), 2, "forward")


def installed(source: str) -> dict[str, Any]:
    """What a module of an installed package with this source defines."""
    scope: dict[str, Any] = {}
    exec(compile(source, str(Path(sysconfig.get_path("purelib")) / "some_package" / "layer.py"), "exec"), scope)
    return scope


def test_lines_of_installed_packages_know_the_line_of_the_project_that_led_to_them() -> None:
    package = installed("def outer(x):\n    return inner(x)\ndef inner(x):\n    return x.exp()\n")

    def step(program: Any) -> None:
        y = package["outer"](program.x)  # at first call
        z = package["inner"](y.neg())  # at second call
        z.sum().backward()

    found = trace(step, num_steps=1)
    for op, phases in (("exp", [Phase.FORWARD]), ("mul", [Phase.BACKWARD])):
        frames = [n.frame for n in found.nodes if n.op.split(".")[1] == op and n.phase in phases]
        assert {frame.line for frame in frames if frame} == {4}
        callers = {frame.caller.line for frame in frames if frame and frame.caller}
        assert callers == {line_of("first call"), line_of("second call")}
    own = [n.frame for n in found.nodes if n.op == "aten.neg.default" and n.phase is Phase.FORWARD]
    assert [frame.caller for frame in own if frame] == [None]


def test_the_line_of_the_project_is_that_around_each_call_of_a_packages_module() -> None:
    package = installed(
        "from torch import nn\n"
        "class Inner(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.exp().log()\n"
        "class Outer(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = Inner()\n"
        "    def forward(self, x, after=None):\n"
        "        x = self.inner(x)\n"
        "        return x if after is None else after(x.neg())\n"
    )
    outer = package["Outer"]()

    def after(x: torch.Tensor) -> torch.Tensor:
        return outer.inner(x).sqrt()  # at called back

    def step(program: Any) -> None:
        outer(program.x)  # at first of a module
        outer(program.x, after)  # at second of a module

    found = trace(step, num_steps=1)

    def callers(op: str) -> list[int | None]:
        frames = [node.frame for node in found.nodes if node.op == f"aten.{op}.default"]
        return [frame.caller.line if frame.caller else None for frame in frames if frame]

    first, second, back = (line_of(each) for each in ("first of a module", "second of a module", "called back"))
    assert callers("exp") == callers("log") == [first, second, back]
    assert callers("neg") == [second]
    assert callers("sqrt") == [None]


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_package_recomputes_belongs_to_the_line_of_the_project_that_called_it(reentrant: bool) -> None:
    package = installed("def block(x):\n    return x.sigmoid().tanh()\n")

    def step(program: Any) -> None:
        y = checkpoint(package["block"], program.x, use_reentrant=reentrant)  # at checkpointed
        y.sum().backward()

    found = trace(step, num_steps=1)
    frames = [n.frame for n in found.nodes if n.op == "aten.sigmoid.default"]
    assert len(frames) == 2
    assert {frame.caller and frame.caller.line for frame in frames if frame} == {line_of("checkpointed")}


def test_hooks_and_custom_backwards_carry_their_own_line() -> None:
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.sin()  # at forward

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad.cos()  # at backward

    def step(program: Any) -> None:
        y = Own.apply(program.x)
        y.register_hook(lambda grad: grad.neg())  # at hook
        y.sum().backward()

    found = trace(step)
    assert lines(found, "sin", Phase.FORWARD) == {line_of("forward")}
    assert lines(found, "cos", Phase.BACKWARD) == {line_of("backward")}
    assert lines(found, "neg", Phase.BACKWARD) == {line_of("hook")}


def test_a_shared_module_belongs_to_its_first_path() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Tanh()
            self.second = self.first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    found = trace(lambda program: program.model(program.x), Shared)
    assert {n.module for n in found.nodes if n.op == "aten.tanh.default"} == {"first"}


def test_two_backwards_in_one_step_keep_their_lines() -> None:
    def step(program: Any) -> None:
        program.x.sigmoid().sum().backward()  # at one
        program.x.tanh().sum().backward()  # at two

    found = trace(step)
    assert lines(found, "sigmoid_backward", Phase.BACKWARD) == {line_of("one")}
    assert lines(found, "tanh_backward", Phase.BACKWARD) == {line_of("two")}


def test_buffers_carry_the_place_of_their_kernel() -> None:
    def step(program: Any) -> None:
        y = program.model(program.x)
        (y * 2).sum().backward()

    found = trace(step, lambda: nn.Sequential(nn.Tanh(), nn.Sigmoid()))
    (buffer, _) = [b for b in found.buffers if b.op == "aten.sigmoid.default"]
    assert (buffer.module, buffer.phase, buffer.shape, buffer.dtype, buffer.nbytes) == (
        "1",
        Phase.FORWARD,
        (4, 8),
        "float32",
        128,
    )
    assert buffer.frame is not None
    assert buffer.frame.path == __file__
    node: Node = found.nodes[buffer.node]
    assert node.op == buffer.op
    assert inspect.isfunction(step)


class StepsWithoutLines:
    """A program that consists of PyTorch alone."""

    setup = staticmethod(functools.partial(torch.manual_seed, 0))
    step = staticmethod(functools.partial(torch.zeros, 4, device="cuda"))


def test_whoever_asks_for_a_trace_is_no_line_of_it() -> None:
    found = trace_program(StepsWithoutLines(), device_named("a100-80gb")).trace
    assert {node.frame for node in found.nodes} == {None}
    assert found.nodes


def test_equal_code_of_two_files_keeps_its_own_file() -> None:
    double = []
    for path in ("/project/first.py", "/project/second.py"):
        namespace: dict[str, Any] = {}
        exec(compile("def double(x):\n    return x * 2\n", path, "exec"), namespace)
        double.append(namespace["double"])

    class Program:
        def setup(self) -> None:
            self.x = torch.rand(4, device="cuda")

        def step(self) -> None:
            for function in double:
                function(self.x)

    nodes = trace_program(Program(), device_named("a100-80gb"), num_steps=1).trace.nodes
    assert [node.frame.path for node in nodes if node.op.startswith("aten.mul")] == [
        "/project/first.py",
        "/project/second.py",
    ]
