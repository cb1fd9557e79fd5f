"""Workloads as they stand in a pyproject.toml."""

import tomllib
from pathlib import Path

from memlint.workloads.pyproject import workloads_from_tables
from memlint.workloads.spec import Workload


def read_workloads(pyproject: Path) -> tuple[Workload, ...]:
    document = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    return workloads_from_tables(document["tool"]["memlint"].get("workload", []), pyproject)
