"""What `memlint check --output-format` writes besides text: one module for each format."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memlint.lint.rule import Rule
    from memlint.report.model import Report

_RENDERERS = {
    "json": "memlint.report.json:render_json",
    "json-lines": "memlint.report.formats.json_lines:render_json_lines",
    "concise": "memlint.report.formats.concise:render_concise",
    "full": "memlint.report.formats.full:render_full",
    "github": "memlint.report.formats.github:render_github",
    "gitlab": "memlint.report.formats.gitlab:render_gitlab",
    "sarif": "memlint.report.formats.sarif:render_sarif",
    "junit": "memlint.report.formats.junit:render_junit",
    "rdjson": "memlint.report.formats.rdjson:render_rdjson",
    "markdown": "memlint.report.formats.markdown:render_markdown",
}
FORMATS = tuple(_RENDERERS)
WITH_STATISTICS = ("text", "json", "json-lines")
"""The formats that have a place for the counts of `--statistics`."""
WITH_ERRORS = ("text", "concise", "full", "github")
"""The formats for people and logs, whose errors need not be said a second time."""


def render(report: Report, output_format: str, rules: Callable[[], Iterable[Rule]]) -> str:
    """The Report in one of FORMATS; empty, or it ends with a newline. `rules` gives what SARIF explains."""
    module, _, name = _RENDERERS[output_format].partition(":")
    renderer: Callable[..., str] = getattr(import_module(module), name)
    return renderer(report, rules()) if output_format == "sarif" else renderer(report)
