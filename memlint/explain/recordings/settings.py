"""The same requests under other settings of the allocator: what it would have reserved, and what would have failed."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from memlint.explain.recordings.failure import Failure
from memlint.explain.recordings.replay import Program, Replayed
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device

_CANDIDATES: Final = (
    *("expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8"),
    "garbage_collection_threshold:0.8",
)
_MOST_EVENTS: Final = 12_000_000
"""Events of all replays together."""


class Trial(NamedTuple):
    """A replay under certain settings."""

    name: str
    settings: str
    """`PYTORCH_ALLOC_CONF`."""
    replayed: Replayed | None
    """None if the setting changes nothing here, or it was left out: `note` says why."""
    is_exact: bool
    """True if the allocator would have done precisely this for the recorded requests."""
    note: str = ""
    capacity: int | None = None
    """Bytes for segments; None: without limit."""


def trials(
    program: Program, failure: Failure | None, settings: Sequence[str] = (), devices: Sequence[Device] = ()
) -> list[Trial]:
    """Replay the requests under other settings and on other cards, up to the failure if there is one.

    Further `settings` are tried as well; those that cannot be read raise UsageError.
    """
    recorded = program.recording.settings
    capacity = failure.capacity if failure is not None else program.full_at
    until = failure.position if failure is not None else None
    wanted = list(dict.fromkeys([*_candidates(recorded), *settings]))
    num_events = len(program.recording.events)
    at_most = max(1, _MOST_EVENTS // max(num_events, 1) - 1 - bool(program.emptied) - len(devices))
    result = []
    for number, each in enumerate(wanted):
        parsed = AllocatorSettings.parse(each)
        if parsed.garbage_collection_threshold and parsed.memory_fraction == 1:
            note = "no effect unless the program sets a memory fraction: PyTorch collects only then"
            result.append(Trial(each, each, None, False, note))
        elif number >= at_most and each not in settings:
            result.append(Trial(each, each, None, False, f"left out of a recording this long: --alloc-conf {each}"))
        else:
            exact, note = _exactness(program, parsed)
            replayed = program.replay(parsed, capacity, until=until)
            result.append(Trial(each or "PyTorch's defaults", each, replayed, exact, note, capacity))
    own = AllocatorSettings.parse(recorded)
    exact, note = _exactness(program, own)
    if program.emptied:
        replayed = program.replay(own, capacity, empties_cache=False, until=until)
        result.append(Trial("without empty_cache()", recorded, replayed, exact, note, capacity))
    if capacity is not None:
        replayed = program.replay(own, None, until=until)
        result.append(Trial("as much memory as it asks for", recorded, replayed, exact, note))
    for device in devices:
        room = device.total_nbytes - device.context_nbytes
        result.append(Trial(device.title, recorded, program.replay(own, room, until=until), False, _CONTEXT, room))
    return result


_CONTEXT: Final = "the CUDA context is an estimate, and no other process is there"


def _candidates(recorded: str) -> Iterator[str]:
    """The settings to try beside the recorded ones, each with what else was set."""
    own = AllocatorSettings.parse(recorded)
    if own != AllocatorSettings():
        yield ""
    if own.expandable_segments:
        return  # the other options act on segments that do not grow
    for each in _CANDIDATES:
        if AllocatorSettings.parse(each) != own:
            yield each


def _exactness(program: Program, settings: AllocatorSettings) -> tuple[bool, str]:
    if program.begins_in_the_middle:
        if settings.expandable_segments or program.start is None:
            return False, "what was there before the recording is taken to lie side by side"
        return False, "what was there before the recording lies as under the recorded settings"
    if program.emptied:
        return False, "calls of empty_cache() that released nothing are not recorded"
    return True, ""
