"""Estimates of what others measured and published, with programs built again from what they wrote.

    python benchmarks/published.py
    python benchmarks/published.py --half fitted

The rows are fixtures/published/measurements.json; fixtures/published/README.md says what may be fitted to them.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from fixtures.published import programs
from memlint.cuda.devices import device_named
from memlint.memory.estimate import Interval, estimate
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program
from memlint.workloads import torchvision_schemas

ROWS: list[dict[str, Any]] = json.loads((ROOT / "fixtures/published/measurements.json").read_text("utf-8"))
FITTED, HELD_OUT = "fitted", "held out"
GOAL = 0.9


class Compared(NamedTuple):
    """A measurement in bytes and its estimate."""

    name: str
    gpu: str
    half: str
    measured: int
    predicted: Interval

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        return (self.predicted.estimate - self.measured) / self.measured

    @property
    def is_inside(self) -> bool:
        """Whether the measurement lies in the interval; nvidia-smi shows whole MiB."""
        return self.predicted.low - 2**20 < self.measured < self.predicted.high + 2**20


def half_of(row: dict[str, Any]) -> str:
    """Rows of one model and source are in one half: that of the first digit of a hash of both."""
    model = row["name"].partition(", batch")[0]
    return HELD_OUT if int(hashlib.sha256(f"{row['url']} {model}".encode()).hexdigest()[0], 16) % 2 else FITTED


def compared(row: dict[str, Any]) -> Compared:
    """Trace the program of one row."""
    torchvision_schemas.install()
    device = device_named(row["gpu"])
    program = getattr(programs, row["program"])(**row["arguments"])
    trace = trace_program(program, device, num_steps=2).trace
    predicted = estimate(Timeline.of(trace), device, trace.nodes)
    return Compared(row["name"], row["gpu"], half_of(row), row["mib"] << 20, getattr(predicted, row["measured"]))


@click.command()
@click.option("--half", type=click.Choice((FITTED, HELD_OUT)), help="Only rows of one half.")
def main(half: str | None) -> None:
    """Print every row, then the share inside, the median error and the width of each half."""
    rows = [compared(row) for row in ROWS if half in (None, half_of(row))]
    table = [
        [r.name, r.gpu, r.half, r.measured >> 20, *(n >> 20 for n in r.predicted), f"{r.error:+.1%}", r.is_inside]
        for r in rows
    ]
    headers = ["what", "GPU", "half", "measured MiB", "low", "estimate", "high", "error", "inside"]
    print(tabulate(table, headers, tablefmt="github"))
    print()
    for name in (FITTED, HELD_OUT):
        of_half = [row for row in rows if row.half == name]
        if of_half:
            summarize(name, of_half)


def summarize(name: str, rows: list[Compared]) -> None:
    """Print what holds of one half."""
    share = sum(row.is_inside for row in rows) / len(rows)
    error = statistics.median(abs(row.error) for row in rows)
    width = statistics.median((row.predicted.high - row.predicted.low) / row.measured for row in rows)
    what = f"{len(rows)} rows, {share:.0%} inside, median error {error:.1%}, median width {width:.0%} of it"
    verdict(f"published measurements, {name}: 90 % inside the interval", what, held=share >= GOAL)


if __name__ == "__main__":
    main()
