"""The recorded GPU runs whose program is known, and the same programs traced: what each of them allocates.

All sizes are bytes. The histories and their fields are described in fixtures/histories/README.md.
"""

from __future__ import annotations

import gzip
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from fixtures.scripts import lm, lm_27b
from fixtures.scripts.attention import AttentionForwardBackward
from fixtures.scripts.cnn_regressor import InputOptimization
from fixtures.scripts.linear_no_grad import LinearForwardNoGrad
from fixtures.scripts.mlp_checkpoint import MLPCheckpoint
from fixtures.scripts.nca import TwoAutomata
from fixtures.scripts.resnet18 import ResNet18Training
from memlint.memory.allocator.reference import Allocator, Block
from memlint.memory.devices import device_named
from memlint.memory.estimate import Interval, estimate
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import Program, trace_program
from tests.cuda.versions import simulated_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memlint.memory.devices import Device

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "histories"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in DIRECTORY.glob("*.json.gz"))

NO_WORKSPACES = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "CUBLASLT_WORKSPACE_SIZE": "0"}
SMALL_WORKSPACES = {"CUBLAS_WORKSPACE_CONFIG": ":16:8", "CUBLASLT_WORKSPACE_SIZE": "0"}
"""What the scripts of the MLP recordings set, one or the other."""
FOUR_MIB_WORKSPACES = {"CUBLAS_WORKSPACE_CONFIG": ":4096:1"}
"""What the development build behind the recording of ResNet-18 took of itself."""


A100 = device_named("a100-80gb")
TURING = replace(device_named("t4"), num_sms=72)
"""A Quadro RTX 6000, for what depends on the number of multiprocessors."""


@dataclass(frozen=True)
class Recording:
    """How to trace the program behind a history."""

    program: Callable[[], Program]
    torch: tuple[int, int]
    """The version it was recorded with, which is the one simulated."""
    num_steps: int = 1
    first_step: int | None = None
    """The step, counted from 0, that the history begins with; None where it begins before `setup()`."""
    device: Device = A100
    environment: Mapping[str, str] = field(default_factory=dict)


def _medium(context_length: int) -> lm.LMConfig:
    return replace(lm.MEDIUM, context_length=context_length)


RECORDINGS: Mapping[str, Recording] = {
    "attention-forward-backward": Recording(AttentionForwardBackward, (2, 6)),
    "cnn-regressor-anomaly-mode": Recording(InputOptimization, (2, 2), first_step=0, device=TURING),
    "linear-forward-no-grad-h100": Recording(LinearForwardNoGrad, (2, 4), device=device_named("h100-80gb")),
    "lm-2.7b-train-ctx128-fp32-h100": Recording(
        lm_27b.LMTraining, (2, 6), first_step=0, device=device_named("h100-80gb")
    ),
    "lm-medium-inference-ctx512-bf16amp": Recording(
        lambda: lm.LMInference(_medium(512), amp=True, num_warmups=5), (2, 11), num_steps=2, first_step=1
    ),
    "lm-medium-train-ctx128-fp32": Recording(
        lambda: lm.LMTraining(_medium(128), num_warmups=5), (2, 11), num_steps=2, first_step=1
    ),
    "lm-medium-train-ctx512-bf16amp": Recording(
        lambda: lm.LMTraining(_medium(512), amp=True, num_warmups=5), (2, 11), num_steps=2, first_step=1
    ),
    "lm-small-forward-ctx512-fp32": Recording(
        lambda: lm.LMInference(replace(lm.SMALL, context_length=512)), (2, 11), num_steps=5, first_step=0
    ),
    "mlp-checkpoint-a": Recording(lambda: MLPCheckpoint((100, 2048, 4096, 256, 10)), (2, 6), environment=NO_WORKSPACES),
    "mlp-checkpoint-b": Recording(
        lambda: MLPCheckpoint((100, 4096, 128, 10), classify=True), (2, 6), environment=SMALL_WORKSPACES
    ),
    "mlp-checkpoint-early-stop-off": Recording(
        lambda: MLPCheckpoint((100, 4096, 256, 10), early_stop=False), (2, 12), environment=NO_WORKSPACES
    ),
    "mlp-no-checkpoint": Recording(
        lambda: MLPCheckpoint((100, 4096, 256, 10), checkpointed=False), (2, 6), environment=NO_WORKSPACES
    ),
    "nca-own": Recording(TwoAutomata, (2, 5)),
    "resnet18-train-b8-fp32": Recording(
        ResNet18Training, (2, 0), device=device_named("v100-16gb"), environment=FOUR_MIB_WORKSPACES
    ),
}
"""Where five steps came before the recording, one comes here: each step after the first is like the one before."""


class Event(NamedTuple):
    """One call of the allocator."""

    nbytes: int
    """Positive when memory was taken, negative when it was given back."""
    op: str
    """The kernel that asked, without namespace and overload; `free` for frees."""


class Workspace(NamedTuple):
    """What cuDNN takes for one call of a convolution, and gives back at once."""

    after: int
    """How many other allocations came before."""
    nbytes: Interval


@dataclass(frozen=True)
class Run:
    """What a run allocates, recorded or predicted."""

    events: tuple[Event, ...]
    """Of the part that was recorded, without `workspaces`; between two allocations the frees come in order of size."""
    lifetimes: tuple[int | None, ...]
    """For each allocation, how many allocations had been made when it was given back; None if it was not."""
    requested: Interval
    allocated: Interval
    reserved: Interval
    """The peaks, what was alive when the recording began included."""
    peak_above_start: int
    """The most requested bytes above those alive at the start."""
    workspaces: tuple[Workspace, ...] = ()
    """Of convolutions: where the prediction has an interval."""

    @property
    def allocations(self) -> tuple[Event, ...]:
        """The events that take memory."""
        return tuple(event for event in self.events if event.nbytes > 0)


class _Call(NamedTuple):
    key: int
    """The same for an allocation and its free."""
    nbytes: int
    op: str


def recorded_run(name: str) -> Run:
    """What the GPU did."""
    with gzip.open(DIRECTORY / f"{name}.json.gz", "rt") as file:
        history = json.load(file)
    calls = []
    for kind, address, nbytes, _, *rest in history["events"]:
        if kind == "alloc":
            calls.append(_Call(address, nbytes, rest[0]))
        elif kind == "free":
            calls.append(_Call(address, -nbytes, "free"))
    peaks = history["peaks"]
    if not history["segments_at_end"]:
        peaks |= _replayed(calls)
    taken = {
        position
        for position, (call, following) in enumerate(pairwise(calls))
        if _is_convolution(call.op) and following == (call.key, -call.nbytes, "free")
    }
    others, workspaces = [], []
    for position, call in enumerate(calls):
        if position in taken:
            num_before = sum(other.nbytes > 0 for other in others)
            workspaces.append(Workspace(num_before, Interval.exact(call.nbytes)))
        elif position - 1 not in taken:
            others.append(call)
    exact = [Interval.exact(peaks[kind]) for kind in ("requested", "allocated", "reserved")]
    return Run(_events(others), _lifetimes(others), *exact, _peak(calls), tuple(workspaces))


def _is_convolution(op: str) -> bool:
    """Where the recording has no kernels, nothing else in backward is given back before anything else is taken."""
    return "conv" in op or not op


def _replayed(calls: Sequence[_Call]) -> dict[str, int]:
    """What the allocator, which is exact, makes of a recording without blocks and segments."""
    allocator = Allocator()
    blocks: dict[int, Block] = {}
    for key, nbytes, _ in calls:
        if nbytes > 0:
            blocks[key] = allocator.malloc(nbytes)
        else:
            allocator.free(blocks.pop(key))
    return {"allocated": allocator.peak_allocated, "reserved": allocator.peak_reserved}


def predicted_run(recording: Recording) -> Run:
    """What memlint says the program does, in the environment it was recorded in."""
    with environment(recording):
        trace = trace_program(recording.program(), recording.device, num_steps=recording.num_steps).trace
    first = 0 if recording.first_step is None else trace.nodes[trace.step_nodes[recording.first_step]].event
    doubts = {doubt.buffer: doubt for doubt in trace.doubts}
    calls, others, workspaces = [], [], []
    for event in trace.events[first:]:
        opens, buffer = event >= 0, trace.buffers[event if event >= 0 else ~event]
        call = _Call(buffer.id, buffer.nbytes if opens else -buffer.nbytes, buffer.op if opens else "free")
        calls.append(call)
        if buffer.id not in doubts:
            others += [call] if buffer.nbytes else []
        elif opens:
            num_before = sum(other.nbytes > 0 for other in others)
            doubt = doubts[buffer.id]
            workspaces.append(Workspace(num_before, Interval(doubt.low, buffer.nbytes, doubt.high)))
    peaks = estimate(Timeline.of(trace), recording.device, trace.nodes)
    intervals = peaks.requested, peaks.allocated, peaks.reserved
    return Run(_events(others), _lifetimes(others), *intervals, _peak(calls), tuple(workspaces))


def _peak(calls: Sequence[_Call]) -> int:
    return max(accumulate(call.nbytes for call in calls), default=0)


def _events(calls: Sequence[_Call]) -> tuple[Event, ...]:
    events: list[Event] = []
    frees: list[Event] = []
    for _, nbytes, op in calls:
        if nbytes < 0:
            frees.append(Event(nbytes, op))
            continue
        events += sorted(frees)
        frees = []
        events.append(Event(nbytes, op.split(".")[1] if "." in op else op))
    return (*events, *sorted(frees))


def _lifetimes(calls: Sequence[_Call]) -> tuple[int | None, ...]:
    lifetimes: list[int | None] = []
    alive: dict[int, int] = {}
    for key, nbytes, _ in calls:
        if nbytes > 0:
            alive[key] = len(lifetimes)
            lifetimes.append(None)
        elif key in alive:
            lifetimes[alive.pop(key)] = len(lifetimes)
    return tuple(lifetimes)


@contextmanager
def environment(recording: Recording) -> Iterator[None]:
    """Nothing about cuBLAS in the environment but what the script set, and the recording's version of PyTorch."""
    others = {name: value for name, value in os.environ.items() if name not in NO_WORKSPACES}
    with (
        patch.dict(os.environ, {**others, **recording.environment}, clear=True),
        simulated_torch(recording.torch),
    ):
        yield
