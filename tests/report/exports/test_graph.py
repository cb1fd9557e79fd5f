"""The step as a graph: what networkx and Graphviz read back is what the trace has."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint import cli
from memlint.report.exports import GRAPH_ENDINGS
from memlint.report.exports.graph import render_graph
from memlint.report.formats.json import render_json
from memlint.report.from_trace import graph_of
from memlint.report.model import Report, Workload
from memlint.report.reading import parse_report
from tests.memory.conftest import trace_of
from tests.report.exports.samples import step, traces, workload_of

if TYPE_CHECKING:
    from memlint.memory.records import Trace

pytestmark = pytest.mark.usefixtures("copied_pythons")

MODELS = Path(__file__).parents[3] / "fixtures" / "models"
STATEMENT = re.compile(r'\w+(?: -> \w+)? \[label="(?:[^"\\]|\\.)*", tooltip="(?:[^"\\]|\\.)*"(?:, [\w=#",]+)*\];')


def with_graph(trace: Trace, name: str = "Model") -> Workload:
    return workload_of(trace, name=name).model_copy(update={"graph": graph_of(trace)})


def graphml(*workloads: Workload) -> nx.MultiDiGraph:
    return nx.read_graphml(io.BytesIO(render_graph(workloads, ".graphml")), force_multigraph=True)


def read_by_graphviz(dot: bytes) -> tuple[int, int]:
    """Numbers of nodes and edges."""
    counter = shutil.which("gc")
    if counter is None or shutil.which("dot") is None:
        pytest.skip("Graphviz is not installed")
    counted = subprocess.run([counter, "-n", "-e"], input=dot, capture_output=True, check=True)
    assert not counted.stderr
    nodes, edges = counted.stdout.split()[:2]
    return int(nodes), int(edges)


@pytest.fixture(scope="module")
def gpt2() -> tuple[Trace, Workload]:
    pytest.importorskip("torch")
    from memlint.memory.devices import device_named
    from memlint.tracing.recorder import trace_program
    from memlint.workloads.construction.construct import build_program
    from memlint.workloads.discover import find_workloads

    (found,) = find_workloads(str(MODELS / "gpt2.py"), MODELS, overrides={"batch": 2}).workloads
    trace = trace_program(build_program(found, MODELS), device_named("a100-80gb")).trace
    return trace, step().model_copy(update={"graph": graph_of(trace)})


def test_graphml_of_gpt2_has_the_kernels_and_the_bytes_of_its_trace(gpt2):
    trace, workload = gpt2
    network = graphml(workload)
    nodes = [node for node in trace.nodes if node.step == trace.num_steps - 1]
    kernels = [facts for _, facts in network.nodes(data=True) if facts["kind"] == "kernel"]
    assert [(each["op"], each["phase"], each.get("line"), each.get("module", "")) for each in kernels] == [
        (node.op, node.phase, node.frame.line if node.frame else None, node.module) for node in nodes
    ]
    opened = [trace.buffers[event] for event in trace.events if event >= 0]
    of_step = [buffer for buffer in opened if buffer.node >= nodes[0].index]
    assert sum(each["opened_nbytes"] for each in kernels) == sum(buffer.nbytes for buffer in of_step)
    assert sum(each["flops"] for each in kernels) > 10**12
    buffers = {facts["buffer"]: facts["nbytes"] for *_, facts in network.edges(data=True)}
    used = {geometry.buffer for node in nodes for geometry in (*node.inputs, *node.outputs)} & {b.id for b in opened}
    found_there = {buffer for buffer in used if trace.buffers[buffer].node < nodes[0].index}
    placeholders = [facts["nbytes"] for _, facts in network.nodes(data=True) if facts["kind"] == "placeholder"]
    assert sum(placeholders) == sum(trace.buffers[buffer].nbytes for buffer in found_there)
    read = {g.buffer for node in nodes for g in node.inputs} & {b.id for b in of_step}
    flowing = {buffer for buffer in read if trace.buffers[buffer].last_used > trace.buffers[buffer].node} | found_there
    assert sum(buffers.values()) == sum(trace.buffers[buffer].nbytes for buffer in flowing)
    assert nx.is_directed_acyclic_graph(network)


def test_every_format_has_the_same_graph_of_gpt2(gpt2):
    _, workload = gpt2
    network = graphml(workload)
    numbers = network.number_of_nodes(), network.number_of_edges()
    linked = nx.node_link_graph(json.loads(render_graph([workload], ".json")), edges="edges")
    assert (linked.number_of_nodes(), linked.number_of_edges()) == numbers
    assert {vertex: facts["label"] for vertex, facts in linked.nodes(data=True)} == dict(network.nodes(data="label"))
    assert read_by_graphviz(render_graph([workload], ".dot")) == numbers


@given(traces())
@settings(max_examples=25)
def test_bytes_opened_in_the_step_are_those_of_the_trace(trace):
    network = graphml(with_graph(trace))
    kernels = [facts for _, facts in network.nodes(data=True) if facts["kind"] == "kernel"]
    first = trace.step_nodes[-1] if trace.step_nodes else 0
    opened = sum(buffer.nbytes for buffer in trace.buffers if buffer.node >= first)
    assert sum(each["opened_nbytes"] for each in kernels) == opened
    assert nx.is_directed_acyclic_graph(network)


def test_edges_carry_the_tensor_and_its_lifetime(monkeypatch):
    monkeypatch.setattr("memlint.report.from_trace.node_flops", lambda node: node.index)
    trace = trace_of(
        [{"opens": [10], "setup": True}, {"opens": [20], "uses": [0], "line": 7}, {"uses": [1], "closes": [1]}, {}]
    )
    network = graphml(with_graph(trace))
    assert network.nodes["n0"]["place"] == "model.py:7"
    assert network.nodes["n1"]["flops"] == 1
    assert set(network.edges()) == {("b0", "n0"), ("n0", "n1")}
    (facts,) = network["n0"]["n1"].values()
    assert facts == {
        "label": "uint8[20]",
        "buffer": 1,
        "nbytes": 20,
        "dtype": "uint8",
        "shape": "[20]",
        "category": "temporary",
        "place": "model.py:7",
        "born": 0,
        "last_used": 1,
        "died": 1,
        "lifetime": 1,
    }


def test_what_the_step_leaves_unused_is_a_vertex():
    network = graphml(with_graph(trace_of([{"opens": [20]}, {"opens": [30], "closes": [1]}])))
    assert set(network.edges()) == {("n0", "b0")}
    assert network.nodes["b0"]["kind"] == "output"


def test_several_workloads_are_parts_of_one_graph():
    workloads = [with_graph(trace_of([{"opens": [20]}, {"uses": [0]}]), name) for name in ("A", "B")]
    network = graphml(*workloads)
    assert {facts["workload"] for _, facts in network.nodes(data=True)} == {"A", "B"}
    assert set(network.edges()) == {("w0_n0", "w0_n1"), ("w1_n0", "w1_n1")}


HOSTILE = st.text(max_size=30) | st.sampled_from(
    ['"', "\\", '\\"', "a\\", "<b>", "&lt;", "]]>", "n0 -> n1", "\n", "\x00", "\ud800", "\\N"]
)


@given(st.lists(HOSTILE, min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_no_name_breaks_out_of_its_string(names):
    workload = with_graph(trace_of([{"opens": [20], "uses": []}, *({"uses": [0]} for _ in names)]), names[0] or "x")
    graph = workload.graph
    kernels = [
        graph.kernels[0],
        *(
            kernel.model_copy(update={"op": name, "path": name, "module": name, "function": name, "line": 3})
            for kernel, name in zip(graph.kernels[1:], names, strict=True)
        ),
    ]
    sites = [
        site.model_copy(update={"name": names[-1], "module": names[-1], "dtype": names[0]}) for site in graph.sites
    ]
    hostile = workload.model_copy(update={"graph": graph.model_copy(update={"kernels": kernels, "sites": sites})})
    expected = len(names) + 1, len(names)
    dot = render_graph([hostile], ".dot")
    first, *statements, last = dot.decode("utf-8").splitlines()
    assert re.fullmatch(r'digraph "(?:[^"\\]|\\.)*" \{', first)
    assert last == "}"
    assert all(STATEMENT.fullmatch(statement) for statement in statements[2:])
    assert len(statements) - 2 == sum(expected)
    network = graphml(hostile)
    assert (network.number_of_nodes(), network.number_of_edges()) == expected
    assert len(json.loads(render_graph([hostile], ".json"))["nodes"]) == expected[0]
    if shutil.which("dot"):
        assert read_by_graphviz(dot) == expected


def test_a_report_keeps_its_graph_and_refuses_a_broken_one():
    workload = with_graph(trace_of([{"opens": [20]}, {"uses": [0]}]))
    report = Report(tool="memlint 0", workloads=[workload])
    assert parse_report(render_json(report).encode(), "r.json").workloads[0].graph == workload.graph
    for change in ({"flow_sources": [1]}, {"flow_buffers": [7]}, {"died": [9]}, {"born": []}, {"buffer_sites": [5]}):
        document = report.model_dump(mode="json")
        document["workloads"][0]["graph"] |= change
        with pytest.raises(Exception, match=r"workloads\.0\.graph: .* lie outside of its lists"):
            parse_report(json.dumps(document).encode(), "r.json")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workload = with_graph(trace_of([{"opens": [20]}, {"uses": [0]}]))
    Path("r.json").write_text(render_json(Report(tool="memlint 0", workloads=[workload])), encoding="utf-8")
    Path("none.json").write_text(render_json(Report(tool="memlint 0", workloads=[step("GPT")])), encoding="utf-8")
    return tmp_path


def memlint_report(*arguments: str):
    return CliRunner().invoke(cli.main, ["report", *arguments, "--format", "graph"])


@pytest.mark.parametrize("ending", GRAPH_ENDINGS)
def test_the_ending_of_the_file_is_the_format(folder, ending):
    done = memlint_report("r.json", "-o", f"step{ending}")
    assert (done.exit_code, done.stderr) == (0, f"Wrote step{ending}\n")
    begins = {".json": b'{"directed": true', ".graphml": b"<?xml", ".dot": b"digraph"}
    assert Path(f"step{ending}").read_bytes().startswith(begins[ending])


def test_without_a_file_it_is_json_named_after_the_source(folder):
    assert memlint_report("r.json").stderr == "Wrote r.graph.json\n"


def test_another_ending_and_a_report_without_a_graph_are_clear_errors(folder):
    refused = memlint_report("r.json", "-o", "step.png")
    assert refused.exit_code == 2
    assert "step.png names no format of a graph" in refused.stderr
    assert ".json or .graphml or .dot" in refused.stderr
    lacking = memlint_report("none.json")
    assert lacking.exit_code == 2
    assert "GPT has no graph, which graph is made of" in lacking.stderr
    assert "memlint check model.py::GPT --graph --output-format json -o report.json" in lacking.stderr


def test_a_model_becomes_every_format(folder):
    pytest.importorskip("torch")
    Path("mlp.py").write_text((MODELS / "mlp.py").read_text(encoding="utf-8"), encoding="utf-8")
    for ending in GRAPH_ENDINGS:
        done = memlint_report("mlp.py", "--batch", "2", "-o", f"mlp{ending}")
        assert (done.exit_code, done.stderr) == (0, f"Wrote mlp{ending}\n")
    written = CliRunner().invoke(
        cli.main, ["check", "mlp.py", "--batch", "2", "--graph", "--output-format", "json", "-o", "mlp.report.json"]
    )
    assert written.exit_code in (0, 1)
    assert memlint_report("mlp.report.json", "-o", "again.dot").exit_code == 0
    assert Path("again.dot").read_bytes() == Path("mlp.dot").read_bytes()
    refused = CliRunner().invoke(cli.main, ["check", "mlp.py", "--graph"])
    assert "text has no place for --graph" in refused.stderr
