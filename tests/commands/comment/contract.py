"""Requests and answers held against an OpenAPI description, with jsonschema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

_DOCUMENT = "urn:openapi"
GITHUB = Path(__file__).parents[3] / "fixtures/forge/github-openapi.json"


class Contract:
    """The operations of a description. Fields it does not name are refused in requests, allowed in answers."""

    def __init__(self, path: Path = GITHUB) -> None:
        self._document = _as_json_schema(json.loads(path.read_text()))
        self._registry = Registry().with_resource(_DOCUMENT, DRAFT202012.create_resource(self._document))

    def check_request(self, method: str, path: str, query: dict[str, str], body: Any) -> None:
        operation, values = self._operation(method, path)
        declared = {entry["name"]: entry for entry in map(self._resolved, operation.get("parameters", ()))}
        for name, value in (values | query).items():
            assert name in declared, f"{method} {path} has no parameter {name}"
            schema = declared[name]["schema"]
            self._check(int(value) if schema.get("type") == "integer" else value, schema)
        missing = [name for name, entry in declared.items() if entry.get("required") and name not in values | query]
        assert not missing, f"{method} {path} lacks {missing}"
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        assert (content is None) == (body is None), f"{method} {path} with the body {body}"
        if content is not None:
            self._check(body, content["schema"])
            assert set(body) <= set(content["schema"]["properties"])

    def check_answer(self, method: str, path: str, status: int, body: Any) -> None:
        answers = self._operation(method, path)[0]["responses"]
        assert str(status) in answers or status >= 400, f"{method} {path} has no answer {status}"
        content = self._resolved(answers.get(str(status), {})).get("content", {}).get("application/json")
        if content is not None:
            self._check(body, content["schema"])

    def _operation(self, method: str, path: str) -> tuple[dict[str, Any], dict[str, str]]:
        # a path that is written out comes before one with a parameter in that place
        for template, operations in sorted(self._document["paths"].items(), key=lambda item: item[0].count("{")):
            names = re.findall(r"{(\w+)}", template)
            found = re.fullmatch(re.sub(r"{\w+}", "([^/]+)", template), path)
            if found is not None and method.lower() in operations:
                return operations[method.lower()], dict(zip(names, found.groups(), strict=True))
        raise AssertionError(f"{method} {path} is not in the description")

    def _resolved(self, node: dict[str, Any]) -> dict[str, Any]:
        return self._registry.resolver().lookup(node["$ref"]).contents if "$ref" in node else node

    def _check(self, value: Any, schema: dict[str, Any]) -> None:
        Draft202012Validator(schema, registry=self._registry).validate(value)


def _as_json_schema(node: Any) -> Any:
    """OpenAPI 3.0's `nullable` in the words of JSON Schema, and references that say of which document."""
    if isinstance(node, list):
        return [_as_json_schema(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": _DOCUMENT + node["$ref"]}
    node = {name: _as_json_schema(entry) for name, entry in node.items()}
    if node.pop("nullable", False) is True:
        return {"anyOf": [{"type": "null"}, node]}
    return node
