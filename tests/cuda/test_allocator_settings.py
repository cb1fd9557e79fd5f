"""Reading PYTORCH_ALLOC_CONF."""

from __future__ import annotations

import pytest

from memlint.base.errors import UsageError
from memlint.memory.allocator.reference import AllocatorSettings

MIB = 2**20


@pytest.mark.parametrize("text", ["", " ", "backend:native", "pinned_use_background_threads:True,"])
def test_options_without_effect_leave_the_defaults(text: str) -> None:
    assert AllocatorSettings.parse(text) == AllocatorSettings()


def test_every_option_is_read() -> None:
    text = "large_segment_size_mb:15, max_split_size_mb:128,max_non_split_rounding_mb:40,expandable_segments:True,roundup_power2_divisions:4,garbage_collection_threshold:0.6,per_process_memory_fraction:0.5"
    assert AllocatorSettings.parse(text) == AllocatorSettings(
        expandable_segments=True,
        max_split_size=128 * MIB,
        max_non_split_rounding=40 * MIB,
        roundup_power2_divisions=(4,) * 16,
        large_segment_size=15 * MIB,
        garbage_collection_threshold=0.6,
        memory_fraction=0.5,
    )


def test_rounding_of_unsplittable_blocks_follows_the_segment_size() -> None:
    assert AllocatorSettings.parse("large_segment_size_mb:32").max_non_split_rounding == 32 * MIB


@pytest.mark.parametrize(
    ("mib", "divisions"), [(1, 8), (64, 8), (65, 8), (128, 2), (256, 4), (512, 2), (1024, 4), (2048, 1), (2**20, 1)]
)
def test_roundup_list_gives_each_power_of_two_its_divisions(mib: int, divisions: int) -> None:
    settings = AllocatorSettings.parse("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")
    assert settings.divisions(mib * MIB) == divisions


def test_powers_of_two_left_out_of_the_roundup_list_are_not_divided() -> None:
    settings = AllocatorSettings.parse("roundup_power2_divisions:[128:8,512:1,2048:8]")
    assert [settings.divisions(mib * MIB) for mib in (64, 256, 1024, 4096)] == [8, 0, 0, 0]
    assert settings.divisions(1) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_split_size_mb:19", "at least 20"),
        ("max_split_size_mb:20,large_segment_size_mb:25", "at least 25"),
        ("large_segment_size_mb:10", "at least 11"),
        ("max_split_size_mb:many", "whole number"),
        ("max_split_size_mb", "cannot read"),
        ("expandable_segments:yes", "neither True nor False"),
        ("garbage_collection_threshold:1.2", "at most 1"),
        ("per_process_memory_fraction:0", "above 0"),
        ("per_process_memory_fraction:half", "not a number"),
        ("roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:[96:4]", "power of two"),
        ("roundup_power2_divisions:[64:8", "cannot read"),
        ("backend:cudaMallocAsync", "only the native allocator"),
    ],
)
def test_mistake_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        AllocatorSettings.parse(text)
    assert message in error.value.message
    assert error.value.hint


def test_unknown_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError) as error:
        AllocatorSettings.parse("expandable_segment:True")
    assert error.value.hint == "Did you mean expandable_segments?"
