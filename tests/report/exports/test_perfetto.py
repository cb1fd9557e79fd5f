"""The trace for Perfetto, held against the rules of Chrome's trace format."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import accumulate

from hypothesis import given, settings

from memlint.report.exports import perfetto
from memlint.report.exports.perfetto import SMALLEST, render_perfetto
from tests.report.exports.samples import MIB, lifetimes_of, step, traces, workload_of


def events_of(*workloads, **kinds):
    events = json.loads(render_perfetto([lifetimes_of(workload) for workload in workloads]))["traceEvents"]
    return [event for event in events if all(event.get(key) == value for key, value in kinds.items())]


@given(traces())
@settings(max_examples=25)
def test_counters_are_the_live_bytes_after_every_event(trace):
    workload = workload_of(trace)
    timeline = workload.timeline
    live = list(accumulate(timeline.nbytes[e] if e >= 0 else -timeline.nbytes[~e] for e in timeline.events))
    whole = events_of(workload, ph="C", name="all requested bytes")
    parts = events_of(workload, ph="C", name="requested bytes")
    assert [(event["ts"], event["args"]["live"]) for event in whole] == list(enumerate(live))
    assert [(event["ts"], sum(event["args"].values())) for event in parts] == list(enumerate(live))
    assert all(min(event["args"].values()) >= 0 for event in parts)
    assert len({tuple(event["args"]) for event in parts}) <= 1  # a series that comes and goes is drawn with gaps


@given(traces())
@settings(max_examples=25)
def test_asynchronous_slices_are_balanced_and_nested(trace):
    open_slices = defaultdict(list)
    workload = workload_of(trace)
    shown = 0
    for event in events_of(workload):
        key = event["pid"], event.get("cat"), event.get("id2", {}).get("local")
        if event["ph"] == "b":
            open_slices[key].append((event["name"], event["ts"]))
            shown += len(open_slices[key]) == 2
        elif event["ph"] == "e":
            name, start = open_slices[key].pop()
            assert event["name"] == name
            assert event["ts"] > start
    assert not any(open_slices.values())
    assert shown == sum(nbytes >= SMALLEST for nbytes in workload.timeline.nbytes)


@given(traces())
@settings(max_examples=25)
def test_steps_and_their_phases_nest_and_cover_all_events(trace):
    workload = workload_of(trace)
    slices = events_of(workload, ph="X")
    assert all(event["dur"] > 0 for event in slices)
    for one in slices:
        for other in slices:
            first, second = sorted((one, other), key=lambda event: (event["ts"], -event["dur"]))
            apart = first["ts"] + first["dur"] <= second["ts"]
            inside = second["ts"] + second["dur"] <= first["ts"] + first["dur"]
            assert apart or inside
    steps = [event for event in slices if event["name"].startswith(("step", "setup"))]
    assert sum(event["dur"] for event in steps) == len(workload.timeline.events)


def test_phases_the_peak_and_what_is_large_are_named():
    workload = step()
    names = [event["name"] for event in events_of(workload, ph="X")]
    assert names == ["setup", "step 0", "forward", "backward", "optimizer"]
    (peak,) = events_of(workload, ph="i")
    assert peak["name"] == "peak 21.0 MiB"
    assert (peak["ts"], peak["args"]) == (workload.timeline.peak, {"requested bytes": 21 * MIB})
    outer, inner = events_of(workload, ph="b", cat="activation")[:2]
    assert (outer["name"], inner["name"]) == ("activation", "8.00 MiB model.py:7")
    assert inner["args"] == {
        "nbytes": 8 * MIB,
        "tensor": f"uint8[{8 * MIB}]",
        "op": "aten.op.default",
        "module": "blocks.0",
        "line": "model.py:7",
        "function": "forward",
        "made in": "forward of step 0",
    }


def test_several_workloads_are_several_processes():
    events = events_of(step("A"), step("B"))
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {
        1: "A: one event of the allocator a microsecond",
        2: "A: tensors of 1.00 MiB and more",
        3: "B: one event of the allocator a microsecond",
        4: "B: tensors of 1.00 MiB and more",
    }
    assert {event["pid"] for event in events if event["ph"] in "XCi"} == {1, 3}
    assert {event["pid"] for event in events if event["ph"] in "be"} == {2, 4}


def test_the_largest_tensors_are_shown_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(perfetto, "MOST_BUFFERS", 2)
    shown = [event["args"]["nbytes"] for event in events_of(step(), ph="b") if "args" in event]
    assert shown == [8 * MIB, 6 * MIB]
