"""Histories that `memlint validate` wrote, as Recordings; fixtures/histories describes the fields."""

import json
from collections.abc import Mapping
from typing import Any, Final

from memlint.capture.plain_pickle import Source
from memlint.capture.recorded import ACTIONS, ALLOC, FREE, Events, RecordedBlock, RecordedSegment, Recording, Site
from memlint.memory.records import Phase
from memlint.targets.workload import TORCH

_MOST_NBYTES: Final = 2**27
_NUMBERS: Final = {name: number for number, name in enumerate(ACTIONS)} | {"free": FREE}
_PHASES: Final = {each.value: each for each in Phase}


def read_history(file: Source) -> Recording:
    """Read a history. Raises ValueError, KeyError, TypeError or IndexError for what is none."""
    text = file.read(_MOST_NBYTES + 1)
    if len(text) > _MOST_NBYTES:
        raise ValueError(f"it has more than {_MOST_NBYTES >> 20} MiB")
    history: Mapping[str, Any] = json.loads(text)
    events = Events()
    sites: dict[Site, int] = {}
    for name, address, nbytes, *more in history["events"]:
        action = _NUMBERS[name]
        site = -1
        if action == ALLOC:
            op, phase = (*more[1:], "", "")[:2]
            known = Site(None, op, _PHASES.get(phase, Phase.OTHER), has_frames=False)
            site = sites.setdefault(known, len(sites))
        if nbytes < 0:
            raise ValueError("an event has a negative size")
        events.add(action, address, nbytes, more[0] if more else 0, site)
    segments = []
    for address, nbytes, stream, pool, is_expandable, blocks in history.get("segments_at_end") or ():
        held, start = [], address
        for size, requested, state in blocks:
            held.append(RecordedBlock(start, size, requested, state, -1))
            start += size
        segments.append(
            RecordedSegment(address, nbytes, stream, pool == "small", bool(is_expandable), False, tuple(held))
        )
    settings = history.get("allocator_settings")
    torch = str(history.get("torch") or "")
    return Recording(
        device=0,
        events=events,
        sites=tuple(sites),
        segments=tuple(segments),
        settings=(settings or {}).get("conf") or "",
        knows_settings=settings is not None,
        torch=torch if TORCH.fullmatch(torch) else "",
        starts_empty=bool(history.get("starts_empty")),
        peaks={name: int(value) for name, value in history["peaks"].items() if isinstance(value, int)},
    )
