from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from memlint.memory.records import Frame, Phase
from memlint.memory.timeline import Timeline, live, peak_event
from memlint.report.from_trace import NUM_STRETCHES, course_of, timeline_of
from tests.memory.conftest import trace_of


@st.composite
def traces(draw):
    """Kernels that open Buffers and close some of those that are open."""
    kernels, is_open, made = [], [], 0
    for number in range(draw(st.integers(0, 100))):
        opens = draw(st.lists(st.integers(0, 5), max_size=3))
        is_open += range(made, made + len(opens))
        made += len(opens)
        closes = draw(st.lists(st.sampled_from(is_open), unique=True)) if is_open else []
        is_open = [buffer for buffer in is_open if buffer not in closes]
        phase = draw(st.sampled_from(list(Phase)))
        caller = draw(st.sampled_from([None, Frame("/train.py", 3, "main")]))
        place = {"line": 1 + number % 7, "caller": caller}
        kernels.append({"opens": opens, "closes": closes, "phase": phase, "step": number // 50, **place})
    return trace_of(kernels)


@given(traces())
def test_the_whole_timeline_folds_to_the_same_live_bytes(trace):
    timeline = Timeline.of(trace)
    told = timeline_of(timeline, trace.nodes)
    assert list(accumulate(told.nbytes[e] if e >= 0 else -told.nbytes[~e] for e in told.events)) == live(timeline)
    assert told.peak == peak_event(timeline)


@given(traces())
def test_every_buffer_keeps_its_line_and_every_event_its_phase(trace):
    timeline = Timeline.of(trace)
    told = timeline_of(timeline, trace.nodes)
    for event, original in zip(told.events, timeline.events, strict=True):
        assert (event >= 0) == (original >= 0)
        site = told.sites[told.buffer_sites[event if event >= 0 else ~event]]
        frame = timeline.buffers[original if original >= 0 else ~original].frame
        line = frame.of_project
        assert (site.path, site.line, site.function) == (line.path, line.line, line.function)
        assert (site.library and (site.library.path, site.library.line)) == (frame.caller and (frame.path, frame.line))
    assert len(set(told.sites)) == len(told.sites)
    starts = {stretch.first: (stretch.phase, stretch.step) for stretch in told.stretches}
    current = None
    for position, node in enumerate(timeline.event_nodes):
        current = starts.get(position, current)
        assert current == (trace.nodes[node].phase, trace.nodes[node].step)


@given(traces())
def test_a_course_is_short_and_has_the_peak(trace):
    timeline = Timeline.of(trace)
    told = course_of(timeline, trace.nodes)
    if told is None:
        assert not timeline.events
        return
    assert len(told.nbytes) == len(told.phases) == len(told.steps) == min(NUM_STRETCHES, len(timeline.events))
    assert max(told.nbytes) == max(live(timeline))


def test_buffers_that_no_event_opens_are_left_out_and_the_rest_is_numbered_in_order():
    trace = trace_of([{"opens": [10], "closes": []}, {"opens": [20], "closes": [1]}])
    timeline = Timeline(trace.buffers, trace.events[1:], trace.event_nodes[1:], 1, (0,))  # the first is on the host
    told = timeline_of(timeline, trace.nodes)
    assert told.events == [0, -1]
    assert told.nbytes == [20]
