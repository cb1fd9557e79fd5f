"""The Report as JSON, described by docs/report.schema.json: one document, or lines for streaming readers."""

import json

from memlint.report.model import Report

_LISTS = {"workloads": "workload", "findings": "finding", "skipped": "skipped"}


def render_json(report: Report) -> str:
    """Return JSON in ASCII, which any terminal and pipe carries; it ends with a newline.

    It is indented by two spaces, unless it holds timelines or graphs: each of their numbers would take a line.
    """
    has_numbers = any(workload.timeline or workload.graph for workload in report.workloads)
    return json.dumps(report.model_dump(mode="json"), indent=None if has_numbers else 2) + "\n"


def render_json_lines(report: Report) -> str:
    """Return a line of kind `report`, and one for each workload, finding and skipped entry; fields as in `json`."""
    document = report.model_dump(mode="json")
    lists = {name: document.pop(name) for name in _LISTS}
    lines = [{"kind": "report", **document}]
    lines += [{"kind": kind, **item} for name, kind in _LISTS.items() for item in lists[name]]
    return "".join(json.dumps(line) + "\n" for line in lines)
