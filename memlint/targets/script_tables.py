"""Scripts read from `[[tool.memlint.workload]]` tables with the key `script` or `module`."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memlint.base.errors import TargetError, UsageError
from memlint.targets.script import Script
from memlint.targets.workload_tables import SCRIPT_KEYS

_FIELDS = {"script": "path", "args": "arguments", "fake-data": "fake_data"}
_KEYS = (
    *("name", "script", "module", "args", "steps", "whole", "batches", "ranks", "rank", "fake-data", "repeat"),
    *("seq", "gpu", "allocator"),
)


def scripts_from_tables(
    tables: Iterable[Mapping[str, Any]], pyproject: Path, lost: dict[str, TargetError]
) -> tuple[Script, ...]:
    """Return the scripts among `tables`, with paths relative to `pyproject`; missing scripts go to `lost` by name.

    Raises UsageError for a table that makes no sense.
    """
    scripts = []
    for number, table in enumerate(tables, start=1):
        if SCRIPT_KEYS.isdisjoint(table):
            continue
        where = f"{pyproject}: workload {table.get('name', number)}"
        for key in table:
            if key not in _KEYS:
                close = get_close_matches(key, _KEYS, 1)
                hint = f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(_KEYS)}."
                raise UsageError(f"{where}: unknown key {key}", hint)
        if table.keys() >= SCRIPT_KEYS:
            raise UsageError(f"{where}: it has a script and a module", "Give one of them.")
        place = str(table.get("script") or table.get("module") or "")
        fields = {"name": Path(place).stem if "script" in table else place}
        fields |= {_FIELDS.get(key, key): value for key, value in table.items()}
        try:
            script = Script.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            key = next((key for key, field in _FIELDS.items() if field == first["loc"][0]), str(first["loc"][0]))
            raise UsageError(f"{where}: {key}: {first['msg']} (got {first['input']!r})", "Correct it.") from error
        file = (pyproject.parent / script.path).resolve()
        if script.path and not file.is_file():
            lost[script.name] = TargetError(f"{script.path} does not exist", f"Correct script in {pyproject}.")
        else:
            scripts.append(script.model_copy(update={"path": str(file) if script.path else ""}))
    return tuple(scripts)
