"""A suite of Subjects, in a TOML file: `[[workload]]` tables, the most informative first."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from memlint.base.errors import UsageError
from memlint.targets.workload_tables import workload_from_table
from memlint.validate.measurement import Subject, plain_table

_OWN = ("family", "holdout", "cpu", "history")
_CONDITIONS = {"matmul-precision": "matmul_precision", "cudnn-benchmark": "cudnn_benchmark"}


class Entry(NamedTuple):
    """One Subject of a suite."""

    subject: Subject
    cpu: bool
    """True if it is small enough for a CPU to measure; a GPU, on which each process takes seconds, leaves it out."""
    history: bool = False
    """True to keep the allocator's history when histories are asked for."""


def read_suite(file: Path, root: Path) -> tuple[Entry, ...]:
    """The entries of `file`, in its order.

    A table has the keys of `[[tool.memlint.workload]]`, with paths relative to the file's folder, and `family`,
    `holdout`, `cpu`, `history` and the fields of Conditions with dashes. The Subjects' paths are relative to `root`.
    Raises UsageError if a table makes no sense, TargetError if a target does not exist.
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", "Give a TOML file with [[workload]] tables.") from error
    entries = tuple(_entry(table, file, root) for table in document.get("workload", []))
    if not entries:
        raise UsageError(f"{file} has no workloads", "Write [[workload]] tables.")
    names = [entry.subject.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{file}: two workloads are named {name}", "Give each table a name of its own.")
    return entries


def _entry(table: dict[str, Any], file: Path, root: Path) -> Entry:
    where = f"{file}: workload {table.get('name', '')}"
    if "name" not in table:
        raise UsageError(f"{file}: a workload has no name", 'Write name = "..." in each table.')
    conditions = {own: table[key] for key, own in _CONDITIONS.items() if key in table}
    rest = {key: value for key, value in table.items() if key not in (*_OWN, *_CONDITIONS)}
    settings = plain_table(workload_from_table(rest, file.parent.resolve(), where, origin="config"), root)
    del settings["gpu"]
    try:
        subject = Subject.model_validate({
            "name": settings.pop("name"),
            "family": table.get("family", ""),
            "holdout": table.get("holdout", False),
            "table": settings,
            "conditions": conditions,
        })  # fmt: skip
    except ValidationError as error:
        raise UsageError(f"{where}: {error}", "Correct the table.") from error
    return Entry(subject, bool(table.get("cpu", False)), bool(table.get("history", False)))
