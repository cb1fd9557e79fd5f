"""The caching allocator's history, reduced to the fields that determine its bytes, as in fixtures/histories."""

import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
_AUTOGRAD_ENGINE = "torch::autograd::Engine::"
_SEGMENT_EVENTS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
_STATES = {"active_allocated": "active_allocated", "active_pending_free": "active_allocated"}


def compact_history(snapshot: Mapping[str, Any], device: int) -> dict[str, Any]:
    """Return events, final segments and peaks of `torch.cuda.memory._snapshot()`, recorded from an empty allocator.

    An event is `[action, address, bytes, stream]`, an `alloc` also has the innermost ATen operator and the phase.
    """
    events: list[list[Any]] = []
    for entry in snapshot["device_traces"][device]:
        place = [entry.get("addr", -1), entry["size"], entry["stream"]]
        match entry["action"]:
            case "alloc":
                frames = entry.get("frames", ())
                events.append(["alloc", *place, _operator(frames), _phase(frames)])
            case "free_completed":
                events.append(["free", *place])
            case action if action in _SEGMENT_EVENTS:
                events.append([action, *place])
    settings = snapshot.get("allocator_settings", {})
    return {
        "starts_empty": True,
        "allocator_settings": {"conf": settings.get("PYTORCH_CUDA_ALLOC_CONF", "")},
        "peaks": peaks_of(events),
        "events": events,
        "segments_at_end": [_segment(segment) for segment in snapshot["segments"] if segment["device"] == device],
    }


def peaks_of(events: Iterable[Sequence[Any]]) -> dict[str, int]:
    """Return the most requested and reserved bytes at once."""
    requested = reserved = most_requested = most_reserved = 0
    for action, _, nbytes, *_ in events:
        match action:
            case "alloc":
                requested += nbytes
            case "free":
                requested -= nbytes
            case "segment_alloc" | "segment_map":
                reserved += nbytes
            case "segment_free" | "segment_unmap":
                reserved -= nbytes
        most_requested, most_reserved = max(most_requested, requested), max(most_reserved, reserved)
    return {"requested": most_requested, "reserved": most_reserved}


def write_history(history: Mapping[str, Any], file: Path) -> None:
    """Write the history as gzipped JSON; equal histories give equal bytes."""
    text = json.dumps(history, separators=(",", ":")).encode()
    file.write_bytes(gzip.compress(text, mtime=0))


def _operator(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return the innermost ATen operator on the stack, whose innermost frame is first; empty without C++ frames."""
    return next((match[1] for frame in frames if (match := _OPERATOR.search(frame["name"]))), "")


def _phase(frames: Sequence[Mapping[str, Any]]) -> str:
    if any("/torch/optim/" in frame["filename"].replace("\\", "/") for frame in frames):
        return "optimizer"
    return "backward" if any(_AUTOGRAD_ENGINE in frame["name"] for frame in frames) else "forward"


def _segment(segment: Mapping[str, Any]) -> list[Any]:
    blocks = [
        [block["size"], block.get("requested_size", block["size"]), _STATES.get(block["state"], "inactive")]
        for block in segment["blocks"]
    ]
    return [
        segment["address"],
        segment["total_size"],
        segment["stream"],
        segment["segment_type"],
        bool(segment.get("is_expandable", False)),
        blocks,
    ]
