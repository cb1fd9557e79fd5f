"""JSON Schema of the Report. `python -m memlint.report.schema` writes it to docs/report.schema.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from memlint.report.model import Report

FILE = Path("docs/report.schema.json")


def schema_text() -> str:
    """The schema as JSON text. It allows unknown fields everywhere, because later versions of memlint may add some."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_open(Report.model_json_schema(mode="serialization")),
    }
    return json.dumps(schema, indent=2) + "\n"


def _open(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _open(value) for key, value in node.items() if key != "additionalProperties" or value is not False}
    return [_open(item) for item in node] if isinstance(node, list) else node


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    target.write_text(schema_text(), encoding="utf-8")
