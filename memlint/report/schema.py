"""JSON Schema of the Report. `python -m memlint.report.schema` writes it to docs/report.schema.json."""

import ast
import inspect
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from memlint.report import model

FILE = Path("docs/report.schema.json")


def schema_text() -> str:
    """The schema as JSON text. It allows unknown fields everywhere, because later versions of memlint may add some."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_open(_described(model.Report.model_json_schema(mode="serialization"))),
    }
    return json.dumps(schema, indent=2) + "\n"


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the docstring below each field, which pydantic would have to read whenever memlint starts."""
    classes = {node.name: node for node in ast.parse(inspect.getsource(model)).body if isinstance(node, ast.ClassDef)}
    for record, part in {**schema["$defs"], model.Report.__name__: schema}.items():
        properties = part.get("properties")
        if properties is None:
            continue  # an enumeration
        own_and_bases = (classes[each.__name__] for each in getattr(model, record).__mro__ if each.__name__ in classes)
        for field, text in (pair for node in own_and_bases for pair in pairwise(node.body)):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(description))):
                    described = {**properties[name], "description": inspect.cleandoc(description)}
                    properties[name] = dict(sorted(described.items()))
    return schema


def _open(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _open(value) for key, value in node.items() if key != "additionalProperties" or value is not False}
    return [_open(item) for item in node] if isinstance(node, list) else node


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    target.write_text(schema_text(), encoding="utf-8")
