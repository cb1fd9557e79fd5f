"""Workloads with timelines for the tests of pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate
from memlint.memory.records import Category, Phase
from memlint.memory.timeline import Timeline
from memlint.report.exports.lifetimes import Lifetimes
from memlint.report.from_trace import timeline_of
from memlint.report.model import Estimate, Peak, Workload
from tests.memory.conftest import trace_of
from tests.report.sample import exactly

if TYPE_CHECKING:
    from memlint.memory.records import Trace

MIB = 2**20
SIZES = (0, 1, 511, 512, 513, 5_000, MIB - 1, MIB, MIB + 1, 3 * MIB, 11 * MIB, 40 * MIB)
SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:32,roundup_power2_divisions:4",
    "per_process_memory_fraction:0.01,garbage_collection_threshold:0.3",
    "per_process_memory_fraction:0.001",
)


@st.composite
def traces(draw) -> Trace:
    """Kernels that open Buffers and close some of those that are open, in the phases of up to two steps."""
    kernels, is_open, made = [{"setup": True, "opens": draw(st.lists(st.sampled_from(SIZES), max_size=4))}], [], 0
    made = len(kernels[0]["opens"])
    is_open = list(range(made))
    for number in range(draw(st.integers(0, 45))):
        opens = draw(st.lists(st.sampled_from(SIZES), max_size=3))
        is_open += range(made, made + len(opens))
        made += len(opens)
        closes = draw(st.lists(st.sampled_from(is_open), unique=True)) if is_open else []
        is_open = [buffer for buffer in is_open if buffer not in closes]
        kernels.append(
            {
                "opens": opens,
                "closes": closes,
                "phase": list(Phase)[number // 10 % 3],
                "step": number // 30,
                "line": 1 + number % 7,
                "module": f"blocks.{number % 3}.attention" if number % 2 else "",
                "category": list(Category)[number % len(Category)],
            }
        )
    trace = trace_of(kernels)
    places = draw(st.sets(st.integers(0, len(trace.events) - 1), max_size=3)) if trace.events else ()
    return replace(trace, streams=trace.streams._replace(emptied=tuple(sorted(places))))


def workload_of(trace: Trace, allocator: str = "", name: str = "Model", gpu: str = "a100-80gb") -> Workload:
    """The Workload of a Report of that Trace."""
    timeline = Timeline.of(trace)
    found = estimate(timeline, device_named(gpu), trace.nodes, AllocatorSettings.parse(allocator))
    peak = Peak(
        **{name: exactly(getattr(found, name).estimate) for name in ("requested", "allocated", "reserved", "device")}
    )
    return Workload(
        name=name,
        target=f"model.py::{name}",
        gpu=gpu,
        allocator=allocator,
        estimate=Estimate(peak=peak, phase="other", op="", categories={}),
        timeline=timeline_of(timeline, trace.nodes),
    )


def step(name: str = "Model", **options) -> Workload:
    """One small step, in which every phase takes memory."""
    kernels = [
        {"setup": True, "opens": [4 * MIB], "category": Category.PARAMETER},
        {"opens": [8 * MIB, 6 * MIB], "line": 7, "module": "blocks.0", "category": Category.ACTIVATION},
        {"opens": [3 * MIB], "phase": Phase.BACKWARD, "line": 7, "module": "blocks.0", "closes": [1]},
        {"opens": [4 * MIB, 0], "phase": Phase.BACKWARD, "category": Category.GRADIENT, "closes": [2, 3]},
        {"opens": [1000], "phase": Phase.OPTIMIZER, "category": Category.OPTIMIZER_STATE},
    ]
    return workload_of(trace_of(kernels), name=name, **options)


def lifetimes_of(workload: Workload) -> Lifetimes:
    return Lifetimes.of(workload, "memviz")
