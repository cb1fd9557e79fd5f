"""Scripts as `[[tool.memlint.workload]]` tables with the key `script` or `module`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memlint.base.errors import TargetError, UsageError
from memlint.script.spec import Script
from memlint.workloads.pyproject import SCRIPT_KEYS


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=lambda name: name.replace("_", "-"))

    name: str = ""
    script: str = ""
    module: str = ""
    args: list[str] = []
    steps: int = Field(2, ge=1)
    whole: bool = False
    batches: int = Field(3, ge=1)
    ranks: int | None = Field(None, ge=1)
    fake_data: bool = False
    gpu: str | None = None
    allocator: str = ""


_KEYS = tuple(field.alias or name for name, field in _Table.model_fields.items())


def scripts_from_tables(
    tables: Iterable[Mapping[str, Any]], pyproject: Path, lost: dict[str, TargetError]
) -> tuple[Script, ...]:
    """The scripts among `tables`, whose paths start at `pyproject`; those that do not exist go to `lost` by name.

    Raises UsageError for a table that makes no sense.
    """
    scripts = []
    for number, table in enumerate(tables, start=1):
        if SCRIPT_KEYS.isdisjoint(table):
            continue
        where = f"{pyproject}: workload {table.get('name', number)}"
        try:
            entry = _Table.model_validate(table)
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0])
            if first["type"] == "extra_forbidden":
                close = get_close_matches(key, _KEYS, 1)
                hint = f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(_KEYS)}."
                raise UsageError(f"{where}: unknown key {key}", hint) from error
            raise UsageError(f"{where}: {key}: {first['msg']} (got {first['input']!r})", "Correct it.") from error
        if bool(entry.script) == bool(entry.module):
            raise UsageError(f"{where}: it has a script and a module, or neither", "Give one of them.")
        file = (pyproject.parent / entry.script).resolve() if entry.script else None
        name = entry.name or (file.stem if file else entry.module)
        if file is not None and not file.is_file():
            lost[name] = TargetError(f"{entry.script} does not exist", f"Correct script in {pyproject}.")
            continue
        scripts.append(
            Script(
                name=name,
                path=str(file or ""),
                arguments=tuple(entry.args),
                **entry.model_dump(exclude={"name", "script", "args"}),
            )
        )
    return tuple(scripts)
