"""Estimates of training with `cudnn.benchmark` against what nvidia-smi showed others, where the CUDA context is given.

    python benchmarks/published_searches.py
    python benchmarks/published_searches.py --half fitted

The rows are fixtures/published/searches.json; fixtures/published/README.md says what was fitted to which.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from fixtures.published.timm_training import TimmTraining
from memlint.memory.devices import device_named
from memlint.memory.estimate import Interval, estimate
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program
from memlint.workloads import torchvision_schemas

TABLE: dict[str, Any] = json.loads((ROOT / "fixtures/published/searches.json").read_text("utf-8"))
HALVES = "fitted", "held_out"


class Compared(NamedTuple):
    """One row in MiB."""

    model: str
    batch: int
    measured: int
    predicted: Interval

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        return self.predicted.estimate / self.measured - 1

    @property
    def width(self) -> float:
        """Width of the interval, as a share of what was measured."""
        return (self.predicted.high - self.predicted.low) / self.measured

    @property
    def is_inside(self) -> bool:
        """True if what was measured lies in the interval."""
        return self.predicted.low <= self.measured <= self.predicted.high


def compared(row: dict[str, Any]) -> Compared:
    """The estimate of one row, with the context of that machine."""
    torchvision_schemas.install()
    low, likely, high = (mib << 20 for mib in TABLE["context_mib"])
    gpu = device_named(TABLE["gpu"])
    device = dataclasses.replace(gpu, context_low=low, context_nbytes=likely, context_high=high)
    trace = trace_program(TimmTraining(row["model"], row["batch"]), device, num_steps=2).trace
    predicted = estimate(Timeline.of(trace), device, trace.nodes).device
    return Compared(row["model"], row["batch"], row["mib"], Interval(*(nbytes >> 20 for nbytes in predicted)))


@click.command()
@click.option("--half", type=click.Choice(HALVES), help="Only rows of one half.")
def main(half: str | None) -> None:
    """Print each row, and of each half how many lie inside, the median error and width."""
    for name in [half] if half else HALVES:
        rows = [compared(row) for row in TABLE[name]]
        table = [
            [r.model, r.batch, r.measured, *r.predicted, f"{r.error:+.1%}", "" if r.is_inside else "outside"]
            for r in rows
        ]
        print(tabulate(table, ["model", "batch", "MiB", "low", "estimate", "high", "error", ""], tablefmt="github"))
        inside = sum(row.is_inside for row in rows) / len(rows)
        error = statistics.median(abs(row.error) for row in rows)
        width = statistics.median(row.width for row in rows)
        print(f"\n{name}: {inside:.0%} of {len(rows)} inside, median error {error:.1%}, median width {width:.0%}\n")


if __name__ == "__main__":
    main()
