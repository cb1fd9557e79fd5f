"""Estimates of what others measured with libraries whose kernels need a GPU, beside what they published.

    python benchmarks/published_libraries.py
    python benchmarks/published_libraries.py liger-kernel torchao

The rows are fixtures/published/libraries.json; fixtures/published/README.md says where they are from. A row whose
library is not installed is left out.
"""

from __future__ import annotations

import json
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from fixtures.published import libraries
from memlint.accelerator import lazy_imports
from memlint.libraries import installation
from memlint.memory.devices import device_named
from memlint.memory.estimate import Interval, estimate
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program
from memlint.workloads import torchvision_schemas

ROWS: list[dict[str, Any]] = json.loads((ROOT / "fixtures/published/libraries.json").read_text("utf-8"))
UNITS = {"MiB": 2**20, "GiB": 2**30, "GB": 10**9}
GOAL = 0.05


class Compared(NamedTuple):
    """A measurement in bytes and its estimate."""

    row: dict[str, Any]
    predicted: Interval

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        measured = self.row["published"] * UNITS[self.row["unit"]]
        return (self.predicted.estimate - measured) / measured

    @property
    def is_stated(self) -> bool:
        """Whether nothing of the setup had to be assumed."""
        return not self.row["differs"]


def is_installed(row: dict[str, Any]) -> bool:
    """Whether what the row's program imports is here."""
    return all(find_spec(name) for name in row["needs"])


def install() -> None:
    """Let libraries be found in this process as a check finds them."""
    torchvision_schemas.install()
    lazy_imports.run_eagerly()
    installation.install()


def compared(row: dict[str, Any]) -> Compared:
    """Trace the program of one row."""
    device = device_named(row["gpu"])
    program = getattr(libraries, row["program"])(**row["arguments"])
    trace = trace_program(program, device, num_steps=3).trace
    return Compared(row, getattr(estimate(Timeline.of(trace), device, trace.nodes), row["measured"]))


@click.command()
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Print every row, or those of the libraries NAMES, and the median error of those whose setup is fully stated."""
    install()
    rows = [compared(row) for row in ROWS if is_installed(row) and (not names or row["library"] in names)]
    table = [
        [each.row["library"], each.row["name"], each.row["gpu"], f"{each.row['published']:g} {each.row['unit']}",
         f"{each.predicted.estimate / UNITS[each.row['unit']]:.6g}", f"{each.error:+.2%}", each.row["differs"]]
        for each in rows
    ]  # fmt: skip
    print(tabulate(table, ["library", "what", "GPU", "published", "predicted", "error", "differs"], tablefmt="github"))
    print()
    stated = [abs(each.error) for each in rows if each.is_stated]
    median = statistics.median(stated) if stated else 1.0
    what = f"{len(stated)} rows, median error {median:.2%}"
    verdict("published figures of libraries: a median error below 5 % of those fully stated", what, held=median < GOAL)


if __name__ == "__main__":
    main()
