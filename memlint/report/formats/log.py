"""A Report whose strings may be printed anywhere in a log or a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from memlint.report.formats.visible import inert, one_line, visible

if TYPE_CHECKING:
    from memlint.report.model import Report

_AS_TYPED = ("path", "target")
"""Fields whose spaces people and editors need, because they name a file."""

_NO_TEXT = (int, float, type(None))


def for_log(report: Report) -> Report:
    """The Report with each of its strings on one line, visible and no command, but without timelines."""
    workloads = [workload.model_copy(update={"timeline": None}) for workload in report.workloads]
    found: Report = _for_log(report.model_copy(update={"workloads": workloads}))
    return found


def _for_log(value: Any, name: str = "") -> Any:
    if isinstance(value, str):
        return inert(visible(value) if name in _AS_TYPED else one_line(value))
    if isinstance(value, BaseModel):
        texts = {field: _for_log(item, field) for field, item in value if not isinstance(item, _NO_TEXT)}
        return value.model_copy(update=texts)
    if isinstance(value, dict):
        return {_for_log(key): _for_log(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_for_log(item) for item in value)
    return value
