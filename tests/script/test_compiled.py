"""Code that a script compiles is compiled, or runs eagerly if that is asked for; the report says which."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.script.running import run_text

SCRIPT = """
import torch

@torch.compile(mode="max-autotune")
def scaled(x):
    return 2 * x

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    CALL(model(torch.rand(4, 8, device="cuda"))).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("call", "is_left_out"), [("scaled", True), ("torch.exp", False)])
def test_a_compiled_function_is_left_out_where_it_is_called_if_that_is_asked_for(
    tmp_path: Path, call: str, is_left_out: bool
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("CALL", call))
    command = [sys.executable, "-m", "memlint", "run", "--compile", "off", "--output-format", "json", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (workload,) = json.loads(done.stdout)["workloads"]
    assert workload["error"] is None
    texts = [each["text"] for each in workload["assumptions"]]
    assert any(text.startswith("torch.compile is left out") for text in texts) == is_left_out


def test_a_compiled_function_is_compiled_by_default(tmp_path: Path) -> None:
    script = SCRIPT.replace("CALL", "scaled").replace("2 * x", "(2 * x).sin().cos()")
    (tmp_path / "train.py").write_text(script)
    options = ["--output-format", "json", "--graph"]
    command = [sys.executable, "-m", "memlint", "run", *options, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (workload,) = json.loads(done.stdout)["workloads"]
    assert workload["error"] is None
    assert any(each["text"].startswith("torch.compile is simulated") for each in workload["assumptions"])
    assert "inductor." in done.stdout


def test_a_compiled_model_trains_in_the_precision_of_the_autocast_that_it_is_called_in(tmp_path: Path) -> None:
    script = """
    import torch
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.rand(4, 8, device="cuda")
    for _ in range(2):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(inputs)
        loss.sum().backward()
        optimizer.step()
    """
    (workload,) = run_text(tmp_path, script).report.workloads
    assert (workload.error, workload.dtype) == (None, "bf16-amp")


def test_a_compiled_model_may_be_evaluated_under_autocast_before_it_trains(tmp_path: Path) -> None:
    script = """
    import torch
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.rand(4, 8, device="cuda")
    model.eval()
    with torch.autocast("cuda", torch.bfloat16):
        model(inputs)
        with torch.no_grad():
            for _ in range(3):
                model(inputs)
    model.train()
    for _ in range(2):
        model(inputs).sum().backward()
        optimizer.step()
    """
    (workload,) = run_text(tmp_path, script).report.workloads
    assert workload.error is None
    assert workload.script is not None
    assert (workload.script.happened, workload.script.steps) == ("trained", 2)


WHOLE = """
    import torch
    from torch import nn
    from torch.nn.attention.flex_attention import flex_attention

    attention = torch.compile(flex_attention, options={"max_autotune": True})

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        def forward(self, x):
            for layer in self.layers[:-1]:
                x = layer(x)
            return attention(x, x, self.layers[-1](x))

    model = Block().cuda()
    model.compile(fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.rand(2, 1, 512, 64, device="cuda")
    for _ in range(2):
        hidden = model(inputs)
        CALL(hidden, hidden, hidden).sum().backward()
        optimizer.step()
"""


FLEX = """
    import torch
    from torch import nn
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    @torch.compile(fullgraph=True, mode="max-autotune-no-cudagraphs")
    def attention(q, k, v, mask=None):
        return flex_attention(q, k, v, block_mask=mask)

    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.rand(2, 4, 512, 64, device="cuda")
    mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 512, 512)
    for _ in range(2):
        with torch.autocast("cuda", torch.bfloat16):
            hidden = model(inputs)
            attended = attention(hidden, hidden, hidden, mask)
            attended.float().sum().backward()
        optimizer.step()
"""


def test_compiled_flex_attention_runs_under_autocast(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, FLEX).report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")
    assert not any("could not be simulated" in each.text for each in workload.assumptions)


@pytest.mark.parametrize("call", ["torch.addcmul", "attention"])
def test_compiled_code_that_calls_compiled_functions_and_makes_modules_is_whole(tmp_path: Path, call: str) -> None:
    script = WHOLE.replace("CALL", call)
    (workload,) = run_text(tmp_path, script).report.workloads
    assert workload.error is None
    texts = [each.text for each in workload.assumptions if each.text.startswith("torch.compile")]
    assert [text.split()[1] for text in texts] == ["is"], texts


IN_ONE_GRAPH = """
    import os
    import torch, triton
    import triton.language as tl
    from torch import nn
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.autotune([triton.Config({"BLOCK": 512}), triton.Config({"BLOCK": 1024})], key=["n"])
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def double_kernel(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

    @triton.jit
    def copy_kernel(source, target):
        target.store([0, 0], source.load([0, 0]))

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out, last = torch.empty_like(x), torch.empty_like(x)
            double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
            copy_kernel[(1,)](*(TensorDescriptor.from_tensor(each, [64, 64]) for each in (out, last)))
            return last * x.new_tensor([0.5, 2.0]).sum()
        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)
        def forward(self, x):
            scales = torch.tensor([1.0, 2.0], device=x.device)
            if os.environ.get("SCALES_OF_THE_TEST", "on") == "on":
                x = x * scales.sum()
            return Double.apply(self.layer(x))

    model = torch.compile(Net().cuda(), fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model(torch.rand(64, 64, device="cuda")).sum().backward()
        optimizer.step()
"""


def test_compiled_code_launches_kernels_of_triton_reads_variables_and_has_constants(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, IN_ONE_GRAPH).report.workloads
    assert workload.error is None
    texts = [each.text for each in workload.assumptions]
    assert [text.split()[1] for text in texts if text.startswith("torch.compile")] == ["is"], texts
    assert any(text.startswith("kernels of Triton are not run") for text in texts)


OWN_OPTIMIZER = """
    import torch

    class Signs(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_((parameter.grad / parameter.grad.norm()).sign() * group["lr"])

    model = torch.nn.Linear(512, 512).cuda()
    optimizer = Signs(model.parameters())

    @torch.compile(fullgraph=True)
    def update():
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)
        optimizer.step()

    for _ in range(3):
        model(torch.rand(4, 512, device="cuda")).sum().backward()
        update()
        optimizer.zero_grad()
"""


def test_a_compiled_step_of_an_optimizer_is_whole_and_ends_a_step(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, OWN_OPTIMIZER).report.workloads
    assert (workload.error, workload.optimizer) == (None, "Signs")
    texts = [each.text for each in workload.assumptions if each.text.startswith("torch.compile")]
    assert [text.split()[1] for text in texts] == ["is"], texts
    assert workload.estimate is not None
    assert workload.script is not None
    assert {"forward", "backward", "optimizer"} <= set(workload.estimate.phase_peaks)
    assert len(workload.script.step_peaks) == 2


CAST = """
    import torch
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    ops = []
    def note(graph, inputs):
        ops.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    backend = aot_autograd(
        fw_compiler=note, bw_compiler=note, partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = torch.nn.Linear(64, 64), torch.nn.Parameter(torch.ones(64))
        def forward(self, x):
            return self.layer(x).float().sin().type_as(x) * self.scale

    model = torch.compile(Scaled().bfloat16().cuda(), backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model(torch.rand(64, 64, device="cuda", dtype=torch.bfloat16)).sum().backward()
        assert "prims.convert_element_type.default" in ops, ops
        assert not [each for each in ops if "device_put" in each], ops
        optimizer.step()
"""


def test_a_cast_on_the_gpu_is_no_copy_between_devices_and_is_computed_again_in_backward(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, CAST).report.workloads
    assert (workload.error, workload.optimizer) == (None, "SGD")


REFUSED = {
    "@torch.compile(backend='of_another_machine')": "InvalidBackend: Invalid backend: 'of_another_machine'",
    "@torch.compile(fullgraph=True)": "Unsupported: Data-dependent branching",
}


@pytest.mark.parametrize("decorator", REFUSED)
def test_what_cannot_be_compiled_runs_eagerly_with_the_reason_and_its_line(tmp_path: Path, decorator: str) -> None:
    script = SCRIPT.replace("CALL", "scaled").replace('@torch.compile(mode="max-autotune")', decorator)
    (tmp_path / "train.py").write_text(script.replace("return 2 * x", "return 2 * x if x.sum() > 0 else x"))
    command = [sys.executable, "-m", "memlint", "run", "--output-format", "json", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (workload,) = json.loads(done.stdout)["workloads"]
    assert workload["error"] is None
    (reason,) = [each for each in workload["assumptions"] if each["text"].startswith("torch.compile could not be")]
    assert REFUSED[decorator] in reason["text"]
    assert "backend" in decorator or reason["line"] == 6


@pytest.mark.usefixtures("executed_pythons")  # in a copy of another process it may be loaded before
def test_what_a_script_loaded_of_the_compiler_serves_the_step_that_follows_its_failure(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, torch\n"
        "import torch._inductor.config\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(64, 64)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x).relu()\n"
        "    def to(self, device):\n"  # the first that a copy does for a step of its own
        "        assert 'memlint.compile.simulation' in sys.modules, 'each copy would load it'\n"
        "        return super().to(device)\n"
        "model = torch.compile(Net().cuda())\n"
        "raise AssertionError('no data')\n"
    )
    command = [sys.executable, "-m", "memlint", "run", "--output-format", "json", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (workload,) = json.loads(done.stdout)["workloads"]
    assert workload["error"] is None
    assert "the script raised AssertionError: no data" in workload["script"]["ending"]
    assert any(each["text"].startswith("torch.compile is simulated") for each in workload["assumptions"])


def test_the_compiler_is_loaded_before_a_copy_is_made_which_would_load_it_again(tmp_path: Path) -> None:
    text = """
    import sys
    import torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.compile(torch.nn.Linear(64, 64))
        def forward(self, x):
            assert "memlint.compile.simulation" in sys.modules, "it is not loaded"
            return self.layer(x).relu()
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    del sys.modules["memlint.compile.simulation"]
    for _ in range(2):
        model(torch.rand(8, 64, device="cuda")).sum().backward()
        optimizer.step()
    """
    checked = run_text(tmp_path, text)
    assert checked.report.workloads[0].error is None
    assert "it is not loaded" not in checked.outputs[0].stderr
