"""The step as a graph for other programs: kernels, and the tensors that flow between them.

JSON is networkx's node-link data, GraphML opens in Gephi and yEd, DOT in Graphviz. All three have the same vertices and
edges: a vertex for each kernel, one for each tensor that exists before the step, and an edge from the kernel that last
wrote a tensor to each kernel that uses it. Tensors that the step leaves behind unused have an edge to a vertex too.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import networkx as nx

from memlint.base.units import format_nbytes
from memlint.report.escaping import one_line
from memlint.report.exports.lifetimes import lacking
from memlint.report.model import Graph, Workload
from memlint.report.phrases import place_text, spaced, tensor_text

_COLORS = {
    "forward": "#cfe3f7",
    "backward": "#f9dcc4",
    "optimizer": "#d3ecd0",
    **dict.fromkeys(("evaluation", "prefill", "decode", "generation"), "#d9f0ee"),
    "saving": "#e8dff5",
    "other": "#eeeeee",
}


def render_graph(workloads: Sequence[Workload], ending: str) -> bytes:
    """Return the graphs of `workloads` in the format of files that end in `ending`.

    Raises TargetError if one lacks a graph.
    """
    network: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=", ".join(one_line(workload.name) for workload in workloads))
    for number, workload in enumerate(workloads):
        if workload.graph is None:
            raise lacking(workload, "graph", "graph")
        prefix = f"w{number}_" if len(workloads) > 1 else ""
        _add(network, workload.graph, prefix, {"workload": workload.name} if prefix else {})
    return _WRITERS[ending](network)


def _add(network: nx.MultiDiGraph[str], graph: Graph, prefix: str, common: dict[str, Any]) -> None:
    """Add the vertices and edges of one Workload: kernels are `n0`, `n1`, ..., boundary tensors `b0`, `b1`, ..."""
    for number, kernel in enumerate(graph.kernels):
        place = place_text(kernel.path, kernel.line, kernel.library)
        short = kernel.op.removeprefix("aten.").rpartition(".")[0] or kernel.op
        facts = kernel.model_dump(exclude={"read", "written", "opened", "library"})
        nbytes = {"read_nbytes": kernel.read, "written_nbytes": kernel.written, "opened_nbytes": kernel.opened}
        label = {"label": short, "kind": "kernel", "place": place, "step": graph.step}
        network.add_node(f"{prefix}n{number}", **_plain({**common, **label, **facts, **nbytes}))
    buffers = [_plain({**common, **_buffer(graph, number)}) for number in range(len(graph.nbytes))]

    def rim(number: int, kind: str) -> str:
        network.add_node(f"{prefix}b{number}", **{**buffers[number], "kind": kind})
        return f"{prefix}b{number}"

    for edge, (source, target, number) in enumerate(_edges(graph)):
        start = f"{prefix}n{source}" if source >= 0 else rim(number, "placeholder")
        end = f"{prefix}n{target}" if target >= 0 else rim(number, "output")
        network.add_edge(start, end, key=f"{prefix}e{edge}", buffer=number, **buffers[number])


def _edges(graph: Graph) -> Iterator[tuple[int, int, int]]:
    """Yield source, target and Buffer of every edge; -1 for the boundary."""
    yield from zip(graph.flow_sources, graph.flow_targets, graph.flow_buffers, strict=True)
    for number, (born, last_used, died) in enumerate(zip(graph.born, graph.last_used, graph.died, strict=True)):
        if born == last_used >= 0 > died:
            yield born, -1, number


def _buffer(graph: Graph, number: int) -> dict[str, Any]:
    site = graph.sites[graph.buffer_sites[number]]
    born, died, nbytes = graph.born[number], graph.died[number], graph.nbytes[number]
    end = died if died >= 0 else len(graph.kernels)
    return {
        "label": site.name or tensor_text(site.dtype, site.shape) or site.category,
        "nbytes": nbytes,
        "dtype": site.dtype,
        "shape": str(list(site.shape)),
        "category": site.category,
        "name": site.name,
        "module": site.module,
        "place": place_text(site.path, site.line, site.library),
        "born": born if born >= 0 else None,
        "last_used": graph.last_used[number] if graph.last_used[number] >= 0 else None,
        "died": died if died >= 0 else None,
        "lifetime": end - max(born, 0),
    }


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the known facts, with text on one line and without invisible characters."""
    facts = {name: one_line(value) if isinstance(value, str) else value for name, value in facts.items()}
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def _json(network: nx.MultiDiGraph[str]) -> bytes:
    return json.dumps(nx.node_link_data(network, edges="edges")).encode("ascii")


def _graphml(network: nx.MultiDiGraph[str]) -> bytes:
    file = io.BytesIO()
    nx.write_graphml_xml(network, file, encoding="utf-8")
    return file.getvalue()


def _dot(network: nx.MultiDiGraph[str]) -> bytes:
    lines = [
        f"digraph {_quoted(network.name)} {{",
        'node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
        'edge [fontname="sans-serif", fontsize=8, color="#666666"];',
    ]
    for vertex, facts in network.nodes(data=True):
        if facts["kind"] == "kernel":
            label = (facts.get("label", ""), facts.get("module", ""), facts.get("place", ""))
            look = f'fillcolor="{_COLORS[facts["phase"]]}"'
        else:
            label = (facts.get("label", ""), spaced(facts["category"]), format_nbytes(facts["nbytes"]))
            look = 'shape=ellipse, fillcolor="#ffffff"'
        lines.append(f"{vertex} [label={_quoted(*label)}, tooltip={_quoted(*_facts_by_line(facts))}, {look}];")
    for source, target, facts in network.edges(data=True):
        tooltip = _quoted(*_facts_by_line(facts))
        lines.append(f"{source} -> {target} [label={_quoted(format_nbytes(facts['nbytes']))}, tooltip={tooltip}];")
    return "\n".join([*lines, "}", ""]).encode("utf-8")


def _facts_by_line(facts: dict[str, Any]) -> Iterator[str]:
    return (f"{name}: {value}" for name, value in facts.items() if name not in ("label", "kind"))


def _quoted(*lines: str) -> str:
    """Quote these lines as a string of DOT, without anything that Graphviz takes for an escape, entity or end."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines if line)
    return '"' + "\\n".join(escaped) + '"'


_WRITERS = {".json": _json, ".graphml": _graphml, ".dot": _dot}
