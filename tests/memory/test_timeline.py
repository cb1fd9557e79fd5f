"""Folding a Timeline, and editing it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.memory.records import Category
from memlint.memory.timeline import (
    Timeline,
    alive_at,
    by_category,
    end_at,
    live,
    peak_event,
    resize,
    without,
)

PROGRAMS = st.lists(
    st.tuples(st.lists(st.integers(0, 1000), max_size=3), st.integers(0, 50), st.integers(0, 50)), max_size=30
)


def assert_consistent(timeline: Timeline) -> None:
    """Every Buffer opens once, closes at most once and later, and knows where."""
    assert len(timeline.events) == len(timeline.event_nodes)
    assert list(timeline.event_nodes) == sorted(timeline.event_nodes)
    assert len(set(timeline.events)) == len(timeline.events)
    for position, event in enumerate(timeline.events):
        if event >= 0:
            assert timeline.buffers[event].born == position
        else:
            assert timeline.buffers[~event].died == position > timeline.buffers[~event].born
    closed = {~event for event in timeline.events if event < 0}
    assert all((buffer.died is not None) == (buffer.id in closed) for buffer in timeline.buffers)


@pytest.fixture
def forward_backward(make_trace) -> Timeline:
    """Two activations of 100 and 200 bytes, held through a kernel of 50 that needs only the second."""
    return Timeline.of(
        make_trace(
            [
                {"opens": [10], "setup": True, "category": Category.PARAMETER},
                {"opens": [100], "uses": [0], "module": "a", "line": 1, "category": Category.ACTIVATION},
                {"opens": [200], "uses": [1], "module": "b", "line": 2, "category": Category.ACTIVATION},
                {"opens": [50], "uses": [2], "module": "b", "line": 3, "closes": [3]},
                {"uses": [2], "closes": [2, 1]},
            ]
        )
    )


def test_live_bytes_follow_every_event(forward_backward) -> None:
    assert live(forward_backward) == [10, 110, 310, 360, 310, 110, 10]


def test_peak_is_the_first_maximum(forward_backward) -> None:
    assert peak_event(forward_backward) == 3
    assert peak_event(resize(forward_backward, {3: 0})) == 2


def test_empty_timeline_has_no_peak() -> None:
    empty = Timeline((), (), (), 0, ())
    assert peak_event(empty) == -1
    assert live(empty) == []
    assert alive_at(empty, -1) == ()


def test_buffers_alive_at_an_event_are_those_opened_and_not_closed(forward_backward) -> None:
    assert [buffer.id for buffer in alive_at(forward_backward, 3)] == [0, 1, 2, 3]
    assert [buffer.id for buffer in alive_at(forward_backward, 4)] == [0, 1, 2]
    assert [buffer.id for buffer in alive_at(forward_backward, 6)] == [0]


def test_groups_sum_bytes_and_come_biggest_first(forward_backward) -> None:
    alive = alive_at(forward_backward, 3)
    assert by_category(alive) == {Category.ACTIVATION: 300, Category.TEMPORARY: 50, Category.PARAMETER: 10}


def test_ending_a_buffer_after_its_last_use_lowers_the_peak(forward_backward) -> None:
    edited = end_at(forward_backward, {1: 1})
    assert_consistent(edited)
    assert live(edited) == [10, 110, 310, 210, 260, 210, 10]
    assert edited.event_nodes[3] == 1


def test_buffer_that_closes_first_thing_in_the_next_kernel_closes_before_it(make_trace) -> None:
    trace = make_trace([{"opens": [8]}, {"uses": [], "closes": [0]}])
    edited = end_at(Timeline.of(trace), {0: 0})
    assert (trace.event_nodes, edited.event_nodes) == ((0, 1), (0, 0))


def test_ending_later_than_it_dies_changes_nothing(forward_backward) -> None:
    assert end_at(forward_backward, {3: 3}) is forward_backward


def test_ending_a_buffer_that_never_died_closes_it(forward_backward) -> None:
    assert live(end_at(forward_backward, {0: 0}))[-1] == 0


def test_buffers_of_the_host_cannot_be_ended(forward_backward) -> None:
    host = forward_backward.buffers[0]._replace(id=4, born=-1, died=None)
    timeline = Timeline((*forward_backward.buffers, host), *_rest(forward_backward))
    assert end_at(timeline, {4: 0}) is timeline


def _rest(timeline: Timeline) -> tuple[object, ...]:
    return timeline.events, timeline.event_nodes, timeline.num_steps, timeline.step_nodes


@given(PROGRAMS)
def test_peak_is_at_least_every_live_value(make_random_trace, program) -> None:
    timeline = Timeline.of(make_random_trace(program))
    nbytes = live(timeline)
    if nbytes:
        assert nbytes[peak_event(timeline)] == max(nbytes)
        assert max(nbytes) not in nbytes[: peak_event(timeline)]


@given(PROGRAMS)
def test_live_bytes_are_the_sizes_of_the_buffers_alive(make_random_trace, program) -> None:
    timeline = Timeline.of(make_random_trace(program))
    for event, nbytes in enumerate(live(timeline)):
        assert sum(buffer.nbytes for buffer in alive_at(timeline, event)) == nbytes


@given(PROGRAMS, st.dictionaries(st.integers(0, 60), st.integers(-1, 40)))
def test_ending_buffers_never_raises_the_peak(make_random_trace, program, last_nodes) -> None:
    timeline = Timeline.of(make_random_trace(program))
    last_nodes = {buffer: node for buffer, node in last_nodes.items() if buffer < len(timeline.buffers)}
    edited = end_at(timeline, last_nodes)
    assert_consistent(edited)
    assert max(live(edited), default=0) <= max(live(timeline), default=0)
    for buffer, node in last_nodes.items():
        born = timeline.event_nodes[timeline.buffers[buffer].born]
        died = edited.buffers[buffer].died
        assert died is not None
        assert edited.event_nodes[died] <= max(node, born)


@given(PROGRAMS, st.dictionaries(st.integers(0, 60), st.integers(-1, 40)))
def test_ending_buffers_one_by_one_is_ending_them_together(make_random_trace, program, last_nodes) -> None:
    timeline = Timeline.of(make_random_trace(program))
    last_nodes = {buffer: node for buffer, node in last_nodes.items() if buffer < len(timeline.buffers)}
    one_by_one = timeline
    for buffer, node in last_nodes.items():
        one_by_one = end_at(one_by_one, {buffer: node})
    together = end_at(timeline, last_nodes)
    assert max(live(one_by_one), default=0) == max(live(together), default=0)
    assert [b.died is None for b in one_by_one.buffers] == [b.died is None for b in together.buffers]


@given(PROGRAMS)
def test_resizing_to_the_same_size_is_identity(make_random_trace, program) -> None:
    timeline = Timeline.of(make_random_trace(program))
    assert resize(timeline, {buffer.id: buffer.nbytes for buffer in timeline.buffers}) == timeline


@given(PROGRAMS, st.integers(1, 5))
def test_live_bytes_scale_with_all_sizes(make_random_trace, program, factor) -> None:
    timeline = Timeline.of(make_random_trace(program))
    scaled = resize(timeline, {buffer.id: factor * buffer.nbytes for buffer in timeline.buffers})
    assert live(scaled) == [factor * nbytes for nbytes in live(timeline)]
    assert peak_event(scaled) == peak_event(timeline)


@given(PROGRAMS, st.sets(st.integers(0, 60)))
def test_buffers_left_out_are_alive_nowhere_and_the_others_stay(make_random_trace, program, chosen) -> None:
    timeline = Timeline.of(make_random_trace(program))
    chosen = {buffer for buffer in chosen if buffer < len(timeline.buffers)}
    edited = without(timeline, chosen)
    assert_consistent(edited)
    for event in range(len(timeline.events)):
        left = [buffer for buffer in alive_at(timeline, event) if buffer.id not in chosen]
        assert list(alive_at(edited, event)) == left
