"""The Report as JSON: the document other tools read, described by docs/report.schema.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.report.model import Report


def render_json(report: Report) -> str:
    """JSON in ASCII, so that no terminal or pipe can spoil it; it ends with a newline.

    It is indented by two spaces, unless it holds timelines: each of their numbers would take a line.
    """
    has_timelines = any(workload.timeline for workload in report.workloads)
    return json.dumps(report.model_dump(mode="json"), indent=None if has_timelines else 2) + "\n"
