"""Records whose strings may be printed anywhere in a log or a terminal."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from memlint.report.formats.visible import inert, one_line, visible

_AS_TYPED = ("path", "target")
"""Fields whose spaces people and editors need, because they name a file."""
_NOT_PRINTED = "timeline"
_NO_TEXT = (int, float, type(None))

Record = TypeVar("Record", bound=BaseModel)


def for_log(record: Record) -> Record:
    """A Report, Comparison or table with each string on one line, visible and no command, but without timelines."""
    found: Record = _for_log(record)
    return found


def _for_log(value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        return inert(visible(value) if name in _AS_TYPED else one_line(value))
    if isinstance(value, BaseModel):
        texts = {
            field: None if field == _NOT_PRINTED else _for_log(item, field)
            for field, item in value
            if not isinstance(item, _NO_TEXT)
        }
        return value.model_copy(update=texts)
    if isinstance(value, dict):
        return {_for_log(key): _for_log(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_for_log(item) for item in value)
    return value
