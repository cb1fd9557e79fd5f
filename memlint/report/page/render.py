"""The page: a template, its style and its script in one document that loads nothing.

A policy in the page itself forbids every request, and every script and style but the ones written here, which it
names by their digests. What a Report says is only ever text, in the document as in the data of the script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from memlint.base.units import format_count, format_nbytes
from memlint.report.finding_workloads import belonging
from memlint.report.formats.visible import visible
from memlint.report.naming import MEASURES, place_text, tensor_text
from memlint.report.page import words
from memlint.report.page.bars import bar
from memlint.report.page.grid import grids
from memlint.report.page.picture import CATEGORIES, picture
from memlint.report.page.timelines import packed
from memlint.report.page.treemap import by_line, by_module, rules, spoken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template

    from memlint.report.model import Finding, Report, Workload
    from memlint.report.page.picture import Picture
    from memlint.report.page.treemap import Treemap

_SCRIPTS = (
    "theme.js",
    "tables.js",
    "maps.js",
    "sizes.js",
    "lifetimes.js",
    "drawing.js",
    "axes.js",
    "readout.js",
    "timeline.js",
)
_BREAK = re.compile(r"\s")
_UNSAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


@dataclass(frozen=True, slots=True)
class _View:
    """A Workload, and what of it is drawn."""

    number: int
    id: str
    workload: Workload
    findings: list[Finding]
    picture: Picture | None
    maps: list[Treemap]


def render_page(report: Report) -> str:
    """The Report as an HTML document."""
    found = belonging(report)
    views = [_view(number, *each) for number, each in enumerate(zip(report.workloads, found.of_workloads, strict=True))]
    style = "\n".join([_asset("page.css"), *(rules(found) for view in views for found in view.maps)])
    script = "\n".join(['(() => {\n"use strict";', *map(_asset, _SCRIPTS), "})();"])
    return _template().render(
        report=report,
        views=views,
        loose=found.of_source,
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=_embedded([packed(view.workload.timeline) if view.workload.timeline else None for view in views]),
    )


def _view(number: int, workload: Workload, findings: list[Finding]) -> _View:
    estimate, own = workload.estimate, f"w{number}"
    maps = [] if estimate is None else [by_module(estimate, f"{own}-modules"), by_line(estimate, f"{own}-lines")]
    return _View(number, own, workload, findings, picture(workload), maps)


def _policy(style: str, script: str) -> str:
    """What the page may do: run its own script, which never writes HTML, and apply its own style."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_digest(script)}",
            f"style-src {_digest(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _embedded(data: Sequence[Mapping[str, Any] | None]) -> Markup:
    """JSON in which nothing ends a script element, begins a comment or breaks a line."""
    return Markup(json.dumps(data, separators=(",", ":")).translate(_UNSAFE))


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8").replace("\r\n", "\n")


def _shown(value: object) -> object:
    """What stands in the document for a value: a string without line breaks or anything else that cannot be seen."""
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
        "nbytes": format_nbytes,
        "exact": "{:,} B".format,
        "change": words.change,
        "share": words.share,
        "step": words.step,
        "verdict": words.verdict,
        "kept": words.kept,
        "place": place_text,
        "tensor": tensor_text,
        "spaced": words.spaced,
        "spoken": spoken,
        "parts": words.parts,
        "cost": words.cost,
        "count": format_count,
    }
    environment.globals |= {
        "CATEGORIES": CATEGORIES,
        "MEASURES": MEASURES,
        "OUTCOMES": words.OUTCOMES,
        "bar": bar,
        "grids": grids,
        "headline": words.headline,
        "measure_of": words.measure_of,
        "scale_of": words.scale_of,
        "summary": words.summary,
        "sources": words.sources,
        "settings": words.settings,
    }
    return environment.get_template("page.html.jinja")
