"""The Report as JSON: the document other tools read, described by docs/report.schema.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.report.model import Report


def render_json(report: Report) -> str:
    """Two-space indented JSON in ASCII, so that no terminal or pipe can spoil it; it ends with a newline."""
    return json.dumps(report.model_dump(mode="json"), indent=2) + "\n"
