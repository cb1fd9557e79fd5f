"""A Timeline in columns, with each string said once: a third of the bytes that its records take."""

from __future__ import annotations

from typing import Any

from memlint.report.escaping import one_line
from memlint.report.model import Site, Stretch, Timeline
from memlint.report.phrases import beside

_STRINGS = ("category", "op", "dtype", "module", "name")


def in_columns(timeline: Timeline) -> dict[str, Any]:
    """Columns of the sites, of the Buffers and of the stretches; a string is its position in `strings`, None is -1."""
    strings: dict[str, int] = {}

    def position(text: str | None) -> int:
        return -1 if text is None else strings.setdefault(one_line(text), len(strings))

    sites = {name: [position(getattr(site, name)) for site in timeline.sites] for name in _STRINGS}
    parts = stretches(timeline)
    return {
        "sites": sites
        | {
            "shape": [position(", ".join(map(str, site.shape))) for site in timeline.sites],
            "place": [position(_place(site)) for site in timeline.sites],
        },
        "buffer_sites": timeline.buffer_sites,
        "nbytes": timeline.nbytes,
        "events": timeline.events,
        "stretches": {
            "first": [stretch.first for stretch in parts],
            "phase": [position(stretch.phase) for stretch in parts],
            "step": [stretch.step for stretch in parts],
        },
        "peak": timeline.peak,
        "strings": list(strings),
    }


def _place(site: Site) -> str | None:
    """As it was written: a page has room for the whole path."""
    return site.path and f"{site.path}:{site.line}".removesuffix(":None") + beside(site.library)


def stretches(timeline: Timeline) -> list[Stretch]:
    """Those of the Timeline; where it names none, one for all of its events."""
    return timeline.stretches or [Stretch(first=0, phase="other", step=-1)]
