"""Options of `PYTORCH_ALLOC_CONF` that change how many bytes PyTorch's caching allocator reserves."""

import difflib
import re
from dataclasses import dataclass
from typing import Final, NoReturn, Self

from memlint.base.errors import UsageError

VARIABLES: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Environment variables that may hold the options, the new name and the old."""
MIB: Final = 2**20
MIN_LARGE_ALLOCATION: Final = 10 * MIB
"""Requests below this size share a segment of `large_segment_size`; `kMinLargeAlloc` in c10/core/AllocatorConfig.h."""
LARGE_SEGMENT: Final = 20 * MIB
"""Default `large_segment_size`; c10/core/AllocatorConfig.h."""

# The roundup table has one entry per power of two from 1 MiB to 32 GiB; smaller sizes use the first, larger the last
# (kRoundUpPowerOfTwoStart and kRoundUpPowerOfTwoIntervals in c10/core/AllocatorConfig.cpp).
_NUM_ROUNDUP_INTERVALS = 16
_LOG2_FIRST_INTERVAL = 20

_WITHOUT_EFFECT = frozenset({
    # Host memory, locks and CUDA graphs: these change no device bytes.
    "graph_capture_record_stream_reuse", "pinned_free_catch_all", "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb", "pinned_num_register_threads", "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads", "pinned_use_cuda_host_register", "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "throw_on_cudamalloc_oom",
})  # fmt: skip
_OPTIONS = _WITHOUT_EFFECT | {
    "backend", "expandable_segments", "garbage_collection_threshold", "large_segment_size_mb",
    "max_non_split_rounding_mb", "max_split_size_mb", "per_process_memory_fraction", "roundup_power2_divisions",
}  # fmt: skip
_OPTION = re.compile(r"([^:,\[\]]+):(\[[^\]]*\]|[^:,\[\]]*)(?:,|$)")
_EXAMPLE = "Write options as in PYTORCH_ALLOC_CONF: max_split_size_mb:128,expandable_segments:True."


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """Settings of rounding, splitting and reserving; sizes in bytes, defaults as PyTorch's."""

    expandable_segments: bool = False
    max_split_size: int | None = None
    """Blocks of this size or more are never split; None: any block may be split."""
    max_non_split_rounding: int = LARGE_SEGMENT
    """Largest excess of an unsplittable block over the request it serves."""
    roundup_power2_divisions: tuple[int, ...] = (0,) * _NUM_ROUNDUP_INTERVALS
    """Steps between neighbouring powers of two to which requests are rounded up, one number for each power from 1 MiB
    to 32 GiB; 0 or 1: round to 512 bytes."""
    large_segment_size: int = LARGE_SEGMENT
    """Size of the segment shared by requests between 1 and 10 MiB; an expandable segment also grows by it."""
    memory_fraction: float = 1.0
    """Share of the GPU's memory that may be reserved; 1: no limit."""
    garbage_collection_threshold: float = 0.0
    """Part of that share from which on segments that have long been free are released; 0: never. Without effect if
    `memory_fraction` is 1."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read settings in the syntax of `PYTORCH_ALLOC_CONF`; an option that is not given has its default.

        Options that change no device bytes are read and left out. Raises UsageError for an unknown option, a value out
        of its range, or a backend other than `native`.
        """
        options = _split(text)
        if options.get("backend", "native") != "native":
            _refuse("backend", options["backend"], "only the native allocator is modelled", "Leave the backend out.")
        large_segment_size = _mebibytes(options, "large_segment_size_mb", MIN_LARGE_ALLOCATION + MIB) or LARGE_SEGMENT
        return cls(
            expandable_segments=_flag(options, "expandable_segments"),
            max_split_size=_mebibytes(options, "max_split_size_mb", large_segment_size),
            max_non_split_rounding=_mebibytes(options, "max_non_split_rounding_mb", large_segment_size)
            or large_segment_size,
            roundup_power2_divisions=_divisions(options.get("roundup_power2_divisions", "0")),
            large_segment_size=large_segment_size,
            memory_fraction=_share(options, "per_process_memory_fraction", 1.0),
            garbage_collection_threshold=_share(options, "garbage_collection_threshold", 0.0),
        )

    def divisions(self, nbytes: int) -> int:
        """Return the entry of `roundup_power2_divisions` for a request of `nbytes`."""
        interval = nbytes.bit_length() - 1 - _LOG2_FIRST_INTERVAL
        return self.roundup_power2_divisions[min(max(interval, 0), _NUM_ROUNDUP_INTERVALS - 1)]


def _split(text: str) -> dict[str, str]:
    """Split a value into option names and their values, both without spaces."""
    rest = "".join(text.split())
    options: dict[str, str] = {}
    while rest:
        match = _OPTION.match(rest)
        if match is None:
            raise UsageError(f"cannot read the allocator settings from {rest!r} on", _EXAMPLE)
        name, value = match[1], match[2]
        if name not in _OPTIONS:
            close = difflib.get_close_matches(name, _OPTIONS, n=1)
            raise UsageError(f"{name!r} is no allocator setting", f"Did you mean {close[0]}?" if close else _EXAMPLE)
        options[name] = value
        rest = rest[match.end() :]
    return options


def _refuse(name: str, value: str, reason: str, hint: str = _EXAMPLE) -> NoReturn:
    raise UsageError(f"allocator setting {name}:{value}: {reason}", hint)


def _flag(options: dict[str, str], name: str) -> bool:
    value = options.get(name, "False")
    if value not in {"True", "False"}:
        _refuse(name, value, "is neither True nor False")
    return value == "True"


def _share(options: dict[str, str], name: str, default: float) -> float:
    if name not in options:
        return default
    try:
        value = float(options[name])
    except ValueError:
        _refuse(name, options[name], "is not a number")
    if not 0 < value <= 1:
        _refuse(name, options[name], "must be above 0 and at most 1", f"Write {name}:0.8, for example.")
    return value


def _mebibytes(options: dict[str, str], name: str, least: int) -> int | None:
    """Bytes of the option, None if it is not given; `least` is the smallest number of bytes allowed."""
    if name not in options:
        return None
    nbytes = _number(name, options[name]) * MIB
    if nbytes < least:
        _refuse(name, options[name], f"must be at least {least // MIB}", f"Write {name}:{least // MIB} or more.")
    return nbytes


def _number(name: str, value: str) -> int:
    if not value.isdecimal():
        _refuse(name, value, "is not a whole number")
    return int(value)


def _divisions(value: str) -> tuple[int, ...]:
    """Parse the roundup table `8` or `[256:1,512:2,>:4]`, where keys are sizes in MiB and `>` is every larger one."""
    name = "roundup_power2_divisions"
    if not value.startswith("["):
        return (_power_of_two(name, value, or_zero=True),) * _NUM_ROUNDUP_INTERVALS
    table = [0] * _NUM_ROUNDUP_INTERVALS
    last = -1
    for entry in filter(None, value.strip("[]").split(",")):
        boundary, _, count = entry.partition(":")
        divisions = _power_of_two(name, count, or_zero=True)
        if boundary == ">":
            first, end = max(last, 0) + 1, _NUM_ROUNDUP_INTERVALS
        else:
            interval = min(_power_of_two(name, boundary).bit_length() - 1, _NUM_ROUNDUP_INTERVALS - 1)
            # The first boundary also stands for everything below it.
            first, end = (0 if last < 0 else interval), interval + 1
            last = interval
        table[first:end] = [divisions] * (end - first)
    return tuple(table)


def _power_of_two(name: str, value: str, *, or_zero: bool = False) -> int:
    number = _number(name, value)
    if number.bit_count() != 1 and not (or_zero and number == 0):
        _refuse(name, value, "must be a power of two")
    return number
