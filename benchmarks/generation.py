"""Estimates of diffusion pipelines, beside what others published.

    python benchmarks/generation.py [--only TEXT]

The rows are fixtures/published/pipelines.json, their programs fixtures/published/pipelines.py. Needs diffusers.
"""

from __future__ import annotations

import json
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from fixtures.published.pipelines import Pictures
from memlint.accelerator import lazy_imports
from memlint.libraries import installation
from memlint.memory.devices import device_named
from memlint.memory.estimate import Estimate, estimate
from memlint.memory.timeline import Timeline, live
from memlint.tracing.recorder import trace_program
from memlint.workloads import torchvision_schemas

if TYPE_CHECKING:
    from memlint.memory.records import Trace

ROWS: list[dict[str, Any]] = json.loads((ROOT / "fixtures/published/pipelines.json").read_text("utf-8"))
GIB = 2**30


def estimated(row: dict[str, Any]) -> tuple[Trace, Estimate]:
    """The trace of the row's pipeline, and its Estimate."""
    device = device_named(row["gpu"])
    trace = trace_program(Pictures(**row["arguments"]), device, num_steps=1).trace
    return trace, estimate(Timeline.of(trace), device, trace.nodes)


def highest_by_part(trace: Trace) -> str:
    """The highest requested bytes while each kind of model runs, in order of its first kernel."""
    timeline, highest = Timeline.of(trace), dict[str, int]()
    for index, nbytes in zip(timeline.event_nodes, live(timeline), strict=True):
        if index >= 0 and trace.nodes[index].step >= 0 and (part := trace.nodes[index].module.partition(".")[0]):
            highest[part] = max(highest.get(part, 0), nbytes)
    return ", ".join(f"{part} {nbytes / GIB:.2f}" for part, nbytes in highest.items())


def compared(row: dict[str, Any]) -> tuple[list[Any], bool, str]:
    """The line of a row's pipeline, True if the published figure is within the interval, and what its parts take."""
    torchvision_schemas.install()
    installation.install()
    lazy_imports.run_eagerly()
    trace, predicted = estimated(row)
    low, best, high = (nbytes / GIB for nbytes in getattr(predicted, row["of"]))
    error, bounds = (best - row["published"]) / row["published"], f"{best:.2f} ({low:.2f} to {high:.2f})"
    line = [row["name"], row["of"], row["published"], bounds, f"{error:+.1%}", predicted.module, row["differs"]]
    return line, low <= row["published"] <= high, highest_by_part(trace)


@click.command()
@click.option("--only", default="", help="Only rows whose name has this text.")
def main(only: str) -> None:
    """Print the comparison."""
    rows, table, inside = [row for row in ROWS if only in row["name"]], [], []
    with get_context("spawn").Pool(1, maxtasksperchild=1) as processes:  # a library that one loads, the next would find
        for row, (line, is_inside, parts) in zip(rows, processes.imap(compared, rows, chunksize=1), strict=True):
            table.append(line)
            inside += [] if row["differs"] else [is_inside]
            print(f"{row['name']}: {parts}", flush=True)
    headers = ["pipeline", "of", "published, GiB", "predicted", "error", "peak in", "differs"]
    print(tabulate(table, headers, tablefmt="github", disable_numparse=True))
    measured = f"{sum(inside)} of {len(inside)}"
    verdict("published peaks whose set-up is stated are within the interval", measured, held=all(inside))


if __name__ == "__main__":
    main()
