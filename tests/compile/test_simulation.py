"""The compiled step on the virtual device: what it takes, where it comes from, and that nothing of it stays."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch._inductor import codecache

from memlint.accelerator.private.compilation import (
    Compiler,
    Lowering,
    SystemCache,
    Translator,
    compilation,
    convert_frame,
    cudagraph_results,
    extern_kernels,
    padding_choice,
    scheduler,
)
from memlint.base.patching import patched
from memlint.compile import requests
from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.memory.devices import device_named
from memlint.memory.records import Category, Phase, Trace
from memlint.memory.timeline import Timeline, live, without
from memlint.tracing.recorder import trace_program
from tests.compile.programs import Compiled, Net

pytestmark = pytest.mark.usefixtures("checked_torch")

GPU = device_named("a100-80gb")
HAS_TRITON = importlib.util.find_spec("triton") is not None
"""A process that has compiled for real with Triton simulates no compilation."""
MIB = 2**20


def traced(**options: Any) -> Trace:
    return trace_program(Compiled("cuda", **options), GPU).trace


def peak(trace: Trace) -> int:
    """Peak without what its kernels are timed with."""
    return max(live(without(Timeline.of(trace), [doubt.buffer for doubt in trace.doubts])))


@pytest.fixture(scope="module")
def compiled() -> Trace:
    with patched([(torch, "compile", requests.compile_where_simulated)]):
        return traced()


def test_a_compiled_step_takes_less_than_an_eager_one(compiled: Trace) -> None:
    # Per block of 512 rows an eager step saves the norm's result, the GELU's input and its result, and its own result.
    # Compiled, the norm's result is there once more, and neither the residual nor GELU's gradient beside it.
    assert peak(compiled) < peak(traced(compiles=False))


def test_buffers_have_the_line_the_module_and_the_operator_they_come_from(compiled: Trace) -> None:
    saved = [b for b in compiled.buffers if b.category is Category.ACTIVATION and b.shape == (512, 256) and b.step == 1]
    assert {(b.op, b.module) for b in saved} >= {
        ("aten.addmm.default", "blocks.0.up"),
        ("aten.addmm.default", "blocks.1.up"),
    }
    lines = {b.frame.path.rpartition("/")[2] for b in saved if b.frame is not None}
    assert lines == {"programs.py"}


def test_fused_kernels_are_nodes_of_the_phase_they_run_in(compiled: Trace) -> None:
    fused = [node for node in compiled.nodes if node.op.startswith("inductor.")]
    assert {node.phase for node in fused} == {Phase.FORWARD, Phase.BACKWARD}
    assert all(node.inputs for node in fused)


def test_what_compiled_code_saves_dies_in_backward(compiled: Trace) -> None:
    saved = [b for b in compiled.buffers if b.category is Category.ACTIVATION and b.step == 1]
    assert saved
    assert all(b.died is not None for b in saved)


def test_options_of_torch_compile_reach_it(compiled: Trace) -> None:
    eager = traced(compiles=False)
    assert peak(traced(backend="eager")) == peak(eager)
    assert peak(traced(backend="aot_eager")) != peak(compiled)


def test_a_module_of_pytorch_alone_is_compiled() -> None:
    class Sequence(Compiled):
        def setup(self) -> None:
            super().setup()
            layers = [torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)]
            self.called = torch.compile(torch.nn.Sequential(*layers).to(self.device))

    trace = trace_program(Sequence("cuda"), GPU).trace
    assert any(node.op.startswith("inductor.") for node in trace.nodes)


def test_a_decorated_function_is_compiled_anew_in_each_simulation() -> None:
    @torch.compile
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return (2 * x).sin().cos()

    ops = []
    for compiles in (True, False, True):
        with virtual_device(GPU, compiles=compiles) as ledger:
            x = torch.zeros(1024, device="cuda")
            born = len(ledger.births)
            y = doubled(x)
            assert y.device.type == "cuda"
            ops.append(len(ledger.births) - born)
            assert (simulated().compilation is not None) == compiles
    assert ops == [2, 3, 2]  # fused, it makes its result alone, and is timed


def test_a_graph_break_is_named_with_its_line() -> None:
    class Broken(Compiled):
        def setup(self) -> None:
            super().setup()

            def parted(x: torch.Tensor) -> torch.Tensor:
                x = self.model(x).relu()
                torch._dynamo.graph_break()
                return x.relu()

            self.called = torch.compile(parted)

    whole, parted = traced(), trace_program(Broken("cuda"), GPU).trace
    assert whole.assumptions == ()
    (broken,) = parted.assumptions
    assert broken.text.startswith(
        "torch.compile breaks the graph here, and every tensor that is needed after it exists"
    )
    assert broken.frame is not None
    assert (broken.frame.path, broken.frame.function) == (__file__, "parted")
    assert parted.graph_breaks == (broken.frame,)


_MAKES_TENSORS = """
import torch
from memlint.compile.requests import compile_where_simulated
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.workloads.absent_weights import replace_loading

if {compiles_before}:
    torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(1))  # TorchDynamo lists PyTorch's functions
if {absent}:
    replace_loading(setattr)  # as for a program whose checkpoint is missing
torch.compile = compile_where_simulated
from torch import tensor

@torch.compile(fullgraph=True)
def made(x):
    device = x.device
    return [
        tensor([1.0, 2.0], device=device) * x.sum(),
        torch.tensor(2.0, device="cuda") + x.sum(),
        torch.as_tensor([3.0], device=device) + x.sum(),
        x.new_tensor([1.0, 2.0]) + x.sum(),
        x.new_zeros(3) + x.sum(),
        torch.arange(4, device=device) + x.sum(),
        torch.full((5,), 1.0, device="cuda:0") + x.sum(),
        torch.randn(6, device=device) + x.sum(),
        torch.ones(7).to(device) + x.sum(),
    ]

with virtual_device(device_named("a100-80gb"), compiles=True):
    print([(each.device.type, each.numel()) for each in made(torch.zeros(1024, device="cuda"))])
"""


@pytest.mark.parametrize(("compiles_before", "absent"), [(False, False), (False, True), (not HAS_TRITON, True)])
def test_tensors_that_compiled_code_makes_are_on_the_device(
    compiles_before: bool, absent: bool, tmp_path: Path, copied_pythons: None
) -> None:
    program = tmp_path / "makes_tensors.py"
    program.write_text(_MAKES_TENSORS.format(compiles_before=compiles_before, absent=absent))
    child = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert child.stdout.strip() == str([("cuda", n) for n in (2, 1, 1, 2, 3, 4, 5, 6, 7)]), child.stderr


def test_flex_attention_keeps_no_scores() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    class Attention(Compiled):
        def setup(self) -> None:
            self.model = torch.nn.Linear(64, 192, device=self.device)
            self.inputs = {"x": torch.zeros(2, 1, 512, 64, device=self.device)}
            self.called = torch.compile(lambda x: flex_attention(*self.model(x).chunk(3, -1)))

        def step(self) -> None:
            self.called(self.inputs["x"]).sum().backward()

    shapes = {buffer.shape for buffer in trace_program(Attention("cuda"), GPU).trace.buffers}
    assert (2, 1, 512, 64) in shapes
    assert all(512 not in shape[-1:] or shape == (2, 1, 512) for shape in shapes)  # the sums of each row's weights


def names_now() -> dict[tuple[str, str], Any]:
    owners = (torch, torch.Tensor, torch.cuda, torch.nn.Module, torch.accelerator, torch._C, torch._C._dynamo.guards)
    more = (convert_frame, compilation, Compiler, Lowering, scheduler, Translator)
    more += (cudagraph_results, padding_choice, extern_kernels)
    own = {"initial_global_state"}  # which TorchDynamo sets at each frame, until torch 2.11
    return {
        (repr(owner), name): value
        for owner in (*owners, *more)
        for name, value in list(vars(owner).items())
        if name not in own
    }


def raising(*_: Any, **__: Any) -> Any:
    raise ValueError("no more")


STAGES = {
    "tracing": (convert_frame, "transform_code_object"),
    "the joint graph": (compilation, "min_cut_rematerialization_partition"),
    "lowering": (Lowering, "run"),
    "scheduling": (scheduler.Scheduler, "codegen"),
    "the module of generated code": (Compiler, "wait"),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("calls_before", [0, 1])
@pytest.mark.usefixtures("compiled")  # the first compilation of a process has TorchDynamo wrap the making of modules
def test_a_compilation_that_breaks_leaves_nothing_behind(stage: str, calls_before: int) -> None:
    owner, name = STAGES[stage]
    eager = traced(compiles=False)
    real, calls = getattr(owner, name), 0

    def breaking(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > calls_before:
            raise ValueError("no more")
        return real(*args, **kwargs)

    names, environment, modules = names_now(), dict(os.environ), sys.modules.get("triton", "absent")
    with patched([(owner, name, breaking)]):
        try:
            traced()
        except Exception as error:
            assert "no more" in str(error)  # noqa: PT017 -- one graph may need a stage only once
    after = names_now()
    assert [key for key, value in names.items() if after.get(key) is not value] == []
    assert dict(os.environ) == environment
    assert sys.modules.get("triton", "absent") == modules
    assert traced(compiles=False).events == eager.events


def test_what_a_program_replaces_before_it_compiles_stays_replaced() -> None:
    class Patching(Compiled):
        def setup(self) -> None:
            torch.load, self.before = self.load, torch.load
            super().setup()

        def step(self) -> None:
            super().step()
            self.seen, torch.load = torch.load, self.before

        @staticmethod
        def load(*_: Any, **__: Any) -> str:
            return "mine"

    program = Patching("cuda")
    trace_program(program, device_named("a100-80gb"), num_steps=1)

    assert program.seen is Patching.load


def test_a_call_that_is_compiled_runs_through_no_code_of_memlint() -> None:
    # As `generate` of transformers compiles it; a frame of memlint's in it would break the graph.
    class Called(Compiled):
        def setup(self) -> None:
            super().setup()
            self.called = torch.compile(Net(64, 2).to(self.device).__call__)

    trace = trace_program(Called("cuda"), GPU).trace
    assert trace.assumptions == ()
    assert any(node.op.startswith("inductor.") for node in trace.nodes)


def test_long_cumulative_sums_take_a_workspace() -> None:
    @torch.compile
    def summed(x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0)

    with virtual_device(GPU, compiles=True) as ledger:
        x = torch.zeros(8 * MIB, device="cuda")
        born = len(ledger.births)
        summed(x)
        sizes = [entry.nbytes for entry in ledger.births[born:]]
    # torch/_inductor/codegen/triton_split_scan.py: a number of 64 bits for each block of 256 elements
    assert sizes == [32 * MIB, 8 * MIB // 256 * 8]


def test_a_convolution_is_compiled_whatever_stands_in_for_triton() -> None:
    # A script's own stand-in for Triton, loaded with Inductor, has no version that could be written as JSON.
    SystemCache.get_system.cache_clear()
    convolution = torch.nn.Conv2d(3, 8, 3)

    with patched([(codecache, "triton_key", object)]), virtual_device(GPU, compiles=True):
        compiled_code = torch.compile(convolution.cuda(), fullgraph=True)
        assert compiled_code(torch.zeros(2, 3, 16, 16, device="cuda")).shape == (2, 8, 14, 14)


def test_numbers_that_pytorchs_own_code_makes_on_the_device_are_compiled() -> None:
    def mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.masked.mean(x, mask=mask, dim=1)  # type: ignore[no-any-return]

    with virtual_device(GPU, compiles=True):
        x = torch.zeros(4, 8, device="cuda", requires_grad=True)
        torch.compile(mean, fullgraph=True)(x, torch.ones(4, 8, dtype=torch.bool, device="cuda")).sum().backward()
        assert x.grad is not None


def test_rows_that_a_mask_selects_are_set_to_a_parameter() -> None:
    # Its backward reads at the mask: a size that is not known while it is traced.
    def masked(x: torch.Tensor, vector: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[mask] = vector
        return x

    with virtual_device(GPU, compiles=True):
        vector = torch.zeros(8, device="cuda", requires_grad=True)
        x, mask = torch.zeros(2, 4, 8, device="cuda"), torch.ones(2, 4, dtype=torch.bool, device="cuda")
        torch.compile(masked, fullgraph=True)(x, vector, mask).sum().backward()
        assert vector.grad is not None


_TOUCHES_DYNAMO = """
import torch
from memlint.compile import requests
requests.install()
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.cuda.simulated import simulated

@torch.compile
def made(x):
    return torch.arange(4, device=x.device) + x.sum()

with virtual_device(device_named("a100-80gb"), compiles=True):
    x = torch.zeros(1024, device="cuda")
    torch._dynamo.mark_static_address(x)
    print(made(x).numel(), list(simulated().graph_breaks), list(simulated().about_compilation))
"""


def test_a_program_that_touches_dynamo_before_it_compiles_breaks_no_graph(tmp_path: Path, copied_pythons: None) -> None:
    program = tmp_path / "touches.py"
    program.write_text(_TOUCHES_DYNAMO)
    child = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert child.stdout.strip() == "4 [] []", child.stderr


_SMALL = """
from tests.compile.programs import Compiled
make = lambda: Compiled("cuda")
"""
_FINETUNING = """
from tests.oracles.torchtune import Finetuning, Recipe, Sizes
recipe = Recipe(Sizes(64, 1, 2, 128, 2, 512, 512), length=512, chunks_loss=True, checkpoints=True)
make = lambda: Finetuning(recipe)
"""
_TRACES = """
import hashlib, sys
from memlint.compile import requests
from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program
requests.install()

for _ in range(int(sys.argv[1])):
    trace = trace_program(make(), device_named("a100-80gb")).trace
    assert any(node.op.startswith("inductor.") for node in trace.nodes)
    print(hashlib.sha256(repr((trace.events, [each.nbytes for each in trace.buffers])).encode()).hexdigest())
"""


@pytest.mark.parametrize("made", [_SMALL, pytest.param(_FINETUNING, marks=pytest.mark.slow)], ids=["small", "large"])
def test_a_compiled_step_is_the_same_in_each_process_and_whatever_ran_in_it_before(made: str) -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-c", made + _TRACES, str(times)],
            capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": str(times)},
        ).stdout.split()
        for times in (1, 2)
    ]  # fmt: skip
    assert [len(each) for each in traces] == [1, 2]
    assert len({*traces[0], *traces[1]}) == 1


def test_questions_about_the_gpu_are_no_graph_breaks() -> None:
    def asking(x: torch.Tensor) -> torch.Tensor:
        multiprocessors = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        return x.new_zeros(multiprocessors) if torch.cuda.is_available() else x

    with virtual_device(GPU, compiles=True):
        x = torch.zeros(8, device="cuda")
        assert torch.compile(asking, fullgraph=True)(x).shape == (GPU.num_sms,)


_COMPILES_FIRST = """
import torch
from memlint.compile import requests
requests.install()
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

def zeros(x):
    return torch.zeros_like(x)

with virtual_device(device_named("a100-80gb"), compiles=True):
    torch._dynamo.trace_rules.get_torch_obj_rule_map.cache_clear()
    print(torch.compile(zeros, fullgraph=True)(torch.ones(8, device="cuda")).shape)
"""


def test_where_the_first_code_is_compiled_in_a_simulation_pytorchs_functions_are_known(
    tmp_path: Path, copied_pythons: None
) -> None:
    program = tmp_path / "first.py"
    program.write_text(_COMPILES_FIRST)
    child = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert child.stdout.strip() == "torch.Size([8])", child.stderr


def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_a_line_of_code_that_has_no_hash_is_named() -> None:
    # TorchDynamo writes code with a dict among its constants.
    class Unhashable(Compiled):
        def setup(self) -> None:
            super().setup()
            code = doubled.__code__
            self.called = FunctionType(code.replace(co_consts=(*code.co_consts, {})), globals())

        def step(self) -> None:
            self.kept = self.called(self.inputs["x"])

    trace = trace_program(Unhashable("cuda", compiles=False), GPU).trace
    (frame,) = {b.frame for b in trace.buffers if b.op == "aten.mul.Tensor"}
    assert frame is not None
    assert (frame.path, frame.function) == (__file__, "doubled")
