"""The snapshot for PyTorch's memory_viz."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import pickletools
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint.base.errors import UsageError
from memlint.memory.allocator.reference import Allocator, AllocatorSettings, OutOfMemory
from memlint.report.exports.memviz import render_memviz
from tests.report.exports.samples import MIB, SETTINGS, lifetimes_of, step, traces, workload_of

VIEWER = "MEMLINT_MEMORY_VIZ"
OPCODES = {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE"),
    *("EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1"),
    *("TUPLE2", "TUPLE3", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE"),
}
"""What `unpickleData` in PyTorch's torch/utils/viz/MemoryViz.js knows."""


def snapshot_of(*workloads):
    return pickle.loads(render_memviz([lifetimes_of(workload) for workload in workloads]))


def changes(trace, more: str, less: str) -> list[int]:
    sign = {more: 1, less: -1}
    return [sign.get(entry["action"], 0) * entry["size"] for entry in trace]


def requested_peak(trace) -> int:
    return max(accumulate(changes(trace, "alloc", "free_completed")), default=0)


def reserved_peak(trace) -> int:
    whole, mapped = changes(trace, "segment_alloc", "segment_free"), changes(trace, "segment_map", "segment_unmap")
    return max(accumulate(a + b for a, b in zip(whole, mapped, strict=True)), default=0)


@given(traces(), st.sampled_from(SETTINGS))
@settings(max_examples=25)
def test_the_trace_replays_to_the_peaks_of_the_report(trace, allocator):
    workload = workload_of(trace, allocator)
    (entries,) = snapshot_of(workload)["device_traces"]
    assert requested_peak(entries) == workload.estimate.peak.requested.estimate
    assert reserved_peak(entries) == workload.estimate.peak.reserved.estimate
    assert allocated_peak(entries, allocator, workload.timeline.emptied) == workload.estimate.peak.allocated.estimate


def allocated_peak(trace, allocator: str, emptied: Sequence[int]) -> int:
    """Ask an allocator for what the trace asks for: with its share of the GPU, or without if that fails."""
    limits = AllocatorSettings.parse(allocator)
    for share in (int(limits.memory_fraction * 85_097_971_712), None):
        replay = Allocator(limits, share=share)
        with contextlib.suppress(OutOfMemory):
            return _replayed(replay, trace, emptied).peak_allocated
    raise AssertionError("without a limit there is enough")


def _replayed(replay: Allocator, trace, emptied: Sequence[int]) -> Allocator:
    live, left = {}, list(emptied)
    for entry in trace:
        while left and left[0] <= entry["time_us"]:
            replay.empty_cache()
            left.pop(0)
        if entry["action"] == "alloc":
            live[entry["addr"]] = replay.malloc(entry["size"])
        elif entry["action"] == "free_completed":
            replay.free(live.pop(entry["addr"]))
    return replay


@given(traces(), st.sampled_from(SETTINGS))
@settings(max_examples=25)
def test_every_block_lies_in_a_segment_and_in_no_other_block(trace, allocator):
    (entries,) = snapshot_of(workload_of(trace, allocator))["device_traces"]
    unit = 2 * MIB  # of which segments are made
    reserved: set[int] = set()
    taken: dict[int, int] = {}
    for entry in entries:
        first, size = entry["addr"], entry["size"]
        units = range(first // unit, -(-(first + size) // unit))
        match entry["action"]:
            case "segment_alloc" | "segment_map":
                assert reserved.isdisjoint(units)
                reserved.update(units)
            case "segment_free" | "segment_unmap":
                assert reserved.issuperset(units)
                reserved.difference_update(units)
            case "alloc":
                assert first % 512 == 0
                assert reserved.issuperset(units)
                assert all(first + size <= other or other + taken[other] <= first for other in taken)
                taken[first] = size
            case "free_completed":
                assert taken.pop(first) == size


@given(traces(), st.sampled_from(SETTINGS))
@settings(max_examples=25)
def test_segments_are_what_is_left_after_the_last_event(trace, allocator):
    snapshot = snapshot_of(workload_of(trace, allocator))
    (entries,) = snapshot["device_traces"]
    left = {}
    for entry in entries:
        if entry["action"] == "alloc":
            left[entry["addr"]] = entry["size"], entry["frames"]
        elif entry["action"] == "free_completed":
            del left[entry["addr"]]
    found = {}
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
            if block["state"] == "active_allocated":
                found[block["address"]] = block["requested_size"], block["frames"]
        assert address == segment["address"] + segment["total_size"]
        in_use = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert segment["allocated_size"] == segment["active_size"] == sum(block["size"] for block in in_use)
        assert segment["requested_size"] == sum(block["requested_size"] for block in in_use)
    assert found == left
    reserved = sum(changes(entries, "segment_alloc", "segment_free"))
    reserved += sum(changes(entries, "segment_map", "segment_unmap"))
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == reserved


@given(traces(), st.sampled_from(SETTINGS))
@settings(max_examples=20)
def test_the_pickle_holds_only_what_the_viewer_reads(trace, allocator):
    data = render_memviz([lifetimes_of(workload_of(trace, allocator))])
    used = {opcode.name for opcode, _argument, _position in pickletools.genops(data)}
    assert used <= OPCODES
    assert data[:2] == b"\x80\x04"


def test_frees_are_pairs_and_segments_come_first():
    (entries,) = snapshot_of(step())["device_traces"]
    actions = [entry["action"] for entry in entries]
    assert actions[:2] == ["segment_alloc", "alloc"]
    for position, action in enumerate(actions):
        if action == "free_requested":
            pair = entries[position : position + 2]
            assert [entry["action"] for entry in pair] == ["free_requested", "free_completed"]
            assert pair[0]["addr"] == pair[1]["addr"]
    assert Counter(actions)["free_requested"] == 3
    assert [entry["time_us"] for entry in entries] == sorted(entry["time_us"] for entry in entries)


def test_every_allocation_says_what_it_is():
    (entries,) = snapshot_of(step())["device_traces"]
    first, second, *_ = (entry for entry in entries if entry["action"] == "alloc" and entry["size"] != 4 * MIB)
    assert first["category"] == "activation"
    assert first["frames"] == [
        {"filename": "blocks.0", "line": 0, "name": f"aten.op.default uint8[{8 * MIB}]"},
        {"filename": "model.py", "line": 7, "name": "forward"},
    ]
    assert first["user_metadata"] == {"made in": "forward of step 0"}
    assert second["size"] == 6 * MIB
    free = next(entry for entry in entries if entry["action"] == "free_requested")
    assert free["frames"] == [{"filename": "backward of step 0", "line": 0, "name": "freed"}]
    assert "unknown" in {entry.get("category") for entry in entries}


def test_several_workloads_are_several_devices():
    snapshot = snapshot_of(step("A"), step("B", allocator="expandable_segments:True"))
    assert len(snapshot["device_traces"]) == 2
    assert {segment["device"] for segment in snapshot["segments"]} == {0, 1}
    assert snapshot["allocator_settings"] == {"PYTORCH_CUDA_ALLOC_CONF": "; expandable_segments:True"}


def test_the_host_has_no_caching_allocator():
    with pytest.raises(UsageError, match="Model was estimated for the host") as raised:
        render_memviz([lifetimes_of(step().model_copy(update={"gpu": "cpu"}))])
    assert "--gpu" in raised.value.hint


@pytest.mark.parametrize("gpu", [None, "z999"])
def test_a_gpu_that_is_not_known_is_an_error(gpu):
    with pytest.raises(UsageError):
        render_memviz([lifetimes_of(step().model_copy(update={"gpu": gpu}))])


def test_pytorchs_own_tool_reads_it():
    viz = pytest.importorskip("torch.cuda._memory_viz")
    workloads = step("A"), step("B")
    assert "cudaMalloc" in viz.trace(snapshot_of(*workloads))
    assert "free" in viz.segsum(snapshot_of(*workloads))
    assert len(viz.trace_plot(snapshot_of(*workloads))) > 1000
    flames = viz.memory(snapshot_of(workloads[0]), format_flamegraph=lambda text: text).splitlines()
    held = [line for line in flames if "active_allocated" in line]
    assert sum(int(line.rpartition(" ")[2]) for line in held) == 8 * MIB + 1024  # rounded
    assert all("aten.op.default" in line for line in held if "<gaps>" not in line)


def viewer_says(tmp_path: Path, *workloads):
    """What PyTorch's viewer makes of the snapshot."""
    folder, node = os.environ.get(VIEWER, ""), shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if not (Path(folder) / "MemoryViz.js").is_file():
        pytest.skip(f"{VIEWER} does not name torch/utils/viz of PyTorch's source")
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(render_memviz([lifetimes_of(workload) for workload in workloads]))
    command = [node, str(Path(__file__).with_name("viewer.mjs")), folder, str(file)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("allocator", SETTINGS[:3])
def test_the_viewer_plots_the_peaks_of_the_report(tmp_path, allocator):
    workloads = step("A", allocator=allocator), step("B", allocator=allocator)
    said = viewer_says(tmp_path, *workloads)
    assert "unknown" in said["categories"]
    for workload, device in zip(workloads, said["devices"], strict=True):
        peak = workload.estimate.peak
        assert device["active_peak"] == peak.requested.estimate
        if not allocator.startswith("expandable"):  # the viewer's timeline of segments leaves these out
            assert device["segments_peak"] == peak.reserved.estimate
        assert device["end_state"] == [peak.reserved.estimate, 8 * MIB + 1000]
        assert f"blocks.0:0:aten.op.default uint8[{8 * MIB}]\nmodel.py:7:forward" in device["biggest"]
