"""What is still needed, and what Python keeps alive for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.memory.liveness import dead_at, held, least_peak
from memlint.memory.records import Category, Trace
from memlint.memory.timeline import Timeline, end_at, live

PROGRAMS = st.lists(
    st.tuples(st.lists(st.integers(0, 1000), max_size=3), st.integers(0, 50), st.integers(0, 50)), max_size=30
)


@pytest.fixture
def logits_kept_through_backward(make_trace) -> Trace:
    """A parameter (0), an activation (1), logits (2) used by the loss (3) only, and a gradient (4)."""
    return make_trace(
        [
            {"opens": [10], "setup": True, "category": Category.PARAMETER},
            {"opens": [20], "uses": [0], "category": Category.ACTIVATION},
            {"opens": [1000], "uses": [1]},
            {"opens": [4], "uses": [2]},
            {"opens": [20], "uses": [1, 3], "closes": [1]},
            {"uses": [0, 4], "closes": [4, 3, 2]},
        ]
    )


def test_buffer_alive_past_its_last_use_is_held(logits_kept_through_backward) -> None:
    kept = held(logits_kept_through_backward)
    assert [(each.id, each.last_used) for each in kept] == [(2, 2), (3, 3)]
    assert kept[0].died == logits_kept_through_backward.buffers[2].died


def test_buffer_is_dead_only_after_its_last_user_ran(logits_kept_through_backward) -> None:
    trace = logits_kept_through_backward
    at_loss, at_backward = trace.buffers[3].born, trace.buffers[4].born
    assert dead_at(trace, at_loss) == ()
    assert [each.id for each in dead_at(trace, at_backward)] == [2]
    assert dead_at(trace, len(trace.events) - 1) == ()


@pytest.mark.parametrize(
    "category", [Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.WORKSPACE]
)
def test_what_is_kept_for_good_is_not_held(make_trace, category) -> None:
    assert held(make_trace([{"opens": [10], "category": category}, {"opens": [1]}, {"uses": [1]}])) == ()


def test_loss_tensors_piling_up_from_step_to_step_are_held(make_trace) -> None:
    trace = make_trace([{"opens": [4], "step": 0}, {"opens": [4], "step": 1}, {"uses": [1], "step": 1}])
    assert [each.id for each in held(trace)] == [0]


def test_buffers_that_serve_every_step_are_not_held(make_trace) -> None:
    trace = make_trace(
        [
            {"opens": [4], "setup": True, "category": Category.INPUT},
            {"opens": [8], "uses": [0], "step": 0},
            {"uses": [0, 1], "step": 1},
            {"opens": [2], "step": 1, "closes": [2]},
        ]
    )
    assert held(trace) == ()


@given(PROGRAMS)
def test_releasing_what_is_held_leaves_nothing_dead_and_lowers_or_keeps_the_peak(make_random_trace, program) -> None:
    trace = make_random_trace(program)
    before = Timeline.of(trace)
    after = end_at(before, {each.id: each.last_used for each in held(trace)})
    assert least_peak(trace) == max(live(after), default=0)
    assert max(live(after), default=0) <= max(live(before), default=0)
    released = Trace(
        trace.nodes, after.buffers, after.events, after.event_nodes, trace.num_steps, trace.step_nodes, (), (), "", ""
    )
    assert all(dead_at(released, event) == () for event in range(len(released.events)))
