"""Workloads as they stand in a pyproject.toml."""

import tomllib
from pathlib import Path

from memlint.targets.workload import Workload
from memlint.targets.workload_tables import workloads_from_tables


def read_workloads(pyproject: Path) -> tuple[Workload, ...]:
    document = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    return workloads_from_tables(document["tool"]["memlint"].get("workload", []), pyproject)
