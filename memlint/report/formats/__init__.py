"""Formats of `memlint check --output-format` besides text: one module for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.lint.rule import Rule
    from memlint.report.model import Report

FORMATS = ("json", "json-lines", "concise", "full", "github", "gitlab", "sarif", "junit", "rdjson", "markdown")
WITH_STATISTICS = ("text", "json", "json-lines")
"""The formats that have a place for the counts of `--statistics`."""
WITH_ERRORS = ("text", "concise", "full", "github")
"""The formats for people and logs; they include errors, which need not be printed a second time."""


def render(report: Report, output_format: str, rules: Callable[[], Iterable[Rule]]) -> str:
    """Return the Report in one of FORMATS; empty, or it ends with a newline.

    `rules` holds the rules that SARIF explains.
    """
    name = output_format.replace("-", "_")
    module = import_module(f"{__name__}.{'json' if name == 'json_lines' else name}")
    renderer: Callable[..., str] = getattr(module, f"render_{name}")
    return renderer(report, rules()) if output_format == "sarif" else renderer(report)
