"""A Workload written out as a `[[tool.memlint.workload]]` table: what `--init` prints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base.errors import UsageError
from memlint.workloads.spec import CONSTANT, InputSpec, Workload

if TYPE_CHECKING:
    from memlint.tracing.records import Assumption


def render_declaration(workload: Workload, assumptions: Sequence[Assumption] = (), base: Path | None = None) -> str:
    """TOML for the end of a `pyproject.toml` in the folder `base`, with every setting explicit.

    Assumptions stand above as comments. Reading it gives `workload` again, with origin `config`.
    """
    comments = [f"# {_one_line(assumption.text)}" for assumption in assumptions]
    lines = [f"{key} = {_toml(value)}" for key, value in workload_table(workload, base).items()]
    return "\n".join([*comments, "[[tool.memlint.workload]]", *lines, ""])


def workload_table(workload: Workload, base: Path | None = None) -> dict[str, object]:
    """Every setting of `workload` by its key in a table; paths are relative to the folder `base`."""
    settings: dict[str, object] = {
        "name": workload.name,
        "target": _target(workload, base),
        "mode": workload.mode,
        "batch": workload.batch,
    }
    if workload.dimensions:
        settings["dimensions"] = workload.dimensions
    settings |= {
        "dtype": workload.dtype,
        "optimizer": _relative(workload.optimizer, base),
        "gpu": workload.gpu,
    }
    if workload.inputs is not None:
        settings["inputs"] = {spec.name: _input(spec) for spec in workload.inputs}
    if workload.loss is not None:
        settings["loss"] = _relative(workload.loss, base)
    if workload.arguments:
        settings["arguments"] = workload.arguments
    if workload.allocator:
        settings["allocator"] = workload.allocator
    return settings


def _one_line(text: str) -> str:
    """`text` without what a TOML comment cannot hold."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _input(spec: InputSpec) -> object:
    if spec.dtype == CONSTANT:
        return spec.low
    value: dict[str, object] = {"shape": spec.shape, "dtype": spec.dtype}
    return value | {key: bound for key in ("low", "high") if (bound := getattr(spec, key)) is not None}


def _target(workload: Workload, base: Path | None) -> str:
    if not workload.path:
        return workload.target
    place = _relative_path(workload.path, base)
    return f"{place}::{workload.qualname}" if workload.qualname else place


def _relative(text: str, base: Path | None) -> str:
    place, separator, name = text.partition("::")
    return f"{_relative_path(place, base)}::{name}" if separator and place.endswith(".py") else text


def _relative_path(path: str, base: Path | None) -> str:
    return path if base is None else Path(os.path.relpath(path, base)).as_posix()


def _toml(value: object) -> str:
    """`value` as an inline TOML value; raises UsageError for what TOML cannot hold."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # JSON's escapes are TOML's; DEL alone must be escaped as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_toml, value))}]"
    raise UsageError(f"{value!r} cannot be written in TOML", "Declare this workload in its Python file.")


def _key(key: object) -> str:
    text = str(key)
    bare = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if bare else _toml(text)
