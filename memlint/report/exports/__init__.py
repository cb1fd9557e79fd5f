"""Pictures of a Report for other programs to show: one module for each format."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from memlint.base.errors import TargetError

if TYPE_CHECKING:
    from memlint.report.model import Report

EXPORTS = ("memviz", "perfetto", "speedscope")
"""The formats that are made of timelines."""
GRAPH = "graph"
"""The format that is made of the step's graph, and has others below it: one for each of GRAPH_ENDINGS."""
GRAPH_ENDINGS = (".json", ".graphml", ".dot")
SUFFIXES = {
    "html": ".html",
    "memviz": ".pickle",
    "perfetto": ".perfetto.json",
    "speedscope": ".speedscope.json",
    GRAPH: ".graph.json",
}
"""How names of files of each format end."""


def export(report: Report, form: str, ending: str = ".json") -> bytes:
    """The Workloads of `report` that have an Estimate, in one of EXPORTS or as GRAPH in a file with that `ending`.

    Raises TargetError for a Workload without what the format is made of or where there is none at all, UsageError for
    one that the format cannot show.
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
