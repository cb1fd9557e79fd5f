"""The short way to the allocator's peaks gives those of the allocator."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint.memory.allocator.driver import Driver
from memlint.memory.allocator.fast import peaks
from memlint.memory.allocator.reference import Allocator

SIZES = st.one_of(
    st.integers(0, 1024),
    st.integers(2**20 - 1024, 2**20 + 1024),
    st.integers(0, 24 * 2**20),
    st.sampled_from([512, 2**20, 10 * 2**20, 20 * 2**20, 19 * 2**20 + 1, 2**30]),
)


def through_allocator(
    sizes: list[int],
    events: list[int],
    streams: dict[int, int] | None = None,
    first_after_index: int | None = None,
    *,
    descending: bool = False,
    oldest_first: bool = False,
) -> tuple[int, int, int]:
    driver = Driver(descending=descending)
    allocator = Allocator(driver=driver, oldest_first=oldest_first)
    blocks = {}
    for event in events:
        if event == first_after_index:
            driver.open_below((streams or {}).get(event, 0))
        if event >= 0 and sizes[event]:
            blocks[event] = allocator.malloc(sizes[event], (streams or {}).get(event, 0))
        elif event < 0 and sizes[~event]:
            allocator.free(blocks.pop(~event))
    return allocator.peak_requested, allocator.peak_allocated, allocator.peak_reserved


@settings(max_examples=300)
@given(
    st.lists(st.tuples(SIZES, st.integers(0, 5), st.integers(0, 2**16)), max_size=120),
    st.dictionaries(st.integers(0, 130), st.integers(1, 3), max_size=60),
    st.none() | st.integers(0, 20),
)
def test_any_sequence_has_the_peaks_of_the_allocator(
    requests: list[tuple[int, int, int]], streams: dict[int, int], first_after_index: int | None
) -> None:
    sizes: list[int] = []
    events: list[int] = []
    alive: list[int] = []
    for nbytes, num_frees, which in requests:
        events.append(len(sizes))
        alive.append(len(sizes))
        sizes.append(nbytes)
        events.extend(~alive.pop(which % len(alive)) for _ in range(min(num_frees // 2, len(alive))))
    for descending in (False, True):
        replayed = peaks(sizes, events, streams, first_after_index, descending=descending)
        assert replayed == through_allocator(sizes, events, streams, first_after_index, descending=descending)
    # Where free blocks are taken by age, the driver's addresses change nothing.
    by_age = through_allocator(sizes, events, streams, first_after_index, descending=True, oldest_first=True)
    assert by_age == peaks(sizes, events, streams)


def test_no_events_take_nothing() -> None:
    assert peaks([], []) == (0, 0, 0)


def test_sizes_beyond_64_bits_are_exact() -> None:
    sizes, events = [2**62, 2**70, 3 * 2**62 + 1, 1], [0, 1, ~0, 2, 3]
    assert peaks(sizes, events) == through_allocator(sizes, events)


HISTORIES = Path(__file__).parents[2] / "fixtures" / "histories"


@pytest.mark.parametrize(
    "name", ["attention-forward-backward", "linear-forward-no-grad-h100", "mlp-checkpoint-a", "nca-own"]
)
def test_histories_have_the_peaks_that_were_recorded(name: str) -> None:
    with gzip.open(HISTORIES / f"{name}.json.gz", "rt") as file:
        history = json.load(file)
    assert history["starts_empty"]
    sizes: list[int] = []
    events: list[int] = []
    at: dict[int, int] = {}
    for kind, address, nbytes, *_more in history["events"]:
        if kind == "alloc":
            at[address] = len(sizes)
            events.append(len(sizes))
            sizes.append(nbytes)
        elif kind == "free":
            events.append(~at.pop(address))
    assert len(events) > 10
    assert peaks(sizes, events)[1:] == (history["peaks"]["allocated"], history["peaks"]["reserved"])
