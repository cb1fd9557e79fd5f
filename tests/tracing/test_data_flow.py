"""The edges of a Trace."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from memlint.memory.records import Flow, Geometry, data_flow
from tests.memory.conftest import random_trace, trace_of

PROGRAMS = st.lists(
    st.tuples(st.lists(st.integers(0, 1000), max_size=3), st.integers(0, 50), st.integers(0, 50)), max_size=30
)


def test_a_flow_leads_from_the_maker_to_every_user() -> None:
    trace = trace_of([{"opens": [10], "setup": True}, {"opens": [20], "uses": [0]}, {"uses": [1]}, {"uses": [1, 0]}])
    assert set(data_flow(trace)) == {Flow(-1, 0, 0), Flow(0, 1, 1), Flow(0, 2, 1), Flow(-1, 2, 0)}


def test_who_writes_in_place_stands_between_the_maker_and_later_users() -> None:
    trace = trace_of([{"opens": [10]}, {"uses": [0]}, {"uses": [0]}])
    written = trace.nodes[1]._replace(outputs=(Geometry(0, (10,), (1,), "uint8"),))
    flows = data_flow(replace(trace, nodes=(trace.nodes[0], written, trace.nodes[2])))
    assert list(flows) == [Flow(0, 1, 0), Flow(1, 2, 0)]


@given(PROGRAMS)
def test_flows_make_no_cycle_and_end_at_the_last_use(program) -> None:
    trace = random_trace(program)
    graph = nx.MultiDiGraph()
    last = [buffer.node for buffer in trace.buffers]
    for flow in data_flow(trace):
        graph.add_edge(flow.source, flow.target, key=flow.buffer)
        last[flow.buffer] = flow.target
    assert nx.is_directed_acyclic_graph(graph)
    assert last == [buffer.last_used for buffer in trace.buffers]
