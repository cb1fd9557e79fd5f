"""What holds for the allocator whatever is asked of it."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memlint.memory.allocator.reference import Allocator, AllocatorSettings, Block, OutOfMemory

MIB = 2**20

# Sizes around every threshold: 512 B, 1 MiB (pools), 10 MiB and 20 MiB (segments), 2 MiB (rounding).
SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(MIB - 1024, MIB + 1024),
    st.integers(1, 64 * MIB),
    st.sampled_from([512, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 20 * MIB, 20 * MIB + 1]),
)
SETTINGS = st.builds(
    AllocatorSettings,
    expandable_segments=st.booleans(),
    max_split_size=st.sampled_from([None, 20 * MIB, 32 * MIB]),
    roundup_power2_divisions=st.sampled_from([(0,) * 16, (4,) * 16, (1, 8, 2, 4, *(16,) * 12)]),
    large_segment_size=st.sampled_from([20 * MIB, 15 * MIB]),
    garbage_collection_threshold=st.sampled_from([0.0, 0.3, 0.8]),
)
# A size to allocate on one of two streams, a number that picks a live block to free, or None to empty the cache.
STEPS = st.lists(st.one_of(st.tuples(SIZES, st.integers(0, 1)), st.integers(0, 1000), st.none()), max_size=60)


def run(allocator: Allocator, steps: list[object]) -> list[Block]:
    """Carry out steps; gives the live blocks."""
    live: list[Block] = []
    for step in steps:
        if step is None:
            allocator.empty_cache()
        elif isinstance(step, tuple):
            live.append(allocator.malloc(*step))
        elif live:
            allocator.free(live.pop(step % len(live)))
    return live


def layout(allocator: Allocator) -> list[list[tuple[int, int, int, bool, bool]]]:
    return [
        [(b.address, b.size, b.requested, b.allocated, b.mapped) for b in blocks] for blocks in allocator.segments()
    ]


@given(SETTINGS, STEPS)
def test_blocks_of_a_segment_lie_side_by_side_and_segments_apart(
    chosen: AllocatorSettings, steps: list[object]
) -> None:
    allocator = Allocator(chosen)
    run(allocator, steps)
    ranges = []
    for blocks in allocator.segments():
        for left, right in itertools.pairwise(blocks):
            assert left.address + left.size == right.address
            assert left.next is right
            assert right.previous is left
            assert left.allocated or right.allocated or left.mapped != right.mapped, "free neighbours are joined"
        ranges.append((blocks[0].address, blocks[-1].address + blocks[-1].size))
    ranges.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


@given(SETTINGS, STEPS)
def test_counters_are_the_sums_of_blocks(chosen: AllocatorSettings, steps: list[object]) -> None:
    allocator = Allocator(chosen)
    live = run(allocator, steps)
    blocks = [block for segment in allocator.segments() for block in segment]
    assert {id(block) for block in blocks if block.allocated} == {id(block) for block in live}
    assert allocator.requested == sum(block.requested for block in live)
    assert allocator.allocated == sum(block.size for block in live)
    assert allocator.reserved == sum(block.size for block in blocks if block.mapped) == allocator.driver.used


@given(SETTINGS, STEPS)
def test_requested_never_exceeds_allocated_nor_allocated_reserved(
    chosen: AllocatorSettings, steps: list[object]
) -> None:
    allocator = Allocator(chosen)
    for end in range(len(steps)):
        run(allocator, steps[end : end + 1])
        assert allocator.requested <= allocator.allocated <= allocator.reserved
    assert allocator.peak_requested <= allocator.peak_allocated <= allocator.peak_reserved


@given(SETTINGS, STEPS)
def test_blocks_are_multiples_of_512_and_hold_what_was_requested(
    chosen: AllocatorSettings, steps: list[object]
) -> None:
    allocator = Allocator(chosen)
    for block in run(allocator, steps):
        assert block.size % 512 == 0
        assert block.size >= block.requested
    assert all(block.size % 512 == 0 for segment in allocator.segments() for block in segment)


@given(SETTINGS, STEPS)
def test_nothing_is_left_once_everything_is_freed_and_the_cache_emptied(
    chosen: AllocatorSettings, steps: list[object]
) -> None:
    allocator = Allocator(chosen)
    for block in run(allocator, steps):
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.requested, allocator.allocated, allocator.reserved, allocator.driver.used) == (0, 0, 0, 0)
    assert list(allocator.segments()) == []


@given(SETTINGS, STEPS)
def test_equal_requests_give_equal_layouts(chosen: AllocatorSettings, steps: list[object]) -> None:
    first, second = Allocator(chosen), Allocator(chosen)
    run(first, steps)
    run(second, steps)
    assert layout(first) == layout(second)
    assert first.peak_reserved == second.peak_reserved


@given(SETTINGS, STEPS)
def test_freeing_what_was_just_allocated_is_free_of_charge_the_second_time(
    chosen: AllocatorSettings, steps: list[object]
) -> None:
    # A segment as large as the split limit serves no smaller request a second time: PyTorch's own rule.
    assume(chosen.max_split_size is None or chosen.max_split_size > 20 * MIB)
    allocator = Allocator(chosen)
    run(allocator, steps)
    allocator.free(allocator.malloc(5 * MIB))
    reserved = allocator.reserved
    allocator.free(allocator.malloc(5 * MIB))
    assert allocator.reserved == reserved


@settings(max_examples=50)
@given(SETTINGS, STEPS, st.integers(0, 200))
def test_capacity_is_never_exceeded_and_only_a_full_gpu_refuses(
    chosen: AllocatorSettings, steps: list[object], capacity_mib: int
) -> None:
    allocator = Allocator(chosen, capacity=capacity_mib * MIB)
    refused = 0
    try:
        run(allocator, steps)
    except OutOfMemory as error:
        refused = error.nbytes
    assert allocator.peak_reserved <= capacity_mib * MIB
    if refused and not chosen.expandable_segments:
        assert all(any(block.allocated for block in blocks) for blocks in allocator.segments()), "the cache is empty"
        assert allocator.reserved + allocator.segment_size(allocator.block_size(refused)) > capacity_mib * MIB


@given(STEPS)
def test_ample_capacity_changes_nothing(steps: list[object]) -> None:
    limited, unlimited = Allocator(capacity=100 * 2**30), Allocator()
    run(limited, steps)
    run(unlimited, steps)
    assert layout(limited) == layout(unlimited)
    assert limited.num_retries == 0


@given(SIZES, st.sampled_from([2, 4, 8, 16]))
def test_roundup_wastes_at_most_one_step_between_powers_of_two(nbytes: int, divisions: int) -> None:
    allocator = Allocator(AllocatorSettings(roundup_power2_divisions=(divisions,) * 16))
    size = allocator.block_size(nbytes)
    assert nbytes <= size < nbytes + max(512, 2 ** (nbytes.bit_length() - 1) // divisions + 1)


def test_small_requests_share_a_segment_of_2_mib_and_medium_ones_of_20() -> None:
    allocator = Allocator()
    allocator.malloc(1)
    allocator.malloc(MIB)
    assert allocator.reserved == 2 * MIB
    allocator.malloc(MIB + 1)
    allocator.malloc(9 * MIB)
    assert allocator.reserved == 22 * MIB


def test_requests_from_10_mib_on_get_segments_of_their_own_in_steps_of_2_mib() -> None:
    allocator = Allocator()
    allocator.malloc(10 * MIB)
    assert allocator.reserved == 10 * MIB
    allocator.malloc(10 * MIB + 1)
    assert allocator.reserved == 22 * MIB


def test_tail_of_1_mib_or_less_counts_as_allocated() -> None:
    allocator = Allocator()
    block = allocator.malloc(11 * MIB)
    assert (block.size, allocator.allocated, allocator.reserved) == (12 * MIB, 12 * MIB, 12 * MIB)
    assert allocator.requested == 11 * MIB


def test_tail_of_more_than_1_mib_serves_another_request() -> None:
    allocator = Allocator()
    first = allocator.malloc(3 * MIB)
    second = allocator.malloc(3 * MIB)
    assert second.address == first.address + 3 * MIB


def test_smallest_block_that_fits_is_taken_and_the_lowest_of_equals() -> None:
    allocator = Allocator()
    blocks = [allocator.malloc(size * MIB) for size in (40, 20, 30, 20)]
    for block in reversed(blocks):
        allocator.free(block)
    assert allocator.malloc(20 * MIB).address == blocks[1].address
    assert allocator.malloc(30 * MIB).address == blocks[2].address


def test_free_blocks_of_another_stream_are_not_taken() -> None:
    allocator = Allocator()
    allocator.free(allocator.malloc(20 * MIB, stream=1))
    allocator.malloc(20 * MIB, stream=0)
    assert allocator.reserved == 40 * MIB


def test_full_gpu_releases_cached_segments_before_it_gives_up() -> None:
    allocator = Allocator(capacity=40 * MIB)
    allocator.free(allocator.malloc(30 * MIB))
    allocator.malloc(32 * MIB)
    assert allocator.num_retries == 1
    assert allocator.reserved == 32 * MIB
    with pytest.raises(OutOfMemory, match=r"Tried to allocate 10.0 MiB"):
        allocator.malloc(10 * MIB)


def test_max_split_size_keeps_big_blocks_whole() -> None:
    whole = Allocator(AllocatorSettings(max_split_size=32 * MIB))
    split = Allocator()
    for allocator in (whole, split):
        allocator.free(allocator.malloc(64 * MIB))
        allocator.malloc(8 * MIB)
    assert whole.reserved == 84 * MIB
    assert split.reserved == 64 * MIB


def test_max_split_size_releases_only_as_much_as_is_needed() -> None:
    allocator = Allocator(AllocatorSettings(max_split_size=32 * MIB), capacity=200 * MIB)
    blocks = [allocator.malloc(size * MIB) for size in (40, 60, 80)]
    for block in blocks:
        allocator.free(block)
    allocator.malloc(30 * MIB)
    # Neither fits beside the others; the 40 MiB block is the smallest that makes room.
    assert allocator.reserved == (60 + 80 + 30) * MIB


def test_expandable_segment_grows_in_place_where_fixed_ones_leave_holes() -> None:
    expandable, fixed = Allocator(AllocatorSettings(expandable_segments=True)), Allocator()
    for allocator in (expandable, fixed):
        for size in (100, 110, 120):
            allocator.free(allocator.malloc(size * MIB))
    assert expandable.reserved == 120 * MIB
    assert fixed.reserved == 330 * MIB


def test_emptying_the_cache_unmaps_free_pages_of_an_expandable_segment() -> None:
    allocator = Allocator(AllocatorSettings(expandable_segments=True))
    first, kept = allocator.malloc(100 * MIB), allocator.malloc(20 * MIB)
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.reserved == 20 * MIB
    assert allocator.malloc(40 * MIB).address == first.address
    assert kept.allocated


@given(SETTINGS, STEPS, st.integers(2 * MIB, 400 * MIB))
def test_a_share_is_never_exceeded(chosen: AllocatorSettings, steps: list[object], share: int) -> None:
    allocator = Allocator(chosen, share=share)
    with contextlib.suppress(OutOfMemory):
        run(allocator, steps)
    # PyTorch, too, compares what a segment of its own would take, and then maps whole units of an expandable one.
    assert allocator.peak_reserved <= share + chosen.expandable_segments * chosen.large_segment_size
    assert allocator.reserved == sum(b.size for blocks in allocator.segments() for b in blocks if b.mapped)


@given(STEPS)
def test_an_ample_share_without_a_threshold_changes_nothing(steps: list[object]) -> None:
    free, limited = Allocator(), Allocator(share=2**40)
    run(free, steps)
    run(limited, steps)
    assert layout(free) == layout(limited)


def test_garbage_collection_gives_back_what_has_been_free_longest() -> None:
    allocator = Allocator(AllocatorSettings(garbage_collection_threshold=0.5), share=200 * MIB)
    old, kept, young = (allocator.malloc(size * MIB) for size in (30, 40, 50))
    allocator.free(old)
    for _ in range(4):  # searches of the large pool; each takes the block of 40 MiB again
        allocator.free(kept)
        kept = allocator.malloc(40 * MIB)
    allocator.free(young)
    assert allocator.reserved == 120 * MIB
    # More than half of the share is reserved, and nothing free is large enough. Ages: `old` 5 searches, `young` 1; at
    # 20 MiB above the threshold the 30 MiB that are older than the average are enough.
    allocator.malloc(60 * MIB)
    assert allocator.num_retries == 0
    assert allocator.reserved == (40 + 50 + 60) * MIB


def test_without_a_share_nothing_is_collected() -> None:
    allocator = Allocator(AllocatorSettings(garbage_collection_threshold=0.1), capacity=200 * MIB)
    allocator.free(allocator.malloc(50 * MIB))
    allocator.malloc(60 * MIB)
    assert allocator.reserved == 110 * MIB


def test_a_share_that_is_too_small_is_out_of_memory_though_the_gpu_is_not() -> None:
    allocator = Allocator(capacity=2**40, share=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(80 * MIB)
    assert (allocator.num_retries, allocator.reserved) == (1, 80 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(40 * MIB)
