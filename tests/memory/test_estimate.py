"""From a Timeline to peaks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.memory.allocator.fast import peaks as replayed
from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.devices import device_named
from memlint.memory.estimate import CACHE_SPREAD, Interval, estimate, most_device, peaks, replay
from memlint.memory.records import Category, Doubt, Frame, Phase, Trace
from memlint.memory.timeline import Timeline, alive_at, live, without

MIB = 2**20
A100 = device_named("a100-80gb")
PROGRAMS = st.lists(
    st.tuples(st.lists(st.integers(0, 30 * MIB), max_size=3), st.integers(0, 50), st.integers(0, 50)), max_size=30
)


@pytest.fixture
def training_step(make_trace) -> Trace:
    return make_trace(
        [
            {"opens": [4 * MIB], "setup": True, "category": Category.PARAMETER},
            {"opens": [30 * MIB], "uses": [0], "module": "a", "line": 7, "category": Category.ACTIVATION},
            {"phase": Phase.BACKWARD, "opens": [4 * MIB, 40 * MIB], "uses": [1], "module": "a", "line": 8, "closes": [3, 1]},
            {"phase": Phase.OPTIMIZER, "opens": [8 * MIB], "uses": [0, 2], "category": Category.OPTIMIZER_STATE},
            {"phase": Phase.OPTIMIZER, "uses": [0, 2, 4], "closes": [2]},
        ]
    )  # fmt: skip


def test_peak_names_its_node_line_and_module(training_step) -> None:
    found = estimate(Timeline.of(training_step), A100, training_step.nodes)
    assert found.requested == Interval.exact(78 * MIB)
    assert (found.peak_event, found.peak_node, found.phase) == (3, 1, Phase.BACKWARD)
    assert (found.frame, found.module, found.op) == (Frame("model.py", 8, "forward"), "a", "aten.op.default")


def test_what_is_alive_at_the_peak_comes_biggest_first(training_step) -> None:
    found = estimate(Timeline.of(training_step), A100, training_step.nodes)
    assert [buffer.nbytes // MIB for buffer in found.at_peak] == [40, 30, 4, 4]
    assert found.categories == {
        Category.TEMPORARY: 44 * MIB,
        Category.ACTIVATION: 30 * MIB,
        Category.PARAMETER: 4 * MIB,
    }


def test_every_phase_has_its_own_peak(training_step) -> None:
    found = estimate(Timeline.of(training_step), A100, training_step.nodes)
    assert found.phase_peaks == {
        Phase.OTHER: 4 * MIB,
        Phase.FORWARD: 34 * MIB,
        Phase.BACKWARD: 78 * MIB,
        Phase.OPTIMIZER: 16 * MIB,
    }


def test_phase_without_allocations_counts_what_it_finds(make_trace) -> None:
    trace = make_trace([{"opens": [5]}, {"phase": Phase.BACKWARD, "uses": [0]}])
    assert estimate(Timeline.of(trace), A100, trace.nodes).phase_peaks == {Phase.FORWARD: 5, Phase.BACKWARD: 5}


def test_allocated_counts_blocks_and_reserved_counts_segments(training_step) -> None:
    found = estimate(Timeline.of(training_step), A100, training_step.nodes)
    assert found.allocated == Interval.exact(78 * MIB)
    assert found.reserved == Interval(87 * MIB, (20 + 30 + 40) * MIB, 93 * MIB)  # a quarter of 12 either way


def test_device_adds_the_context_with_its_bounds(training_step) -> None:
    found = estimate(Timeline.of(training_step), A100, training_step.nodes)
    low, reserved, high = found.reserved
    assert found.device == Interval(low + A100.context_low, reserved + A100.context_nbytes, high + A100.context_high)


def test_host_has_neither_rounding_nor_context(make_trace) -> None:
    trace = make_trace([{"opens": [3]}])
    found = estimate(Timeline.of(trace), device_named("cpu"), trace.nodes)
    assert found.requested == found.allocated == found.reserved == found.device == Interval.exact(3)


def test_peak_before_the_first_kernel_belongs_to_no_node(make_trace) -> None:
    trace = make_trace([{"opens": [100], "setup": True}])
    found = estimate(Timeline.of(trace), A100, trace.nodes)
    assert (found.peak_node, found.phase, found.frame, found.op) == (-1, Phase.OTHER, None, "")


def test_empty_timeline_takes_the_context_only() -> None:
    found = estimate(Timeline((), (), (), 0, ()), A100, ())
    assert found.requested == found.reserved == Interval.exact(0)
    assert found.device.estimate == A100.context_nbytes
    assert (found.peak_event, found.at_peak, found.phase_peaks) == (-1, (), {})


def test_buffers_of_zero_bytes_take_no_block(make_trace) -> None:
    trace = make_trace([{"opens": [0, 0], "closes": [0]}])
    assert replay(Timeline.of(trace)).peak_reserved == 0


def test_leaving_a_buffer_out_takes_its_block_away(training_step) -> None:
    timeline = without(Timeline.of(training_step), {3})
    found = estimate(timeline, A100, training_step.nodes)
    assert found.requested.estimate == 38 * MIB
    assert found.reserved.estimate == 50 * MIB


def test_settings_reach_the_allocator(training_step) -> None:
    settings = AllocatorSettings(expandable_segments=True)
    found = estimate(Timeline.of(training_step), A100, training_step.nodes, settings)
    assert found.reserved.estimate == 80 * MIB


def test_within_its_share_of_the_gpu_a_process_gives_segments_back_first(make_trace) -> None:
    trace = make_trace([{"opens": [30 * MIB], "closes": [0]}, {"opens": [60 * MIB]}])
    timeline = Timeline.of(trace)
    peaks = {
        share: estimate(timeline, A100, trace.nodes, AllocatorSettings(memory_fraction=share * MIB / A100.total_nbytes))
        for share in (100, 70, 50)
    }
    # 50 MiB are too little for the program: what is said then is what it would need.
    assert {share: found.reserved.estimate // MIB for share, found in peaks.items()} == {100: 90, 70: 60, 50: 90}


@given(PROGRAMS)
def test_peaks_are_ordered_and_equal_the_folded_timeline(make_random_trace, program) -> None:
    trace = make_random_trace(program)
    timeline = Timeline.of(trace)
    found = estimate(timeline, A100, trace.nodes)
    assert found.requested.estimate == max(live(timeline), default=0)
    assert found.requested.low <= found.allocated.low <= found.reserved.low <= found.device.low
    assert found.device.low <= found.device.estimate <= found.device.high
    assert sum(found.categories.values()) == found.requested.estimate == sum(b.nbytes for b in found.at_peak)
    assert max(found.phase_peaks.values(), default=0) == found.requested.estimate


@given(PROGRAMS)
def test_buffers_at_the_peak_are_those_alive_there(make_random_trace, program) -> None:
    trace = make_random_trace(program)
    timeline = Timeline.of(trace)
    found = estimate(timeline, A100, trace.nodes)
    assert set(found.at_peak) == set(alive_at(timeline, found.peak_event))
    sizes = [buffer.nbytes for buffer in found.at_peak]
    assert sizes == sorted(sizes, reverse=True)


@given(PROGRAMS)
def test_estimate_is_the_same_every_time(make_random_trace, program) -> None:
    trace = make_random_trace(program)
    timeline = Timeline.of(trace)
    assert estimate(timeline, A100, trace.nodes) == estimate(timeline, A100, trace.nodes)


@pytest.mark.parametrize("gpu", ["a100-80gb", "cpu"])
@pytest.mark.parametrize("options", ["", "expandable_segments:True"])
def test_sizes_and_events_may_be_arrays(gpu: str, options: str) -> None:
    numpy = pytest.importorskip("numpy")
    sizes, events, doubts = [3 << 20, 512, 40 << 20, 7], [0, 1, 2, ~1, ~2, 3], [Doubt(2, 0, 50 << 20), Doubt(3, 7, 7)]
    device, settings = device_named(gpu), AllocatorSettings.parse(options)
    found = peaks(numpy.array(sizes), numpy.array(events), doubts, device, settings)
    assert found == peaks(sizes, events, doubts, device, settings)
    assert {type(bound) for peak in found[:4] for bound in peak} | {type(found.on_larger)} == {int}
    assert found.requested.low < found.requested.estimate < found.requested.high
    most = most_device(numpy.array(sizes), numpy.array(events), doubts, device, settings)
    assert most == found.device.high - int(CACHE_SPREAD * (found.reserved.estimate - found.allocated.estimate))


@pytest.mark.parametrize("options", ["", "roundup_power2_divisions:8", "expandable_segments:True"])
def test_a_full_gpu_gives_cached_segments_back_before_the_step_fails(make_trace, options: str) -> None:
    gib, settings = 2**30, AllocatorSettings.parse(options)
    trace = make_trace([{"opens": [8 * gib]}, {"closes": [0]}, {"opens": [10 * gib]}])
    t4 = estimate(Timeline.of(trace), device_named("t4"), trace.nodes, settings)
    if not settings.expandable_segments:  # which hand over what is mapped behind the first
        assert t4.on_larger == estimate(Timeline.of(trace), A100, trace.nodes, settings).reserved.estimate == 18 * gib
    assert t4.reserved == Interval.exact(10 * gib)
    sizes = [buffer.nbytes for buffer in trace.buffers]
    assert most_device(sizes, trace.events, (), device_named("t4"), settings) == t4.device.high
    assert t4.device.high == 10 * gib + device_named("t4").context_high < device_named("t4").total_nbytes


def test_a_gpu_that_is_too_small_in_spite_of_that_gets_what_a_larger_one_shows(make_trace) -> None:
    gib = 2**30
    # 4 GiB lie in the segment of 8, which nobody can give back then.
    trace = make_trace([{"opens": [8 * gib]}, {"closes": [0]}, {"opens": [4 * gib]}, {"opens": [9 * gib]}])
    t4 = estimate(Timeline.of(trace), device_named("t4"), trace.nodes)
    assert (t4.allocated.estimate, t4.reserved.estimate, t4.on_larger) == (13 * gib, 17 * gib, 0)


def test_reserved_depends_on_where_segments_are_placed() -> None:
    """Two blocks of one size at the ends of two segments are free: which is taken decides what still fits."""
    mib = 2**20
    sizes = [n * mib for n in (30, 40, 30, 30, 10, 30, 40, 31)]
    device = device_named("a100-80gb")
    found = False
    generator = random.Random(0)
    for _ in range(50):
        events, alive = [], []
        for number in range(len(sizes)):
            events.append(number)
            alive.append(number)
            if generator.random() < 0.5:
                events.append(~alive.pop(generator.randrange(len(alive))))
        interval = peaks(sizes, events, (), device).reserved
        ascending = replayed(sizes, events)[2]
        descending = replayed(sizes, events, descending=True)[2]
        cached = ascending - replayed(sizes, events)[1]
        assert interval.low == max(ascending - cached, min(ascending, descending) - cached // 4)
        assert (interval.estimate, interval.high) == (ascending, max(ascending, descending) + cached // 4)
        found |= ascending != descending
    assert found


def test_the_device_shows_at_least_and_at_most_a_context_beside_what_is_reserved() -> None:
    device = device_named("v100-16gb")
    most = peaks([2**20], [0], (), device)
    assert most.device.low - most.reserved.low == device.context_low
    assert most.device.high - most.reserved.high == device.context_high
    assert device.context_low < 385 * 2**20 < device.context_high


def test_why_the_device_is_an_interval_is_told_apart_and_adds_up() -> None:
    sizes, events = [3 << 20, 40 << 20, 30 << 20, 50 << 20], [0, 1, 2, ~1, 3]
    found = peaks(sizes, events, [Doubt(2, 0, 90 << 20)], A100)
    parts = {each.cause: each for each in found.doubtful}
    assert parts.keys() == {"context", "cache", "workspaces"}
    assert parts["context"].below == A100.context_nbytes - A100.context_low
    assert parts["context"].above == A100.context_high - A100.context_nbytes
    assert parts["workspaces"].above == 60 << 20
    assert sum(each.below for each in parts.values()) == found.device.estimate - found.device.low
    assert sum(each.above for each in parts.values()) == found.device.high - found.device.estimate


@given(PROGRAMS)
def test_reasons_always_add_up_to_the_bounds_of_the_device(make_random_trace, program) -> None:
    trace = make_random_trace(program)
    found = estimate(Timeline.of(trace), A100, trace.nodes)
    assert sum(each.below for each in found.doubtful) == found.device.estimate - found.device.low
    assert sum(each.above for each in found.doubtful) == found.device.high - found.device.estimate


def test_the_host_and_a_measured_context_leave_less_to_explain() -> None:
    assert peaks([2**20], [0], (), device_named("cpu")).doubtful == ()
    measured = A100.with_measured_context(500 << 20)
    given, seen = (peaks([2**20], [0], (), device).device for device in (measured, A100))
    assert given.estimate == seen.estimate - A100.context_nbytes + (500 << 20)
    assert given.high - given.low < (seen.high - seen.low) / 10
