"""Ops of compiled extensions that do not load take what the program says of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import memlint
from memlint.base.errors import UsageError
from memlint.config import Op
from memlint.libraries import own_ops
from memlint.libraries.library import UnknownFunctionError
from memlint.libraries.own_ops import declare_configured
from tests.script.isolated import run
from tests.script.running import run_script, run_text

pytestmark = pytest.mark.usefixtures("copied_pythons")

FUSED = """\
import memlint, torch
memlint.op(
    "{name}",
    shapes=lambda x, weight, scale=1.0: (*x.shape[:-1], weight.shape[0]),
    saves=["x", "weight"],
    workspace=lambda x, weight, scale: 4 * x.numel(),
    backward_workspace=1 << 20,
)
{load}
x = torch.zeros(256, 512, device="cuda", requires_grad=True)
weight = torch.zeros(1024, 512, device="cuda", requires_grad=True)
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
y = {call}(x, weight=weight)
print(tuple(y.shape), torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before)
grad = torch.empty_like(y)
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
y.backward(grad)
print(torch.cuda.max_memory_allocated() - before, tuple(weight.grad.shape))
"""
TEXT = "kernels of {name} are not run: they take what memlint.op says"


@pytest.mark.parametrize(
    ("name", "load", "call"),
    [
        ("mylib::fused", 'torch.ops.load_library("build/mylib.so")', "torch.ops.mylib.fused"),
        ("mylib_cuda.fused", "import mylib_cuda", "mylib_cuda.fused"),
    ],
)
def test_an_op_takes_what_is_declared(tmp_path, name, load, call):
    ran = run(tmp_path / "p", FUSED.format(name=name, load=load, call=call))
    assert ran.error is None, ran.stderr
    output, operand, gradients = 4 * 256 * 1024, 4 * 256 * 512, 4 * 512 * (256 + 1024)
    assert ran.stdout.splitlines() == [
        f"(256, 1024) {output} {output + operand}",
        f"{gradients + (1 << 20)} (1024, 512)",
    ]
    assert TEXT.format(name=name) in ran.assumptions


def test_a_library_of_ops_that_does_not_load_says_what_to_write(tmp_path):
    ran = run(tmp_path / "p", 'import torch\ntorch.ops.load_library("build/mylib.so")\n')
    assert "the library of ops build/mylib.so does not load here" in (ran.error or "")
    hint = run(
        tmp_path / "q", 'import torch\ntry: torch.ops.load_library("a.so")\nexcept Exception as e: print(e.hint)\n'
    )
    assert 'memlint.op("namespace::name", shapes=' in hint.stdout


def test_an_extension_that_is_not_built_says_what_to_write(tmp_path):
    (tmp_path / "fused_ops.cu").touch()
    (workload,) = run_text(
        tmp_path, "import torch\nimport fused_ops\nfused_ops.forward(torch.ones(2))\n"
    ).report.workloads
    assert "fused_ops.forward is used, but fused_ops is not available" in workload.error.message
    assert "fused_ops.cu" in workload.error.hint
    assert 'memlint.op("fused_ops.FUNCTION", shapes=' in workload.error.hint


def test_what_is_saved_is_an_argument():
    with pytest.raises(UsageError, match="saves 'y'"):
        memlint.op("mylib::fused", shapes=lambda x: x.shape, saves=["y"])


def test_the_example_of_the_documentation_runs(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "libraries.md").read_text(encoding="utf-8")
    ran = run(tmp_path / "p", page.split("```python\n")[1].split("```")[0])
    assert ran.error is None, ran.stderr
    assert TEXT.format(name="mylib_cuda.gelu_linear") in ran.assumptions


MODEL = """\
import mylib_cuda, torch

class Layer(torch.nn.Linear):
    def forward(self, x):
        return mylib_cuda.gelu_linear(x, self.weight)

Layer(128, 256).cuda()(torch.zeros(64, 128, device="cuda")).sum().backward()
"""


def test_a_table_of_the_configuration_says_the_same(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "libraries.md").read_text(encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    (tmp_path / "train.py").write_text(MODEL, encoding="utf-8")
    checked = run_script(tmp_path / "train.py")
    (workload,) = checked.report.workloads
    assert workload.error is None, workload.error
    assert TEXT.format(name="mylib_cuda.gelu_linear") in [each.text for each in workload.assumptions]


@pytest.mark.parametrize("text", ["x.shape", "lambda x:", "1 +"])
def test_text_that_is_no_function_is_named(text):
    with pytest.raises(UsageError, match=r"tool\.memlint\.op mylib::fused: shapes is no function"):
        declare_configured(Op(name="mylib::fused", shapes=text))


def test_an_op_of_a_library_that_is_not_there_may_be_named(monkeypatch):
    monkeypatch.setattr(own_ops.OpNamespace, "__getattr__", own_ops._named)
    monkeypatch.setitem(sys.modules, "absentlib", SimpleNamespace(library=None))
    op = torch.ops.absentlib_flash.flash_fwd.default
    assert op in {op}
    with pytest.raises(UnknownFunctionError, match="absentlib_flash::flash_fwd is used, and memlint does not model it"):
        op(torch.ones(2))
    with pytest.raises(AttributeError):
        _ = torch.ops.otherlib.flash_fwd
