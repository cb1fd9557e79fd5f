"""Workloads as `[[tool.memlint.workload]]` tables: reading them, and writing them out in full for `--init`."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard

from memlint.base.errors import TargetError, UsageError
from memlint.base.units import parse_context
from memlint.memory.records import Assumption
from memlint.targets.target import parse_target
from memlint.targets.workload import CONSTANT, GENERATED, InputSpec, Origin, Workload

KEYS = (
    *("name", "target", "mode", "batch", "dimensions", "dtype", "optimizer", "gpu", "torch", "context"),
    *("inputs", "loss", "arguments", "adapter", "allocator", "compile", "strategy", "world_size", "rank"),
    *("cache", *GENERATED),
)
"""Keys of a table, in the order in which they are written."""

SCRIPT_KEYS = frozenset(("script", "module"))
"""Keys that make a table a script's; `memlint.targets.script_tables` reads those tables."""

_INPUT_KEYS = tuple(field.name for field in fields(InputSpec) if field.name != "name")


def workloads_from_tables(
    tables: object, pyproject: Path, lost: dict[str, TargetError] | None = None
) -> tuple[Workload, ...]:
    """Read the Workloads of `tool.memlint.workload`, in the order of its tables.

    Raises UsageError if a table makes no sense, TargetError if a target does not exist. If `lost` is given, it collects
    the names and errors of such tables instead, and the others are still read.
    """
    if not isinstance(tables, Sequence) or not all(isinstance(table, Mapping) for table in tables):
        raise UsageError(
            f"{pyproject}: tool.memlint.workload is not a list of tables", "Write [[tool.memlint.workload]]."
        )
    workloads = []
    for number, table in enumerate(tables, start=1):
        if not SCRIPT_KEYS.isdisjoint(table):
            continue
        where = f"{pyproject}: workload {table.get('name', number)}"
        try:
            workloads.append(workload_from_table(table, pyproject.parent, where, origin="config"))
        except TargetError as error:
            if lost is None:
                raise
            lost[str(table.get("name", table["target"]))] = error
    names = [workload.name for workload in workloads]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{pyproject}: two workloads are named {name}", "Give each table a name of its own.")
    return tuple(workloads)


def workload_from_table(table: Mapping[str, Any], base: Path, where: str, *, origin: Origin) -> Workload:
    """Read the Workload of one table; paths are relative to the folder `base`, errors begin with `where`."""
    for key in table:
        if key not in KEYS:
            close = get_close_matches(key, KEYS, 1)
            hint = f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(KEYS)}."
            raise UsageError(f"{where}: unknown key {key}", hint)
    for key in (
        "name",
        "target",
        "optimizer",
        "gpu",
        "torch",
        "loss",
        "allocator",
        "compile",
        "strategy",
        "arguments",
        "dimensions",
        "adapter",
    ):
        kind, noun = (Mapping, "table") if key in {"arguments", "dimensions", "adapter"} else (str, "text")
        if key in table and not isinstance(table[key], kind):
            raise UsageError(f"{where}: {key} is {table[key]!r}", f"A {noun} is expected.")
    if "target" not in table:
        raise UsageError(f"{where}: target is missing", 'Write target = "model.py::Name".')
    target = parse_target(table["target"], base)
    if target.path is not None and target.path.suffix == ".py" and not target.qualname:
        raise UsageError(
            f"{where}: target {table['target']!r} does not say what in the file gives the model",
            f'Write target = "{table["target"]}::Name", with the name of a class or a function.',
        )
    if "context" in table:
        table = {**table, "context": _context(table["context"], where)}
    plain: tuple[str, ...] = ("mode", "batch", "dtype", "gpu", "torch", "context", "allocator", "compile")
    plain += ("strategy", "world_size", "rank", "cache")
    values = {key: table[key] for key in plain if key in table}
    values |= {key: _resolved(table[key], base) for key in ("optimizer", "loss") if key in table}
    if table.get("inputs") is not None:
        values["inputs"] = inputs_from_table(table["inputs"], where)
    return Workload(
        name=table.get("name", target.qualname or (target.path.stem if target.path else target.module)),
        target=table["target"],
        path=str(target.path or ""),
        qualname=target.qualname,
        arguments=dict(table.get("arguments", {})),
        dimensions={**table.get("dimensions", {}), **{key: table[key] for key in GENERATED if key in table}},
        adapter=dict(table.get("adapter", {})),
        origin=origin,
        **values,
    )


def inputs_from_table(table: object, where: str) -> tuple[InputSpec, ...]:
    """Read `{ tokens = { shape = ["batch", 1024], dtype = "int64", high = 50257 } }`; plain values are constants."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{where}: inputs is not a table", 'Write inputs = { x = { shape = ["batch", 16] } }.')
    return tuple(_input(name, value, where) for name, value in table.items())


def _input(name: str, value: object, where: str) -> InputSpec:
    if isinstance(value, bool | int | float | str):
        return InputSpec.constant(name, value)
    if not isinstance(value, Mapping) or "shape" not in value:
        raise UsageError(f"{where}: input {name} has no shape", f'Write {name} = {{ shape = ["batch", 16] }}.')
    unknown = [key for key in value if key not in _INPUT_KEYS]
    if unknown or value.get("dtype") == CONSTANT or not isinstance(value["shape"], list | tuple):
        raise UsageError(
            f"{where}: input {name} cannot be read", f"Its keys are {', '.join(_INPUT_KEYS)}; shape is a list of sizes."
        )
    return InputSpec(
        name, **{**value, "shape": tuple(value["shape"]), "runs": _runs(value.get("runs", ()), name, where)}
    )


def _context(value: object, where: str) -> int:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise UsageError(f"{where}: context is {value!r}", 'Write context = "512MiB".')
    try:
        return parse_context(f"{value}B" if isinstance(value, int) else value)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.hint) from error


def _runs(value: object, name: str, where: str) -> tuple[tuple[int, int], ...]:
    if not _is_pairs(value):
        raise UsageError(f"{where}: input {name}: runs is {value!r}", "Write pairs of a value and how often it comes.")
    return tuple((number, count) for number, count in value)


def _is_pairs(value: object) -> TypeGuard[Sequence[tuple[int, int]]]:
    return isinstance(value, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(type(number) is int for number in pair)
        for pair in value
    )


def _resolved(text: str, base: Path) -> str:
    """Return `file.py::callable` with the absolute path of the file; a plain name stays as it is."""
    place, separator, name = text.partition("::")
    return f"{(base / place).resolve()}::{name}" if separator and place.endswith(".py") else text


def render_declaration(workload: Workload, assumptions: Sequence[Assumption] = (), base: Path | None = None) -> str:
    """Return TOML for the end of a `pyproject.toml` in the folder `base`, with every setting explicit.

    The assumptions come first, as comments. Reading the text gives `workload` again, with origin `config`.
    """
    comments = [f"# {_one_line(assumption.text)}" for assumption in assumptions]
    lines = [f"{key} = {toml(value)}" for key, value in workload_table(workload, base).items()]
    return "\n".join([*comments, "[[tool.memlint.workload]]", *lines, ""])


def workload_table(workload: Workload, base: Path | None = None) -> dict[str, object]:
    """Return every setting of `workload` by its key in a table; paths are relative to the folder `base`."""
    inputs, loss = workload.inputs, workload.loss
    settings = {key: getattr(workload, key, None) or None for key in KEYS} | {
        "target": _relative_target(workload, base),
        "optimizer": _relative(workload.optimizer, base),
        "inputs": None if inputs is None else {spec.name: _input_value(spec) for spec in inputs},
        "loss": None if loss is None else _relative(loss, base),
        "compile": workload.compile if workload.compile != "auto" else None,
        "world_size": workload.world_size if workload.world_size > 1 else None,
    }
    return {key: value for key, value in settings.items() if value is not None}


def _one_line(text: str) -> str:
    """Return `text` without the characters that a TOML comment cannot hold."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def inputs_as_toml(inputs: Sequence[InputSpec]) -> str:
    """Return the value of `inputs =` in a table."""
    return toml({spec.name: _input_value(spec) for spec in inputs})


def _input_value(spec: InputSpec) -> object:
    if spec.dtype == CONSTANT:
        return spec.low
    value: dict[str, object] = {"shape": spec.shape, "dtype": spec.dtype}
    bounds = {key: bound for key in ("low", "high") if (bound := getattr(spec, key)) is not None}
    more = {key: given for key in ("runs", "counted") if (given := getattr(spec, key))}
    return value | bounds | more


def _relative_target(workload: Workload, base: Path | None) -> str:
    if not workload.path:
        return workload.target
    place = _relative_path(workload.path, base)
    return f"{place}::{workload.qualname}" if workload.qualname else place


def _relative(text: str, base: Path | None) -> str:
    place, separator, name = text.partition("::")
    return f"{_relative_path(place, base)}::{name}" if separator and place.endswith(".py") else text


def _relative_path(path: str, base: Path | None) -> str:
    return path if base is None else Path(os.path.relpath(path, base)).as_posix()


def toml(value: object) -> str:
    """Return `value` as an inline TOML value; raises UsageError if TOML cannot hold it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Real):  # of numpy
        return repr(int(value) if isinstance(value, Integral) else float(value))
    if isinstance(value, str):
        # TOML has JSON's escapes, and requires one for DEL as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml, value))}]"
    raise UsageError(f"{value!r} cannot be written in TOML", "Declare this workload in its Python file.")


def _key(key: object) -> str:
    text = str(key)
    bare = text.isascii() and text.replace("_", "").replace("-", "").isalnum()
    return text if bare else toml(text)
