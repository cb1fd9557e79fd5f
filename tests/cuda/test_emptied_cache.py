"""Segments that a program gives back with `torch.cuda.empty_cache` are not reserved any more, whatever is asked next."""

from __future__ import annotations

import json
import pickle
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from memlint.cli import main
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate
from memlint.memory.step_order import Steps
from memlint.memory.timeline import Timeline, end_at
from memlint.tracing.recorder import trace_program

MIB = 2**20
A100 = device_named("a100-80gb")


class InStages:
    """Allocates 64 MiB, drops them, and allocates as much in blocks that fit into the segment, or in ones that do not."""

    def __init__(self, *, empties: bool, mib: int, side: bool = False) -> None:
        self.empties, self.mib, self.side = empties, mib, side
        self.seen = 0

    def setup(self) -> None:
        self.streams = [torch.cuda.Stream()] if self.side else []

    def step(self) -> None:
        first = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        for stream in self.streams:
            first.record_stream(stream)
        del first
        if self.empties:
            torch.cuda.empty_cache()
        second = [torch.empty(self.mib * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
        self.seen = torch.cuda.max_memory_reserved()
        del second


def traced(**options):
    program = InStages(**options)
    recorded = trace_program(program, A100)
    return Timeline.of(recorded.trace), recorded.trace.nodes, program.seen


@pytest.mark.parametrize("settings", [None, AllocatorSettings(expandable_segments=True)])
def test_what_was_given_back_does_not_count_beside_what_is_asked_next(settings):
    def most(**options):
        timeline, nodes, _seen = traced(**options)
        return estimate(timeline, A100, nodes, settings).reserved.estimate // MIB

    assert most(empties=True, mib=80) == 240
    assert most(empties=False, mib=80) == (240 if settings else 304)


@pytest.mark.parametrize("empties", [True, False])
@pytest.mark.parametrize("mib", [16, 80])
def test_the_program_is_told_the_bytes_of_the_estimate(empties, mib):
    timeline, nodes, seen = traced(empties=empties, mib=mib)
    assert estimate(timeline, A100, nodes).reserved.estimate == seen


def test_it_waits_for_other_streams_and_takes_back_what_they_used():
    timeline, nodes, _seen = traced(empties=True, mib=80, side=True)
    assert timeline.streams.held
    reserved = estimate(timeline, A100, nodes).reserved
    assert (reserved.low, reserved.estimate, reserved.high) == (240 * MIB, 240 * MIB, 240 * MIB)


def test_an_edited_timeline_empties_at_the_same_place():
    timeline, _nodes, _seen = traced(empties=True, mib=80)
    place = timeline.streams.emptied[0]
    first, second, *_ = (event for event in timeline.events[place:] if event >= 0)
    sooner = end_at(timeline, {first: timeline.buffers[second].node})
    assert sooner.events.index(~first) < timeline.events.index(~first)
    for edited in (sooner, end_at(timeline, {timeline.events[0]: timeline.buffers[first].node - 1})):
        assert [edited.events[each] for each in edited.streams.emptied[:1]] == [timeline.events[place]]


def test_steps_that_empty_the_cache_keep_their_order():
    timeline, nodes, _seen = traced(empties=True, mib=80)
    with pytest.raises(ValueError, match="emptied"):
        Steps(timeline, nodes)


SCRIPT = """
import torch
from torch import nn

model = nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    first = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
    del first
    torch.cuda.empty_cache()
    second = torch.empty(80 * 2**20, dtype=torch.uint8, device="cuda")
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    del second
    torch.cuda.empty_cache()
"""


def test_a_script_and_its_snapshot_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)

    def run(*arguments: str) -> None:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code in (0, 1), result.stderr

    run("run", "--gpu", "a100-80gb", "--output-format", "json", "--timeline", "-o", "step.json", "train.py")
    (workload,) = json.loads(Path("step.json").read_text())["workloads"]
    reserved = workload["estimate"]["peak"]["reserved"]["estimate"]
    assert 80 * MIB < reserved < 64 * MIB + 80 * MIB
    run("report", "step.json", "--output-format", "memviz", "-o", "memory.pickle")
    (events,) = pickle.loads(Path("memory.pickle").read_bytes())["device_traces"]
    sizes = {"segment_alloc": 1, "segment_free": -1}
    changes = [sizes[each["action"]] * each["size"] for each in events if each["action"] in sizes]
    assert {-64 * MIB, -80 * MIB} <= set(changes)
    assert max(accumulate(changes)) == reserved
