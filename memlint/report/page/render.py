"""The page: a template, its style and its script in one document that loads nothing.

A content security policy in the page itself forbids every request, and every script and style except the page's own,
which it names by their digests. Strings of a Report are only ever text, in the document as in the data of the script.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from memlint.base.units import format_count, format_nbytes
from memlint.report import phrases
from memlint.report.escaping import one_line, visible
from memlint.report.model import Finding, Report, Site, Timeline, Workload
from memlint.report.page import filters
from memlint.report.page.grid import grids
from memlint.report.page.timeline import CATEGORIES, Picture, bar, picture, stretches
from memlint.report.page.treemap import Treemap, by_line, by_module, rules, spoken
from memlint.report.phrases import (
    CAUSES,
    MEASURES,
    beside,
    cost,
    of_peak,
    place_text,
    share,
    signed,
    spaced,
    tensor_text,
)
from memlint.report.workloads import findings_by_workload

_SCRIPTS = ("theme", "tables", "maps", "sizes", "lifetimes", "drawing", "axes", "readout", "timeline")
_POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; img-src data:; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content security policy: the page may run its own script, which never writes HTML, and apply its own style."""
_STRINGS = ("category", "op", "dtype", "module", "name")
_PHRASES = (
    *("fitting_text", "origin_text", "script_text", "not_reached_text", "not_guarded_text", "program_text"),
    *("outcome_text", "ranks_text", "stream_text", "traffic_text"),
)
_BREAK = re.compile(r"\s")
_UNSAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


@dataclass(frozen=True, slots=True)
class _View:
    """A Workload and its drawings."""

    number: int
    id: str
    workload: Workload
    findings: list[Finding]
    picture: Picture | None
    maps: list[Treemap]


def render_page(report: Report) -> str:
    """Return the Report as an HTML document."""
    findings = findings_by_workload(report)
    views = [
        _view(number, workload, own)
        for number, (workload, own) in enumerate(zip(report.workloads, findings.of_workloads, strict=True))
    ]
    style = "\n".join([_asset("page.css"), *(rules(treemap) for view in views for treemap in view.maps)])
    script = "\n".join(['(() => {\n"use strict";', *(_asset(f"{name}.js") for name in _SCRIPTS), "})();"])
    # Of a recording it is not known what lives since before the first step.
    other = "other" if all(each.origin == "recording" for each in report.workloads) else spaced("other")
    script = script.replace(spaced("other"), other)
    page = _template().render(
        report=report,
        views=views,
        loose=findings.of_source,
        policy=_POLICY.format(script=_digest(script), style=_digest(style)),
        style=Markup(style),
        script=Markup(script),
        data=_embedded([_in_columns(view.workload.timeline) if view.workload.timeline else None for view in views]),
    )
    return page.replace(spaced("other"), other)


def _view(number: int, workload: Workload, findings: list[Finding]) -> _View:
    estimate, own = workload.estimate, f"w{number}"
    maps = [] if estimate is None else [by_module(estimate, f"{own}-modules"), by_line(estimate, f"{own}-lines")]
    if workload.origin == "recording":  # it knows no modules
        maps = maps[1:]
    return _View(number, own, workload, findings, picture(workload), maps)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _embedded(data: Sequence[Mapping[str, Any] | None]) -> Markup:
    """Return JSON that cannot end a script element, begin a comment or break a line."""
    return Markup(json.dumps(data, separators=(",", ":")).translate(_UNSAFE))


def _in_columns(timeline: Timeline) -> dict[str, Any]:
    """Return the sites, Buffers and stretches as columns, which take a third of the bytes of records.

    A string is its position in `strings`, None is -1.
    """
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
        "failures": timeline.failures,
        "strings": list(strings),
    }


def _place(site: Site) -> str | None:
    """Return the place as it was written: a page has room for the whole path."""
    return site.path and f"{site.path}:{site.line}".removesuffix(":None") + beside(site.library)


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8").replace("\r\n", "\n")


def _shown(value: object) -> object:
    """Return the document's form of a value: a string gets no line breaks or invisible characters."""
    return visible(_BREAK.sub(" ", value)) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("memlint.report.page"),
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        **{name: getattr(filters, name) for name in ("step", "verdict", "kept", "parts")},
        "nbytes": format_nbytes,
        "of_peak": of_peak,
        "exact": "{:,} B".format,
        "change": lambda nbytes: signed(nbytes, minus="\u2212"),
        "share": share,
        "place": place_text,
        "beside": beside,
        "tensor": tensor_text,
        "spaced": spaced,
        "spoken": spoken,
        "cost": cost,
        "count": format_count,
    }
    environment.globals |= {
        **{
            name: getattr(filters, name)
            for name in ("by_line_rows", "headline", "scale_of", "summary", "sources", "settings")
        },
        "CATEGORIES": CATEGORIES,
        "CAUSES": CAUSES,
        "MEASURES": MEASURES,
        "OUTCOMES": filters.OUTCOMES,
        **{name: getattr(phrases, name) for name in _PHRASES},
        "bar": bar,
        "grids": grids,
    }
    return environment.get_template("page.html.jinja")
