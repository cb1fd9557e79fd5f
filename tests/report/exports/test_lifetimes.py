"""What pictures are made of."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from memlint.base.errors import TargetError
from tests.memory.conftest import trace_of
from tests.report.exports.samples import lifetimes_of, step, traces, workload_of


@given(traces())
@settings(max_examples=25)
def test_what_is_alive_at_the_peak_has_its_bytes(trace):
    drawn = lifetimes_of(workload_of(trace))
    alive = drawn.alive_at_peak()
    assert len(set(alive)) == len(alive)
    assert sum(drawn.timeline.nbytes[buffer] for buffer in alive) == drawn.workload.estimate.peak.requested.estimate


@given(traces())
@settings(max_examples=25)
def test_stretches_cover_all_events(trace):
    drawn = lifetimes_of(workload_of(trace))
    position = 0
    for stretch, end in drawn.stretches():
        assert stretch.first == position
        name = "setup" if stretch.step < 0 else f"{stretch.phase} of step {stretch.step}"
        assert drawn.part_of_step(position) == drawn.part_of_step(end - 1) == name
        position = end
    assert position == len(drawn.timeline.events)


def test_without_a_timeline_it_says_what_to_type():
    with pytest.raises(TargetError) as raised:
        lifetimes_of(step().model_copy(update={"timeline": None, "target": "my models/gpt2.py::GPT2"}))
    assert raised.value.message == "Model has no timeline, which memviz is made of"
    assert (
        "`memlint check 'my models/gpt2.py::GPT2' --timeline --output-format json -o report.json`" in raised.value.hint
    )
    assert "`memlint report 'my models/gpt2.py::GPT2' --format memviz`" in raised.value.hint


def test_a_timeline_without_events_is_no_trouble():
    drawn = lifetimes_of(workload_of(trace_of([])))
    assert drawn.alive_at_peak() == []
    assert drawn.stretches() == []
