"""What `import memlint` offers: examples in docstrings and documentation run, and the graph of a step is one of torch.fx."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import memlint
from memlint import cli
from memlint.base.errors import TargetError, UsageError, WorkloadError

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]
GRAPH = (ROOT / "docs" / "graph.md").read_text(encoding="utf-8")
MLP = ROOT / "fixtures" / "models" / "mlp.py"


def block(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n```python\n(.*?)```", GRAPH, flags=re.DOTALL)
    assert found
    return found[1]


def printed(code: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, "docs/graph.md", "exec"), {})
    return output.getvalue()


@pytest.mark.usefixtures("copied_pythons")
@pytest.mark.parametrize("name", [name for name in memlint.__all__ if not name.startswith("_")])
def test_the_example_of_every_public_name_runs(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    tests = doctest.DocTestFinder(recurse=False).find(getattr(memlint, name), name, globs={})
    (example,) = (test for test in tests if test.examples)
    example.globs.update(memlint=memlint, torch=torch)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(example).failed == 0


def test_dir_shows_what_is_public():
    public = [
        "Declaration",
        "__version__",
        "check",
        "estimate",
        "fit",
        "op",
        "open",
        "run",
        "trace",
        "watch",
        "workload",
    ]
    assert dir(memlint) == public


def test_importing_memlint_does_not_import_torch():
    code = "import sys, memlint; memlint.trace; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_graph_in_the_documentation_is_what_is_traced(monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = re.search(r"```\n(addmm_.*?)```", GRAPH, flags=re.DOTALL)
    assert shown
    assert printed(block("trace")) == shown[1]


@pytest.mark.usefixtures("copied_pythons")
def test_the_example_with_networkx_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mlp.py").write_text(MLP.read_text(encoding="utf-8"), encoding="utf-8")
    assert CliRunner().invoke(cli.main, ["report", "mlp.py", "--format", "graph"]).exit_code == 0
    assert printed(block("networkx")).splitlines()[:3] == [f"131072 layers.{number} [8, 4096]" for number in (1, 4, 7)]


@pytest.fixture(scope="module")
def step():
    return memlint.trace(MLP, batch=2)


def test_the_step_is_a_graph_module_of_torch_fx(step):
    assert isinstance(step, torch.fx.GraphModule)
    step.graph.lint()
    assert "torch.ops.aten.addmm.default(parameter_layers_0_bias" in step.code
    assert "mlp.py:32 in forward, code: return self.layers(x)" in step.print_readable(print_output=False)
    torch.fx.GraphModule(step, torch.fx.Graph()).graph.lint()
    before = len(step.graph.nodes)
    assert not torch.fx.GraphModule(torch.nn.Module(), step.graph).graph.eliminate_dead_code()
    assert len(step.graph.nodes) == before


def test_nodes_carry_their_records_and_buffers(step):
    trace = step.meta["memlint"]
    kernels = [node for node in step.graph.nodes if node.op == "call_function"]
    assert [node.meta["memlint"] for node in kernels] == [node for node in trace.nodes if node.step == 1]
    opened = [buffer for node in kernels for buffer in node.meta["memlint_buffers"]]
    assert sorted(buffer.id for buffer in opened) == [
        b.id for b in trace.buffers if b.node >= kernels[0].meta["memlint"].index
    ]
    found = [buffer for node in step.graph.nodes if node.op == "placeholder" for buffer in node.meta["memlint_buffers"]]
    assert {buffer.category for buffer in found} == {"parameter", "optimizer_state", "input"}


def test_settings_win_over_those_of_the_decorator():
    @memlint.workload(batch=16, dimensions={"width": 32}, mode="inference")
    def declared(batch, width=8):
        return torch.nn.Linear(width, 8), torch.zeros(batch, width)

    def shapes(**options):
        graph = memlint.trace(declared, **options).graph
        (node,) = graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
        return [geometry.shape for geometry in node.meta["memlint"].inputs]

    assert shapes()[1] == (16, 32)
    assert shapes(batch=2, dimensions={"width": 64})[1] == (2, 64)


def test_a_model_that_is_handed_over_stays_as_it_is():
    model = torch.nn.Linear(64, 8)
    compiling = torch.compile
    for target in (model, memlint.Declaration(model, torch.zeros(4, 64))):
        memlint.trace(target, batch=4, optimizer="sgd")
    assert torch.compile is compiling
    assert model.weight.device.type == "cpu"
    assert model.weight.grad is None
    assert "memlint_traced" not in sys.modules


def test_what_cannot_be_traced_is_a_clear_error(tmp_path):
    with pytest.raises(TargetError, match="does not exist"):
        memlint.trace("nope.py")
    with pytest.raises(UsageError, match="has no workloads"):
        memlint.trace(tmp_path)
    (tmp_path / "two.py").write_text(
        "import torch\nclass A(torch.nn.Linear):\n    def __init__(self): super().__init__(4, 5)\n"
        "    def forward(self, x): return x\nclass B(A):\n    def forward(self, x): return x\n"
    )
    with pytest.raises(UsageError, match="has 2 workloads") as raised:
        memlint.trace(tmp_path / "two.py")
    assert "two.py::A" in raised.value.hint
    with pytest.raises(WorkloadError, match="cannot be multiplied"):
        memlint.trace(lambda: (torch.nn.Linear(4, 5), torch.zeros(2, 3)))
