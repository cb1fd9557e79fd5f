"""Recordings of real GPUs, looked at as Captures: the peaks are those that the GPU had."""

import gzip
import json
import pickle
from pathlib import Path

import pytest

from memlint.base.errors import TargetError
from memlint.capture.looks import estimate_of
from memlint.capture.recording import open_recording

HISTORIES = Path(__file__).parents[2] / "fixtures" / "histories"
WHOLE = sorted(
    file.name.removesuffix(".json.gz")
    for file in HISTORIES.glob("*.json.gz")
    if json.loads(gzip.decompress(file.read_bytes()))["starts_empty"]
)


def peaks(capture):
    estimate = estimate_of(capture)
    return {name: getattr(estimate, name).estimate for name in ("requested", "allocated", "reserved")}


@pytest.mark.parametrize("name", WHOLE)
def test_a_history_that_starts_empty_has_the_peaks_of_the_gpu(name):
    file = HISTORIES / f"{name}.json.gz"
    recorded = json.loads(gzip.decompress(file.read_bytes()))["peaks"]
    found = peaks(open_recording(file))
    assert found["requested"] == recorded["requested"]
    assert found["reserved"] == recorded.get("reserved", found["reserved"])


def test_what_was_there_before_the_recording_counts():
    file = HISTORIES / "lm-2.7b-train-ctx128-fp32-h100.json.gz"
    recorded = json.loads(gzip.decompress(file.read_bytes()))["peaks"]
    capture = open_recording(file)
    assert peaks(capture)["requested"] == recorded["requested"]
    assert any("before the recording" in each.text for each in capture.assumptions)


SNAPSHOT = {
    "segments": [
        {
            "device": 0, "address": 2**30, "total_size": 20 * 2**20, "stream": 0,
            "blocks": [
                {"address": 2**30, "size": 4 * 2**20, "requested_size": 4 * 2**20, "state": "active_allocated",
                 "frames": [{"filename": "model.py", "line": 7, "name": "build"}]},
                {"address": 2**30 + 4 * 2**20, "size": 16 * 2**20, "requested_size": 0, "state": "inactive", "frames": []},
            ],
        }
    ],
    "device_traces": [
        [
            {"action": "alloc", "addr": 2**30 + 4 * 2**20, "size": 3_000_000, "stream": 0,
             "frames": [
                 {"filename": "??", "line": 0, "name": "at::_ops::mm::call"},
                 {"filename": "/site-packages/torch/nn/functional.py", "line": 3, "name": "linear"},
                 {"filename": "train.py", "line": 31, "name": "step"},
             ]},
            {"action": "free_requested", "addr": 2**30 + 4 * 2**20, "size": 3_000_000, "stream": 0, "frames": []},
            {"action": "free_completed", "addr": 2**30 + 4 * 2**20, "size": 3_000_000, "stream": 0, "frames": []},
        ],
        [],
    ],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
}  # fmt: skip


def test_a_snapshot_of_pytorch_gives_lines_settings_and_what_was_there(tmp_path):
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps(SNAPSHOT))
    capture = open_recording(file)
    before, made = capture.trace.buffers
    assert (before.nbytes, before.frame.line, before.step) == (4 * 2**20, 7, -1)
    assert (made.nbytes, str(made.frame)) == (3_000_000, "train.py:31")
    assert capture.workload.allocator == "expandable_segments:True"
    assert peaks(capture)["requested"] == 4 * 2**20 + 3_000_000
    assert any("reserved 20.0 MiB" in each.text for each in capture.assumptions)


class Bomb:
    def __reduce__(self):
        return (print, ("it ran",))


@pytest.mark.parametrize(
    "content",
    [pickle.dumps(Bomb()), pickle.dumps({"segments": Bomb()}), b"", b"\x80\x04.", pickle.dumps([1]), pickle.dumps({}),
     pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc"}]]}),
     pickle.dumps({"segments": [], "device_traces": []}), pickle.dumps({"segments": [], "device_traces": [[]]})],
)  # fmt: skip
def test_no_pickle_runs_code_and_what_is_no_snapshot_is_refused(tmp_path, capsys, content):
    file = tmp_path / "other.pickle"
    file.write_bytes(content)
    with pytest.raises(TargetError) as refused:
        open_recording(file)
    assert "_record_memory_history" in refused.value.hint
    assert "it ran" not in capsys.readouterr().out
