"""A Report as files for other viewers: one module for each format."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from memlint.base.errors import TargetError

if TYPE_CHECKING:
    from memlint.report.model import Report

EXPORTS = ("memviz", "perfetto", "speedscope")
"""The formats made from timelines."""
GRAPH = "graph"
"""The format made from the step's graph; each of GRAPH_ENDINGS is a file format of its own."""
GRAPH_ENDINGS = (".json", ".graphml", ".dot")
SUFFIXES = {
    "html": ".html",
    "memviz": ".pickle",
    "perfetto": ".perfetto.json",
    "speedscope": ".speedscope.json",
    GRAPH: ".graph.json",
}
"""Suffixes of file names by format."""


def export(report: Report, form: str, ending: str = ".json") -> bytes:
    """Export the Workloads of `report` that have an Estimate, in one of EXPORTS or as GRAPH with that file `ending`.

    Raises TargetError without any Workload or for one that lacks the data of the format, UsageError for one that the
    format cannot show.
    """
    from memlint.report.exports.lifetimes import Lifetimes  # noqa: PLC0415

    workloads = [workload for workload in report.workloads if workload.estimate is not None]
    if not workloads:
        raise TargetError(
            f"there is no estimate that {form} could show",
            "Name a model, as in model.py::build, or a report of one that could be analysed.",
        )
    name = form.replace("-", "_")
    renderer: Callable[..., bytes] = getattr(import_module(f"{__name__}.{name}"), f"render_{name}")
    if form == GRAPH:
        return renderer(workloads, ending)
    return renderer([Lifetimes.of(workload, form) for workload in workloads])
