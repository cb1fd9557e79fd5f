"""Estimates of what others measured and published, with programs built again from what they wrote.

    python benchmarks/published.py > docs/published.md
    python benchmarks/published.py --half fitted

The rows are fixtures/published/measurements.json; fixtures/published/README.md says what may be fitted to them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self
from unittest import mock
from urllib.parse import urlsplit

import click
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from fixtures.published import programs
from memlint.memory.context import VARIABLE, with_context
from memlint.memory.devices import device_named
from memlint.memory.estimate import Estimate, Interval, estimate
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program
from memlint.workloads import torchvision_schemas

ROWS: list[dict[str, Any]] = json.loads((ROOT / "fixtures/published/measurements.json").read_text("utf-8"))
FITTED, HELD_OUT = "fitted", "held out"
PAGE = """\
`python benchmarks/published.py` rebuilds programs whose GPU memory others measured and published, and
estimates them. [fixtures/published](../fixtures/published/README.md) says how they were chosen, what is assumed, and
why some are far off. Nothing is fitted to those held out. `allocated` is mostly predicted as one number, so a
measurement can be near and still outside: the share that counts is that of device totals and of `reserved`."""
KINDS = ("device",), ("reserved",), ("device", "reserved"), ("allocated",)
"""What was measured, in groups of which the page says how many lie inside."""
GOAL = 0.9
NEAR = 0.02
WIDTH = 0.2
CONTEXT = """\
Device totals of machines whose CUDA context follows from the measurements (fixtures/published/README.md), once with the
context that memlint assumes and once with theirs."""


class Compared(NamedTuple):
    """A measurement in bytes and its estimate."""

    name: str
    source: str
    gpu: str
    kind: str
    half: str
    measured: int
    within: int
    """How far what was measured may lie from what was published, which is rounded."""
    predicted: Interval
    with_context: Interval | None
    """The same with the context of that machine, where it is known."""

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        return (self.predicted.estimate - self.measured) / self.measured

    @property
    def width(self) -> float:
        """Of the interval, as a share of what was measured."""
        return (self.predicted.high - self.predicted.low) / self.measured

    @property
    def is_inside(self) -> bool:
        """Whether the measurement can lie in the interval."""
        return self.predicted.low - self.within <= self.measured <= self.predicted.high + self.within

    @property
    def where_context_is_known(self) -> Self | None:
        """The same row with the other estimate, if there is one."""
        return self._replace(predicted=self.with_context) if self.with_context else None


def half_of(row: dict[str, Any]) -> str:
    """Rows of one model and source are in one half: that of the first digit of a hash of both."""
    model = row["name"].partition(", batch")[0]
    return HELD_OUT if int(hashlib.sha256(f"{row['url']} {model}".encode()).hexdigest()[0], 16) % 2 else FITTED


def source_of(row: dict[str, Any]) -> str:
    """The repository or page of an address, in short."""
    address = urlsplit(row["url"])
    parts = address.path.strip("/").split("/")
    return "/".join(parts[:2]) if address.netloc == "github.com" else address.netloc


def compared(row: dict[str, Any]) -> Compared:
    """The estimate of one row; the program of rows that differ in what was measured only is traced once."""
    estimates = estimates_of(
        row["program"], json.dumps(row["arguments"]), row["gpu"], row.get("torch", ""), row.get("modules", ""),
        row.get("context_mib", 0),
    )  # fmt: skip
    predicted, with_context = (getattr(each, row["measured"]) if each else None for each in estimates)
    assert predicted is not None
    measured = row["mib"] - row.get("driver_mib", 0) << 20
    return Compared(
        row["name"],
        source_of(row),
        row["gpu"],
        row["measured"],
        half_of(row),
        measured,
        row.get("to_mib", 1) << 20,
        predicted,
        with_context,
    )


@functools.cache
def estimates_of(
    program: str, arguments: str, gpu: str, torch: str, modules: str, context_mib: int
) -> tuple[Estimate, Estimate | None]:
    """Trace a program with arguments, which are JSON, on a GPU with that version of PyTorch, if it is known.

    `modules` is the machine's CUDA_MODULE_LOADING. The second is with the context, if that is known.
    """
    torchvision_schemas.install()
    device = device_named(gpu)
    if torch:
        major, minor = map(int, torch.split("."))
        device = dataclasses.replace(device, torch=(major, minor))
    trace = trace_program(getattr(programs, program)(**json.loads(arguments)), device, num_steps=2).trace
    timeline = Timeline.of(trace)
    with mock.patch.dict(os.environ, {VARIABLE: modules} if modules else {}):
        predicted = estimate(timeline, with_context(device), trace.nodes)
    known = device.with_measured_context(context_mib << 20) if context_mib else None
    return predicted, estimate(timeline, known, trace.nodes) if known else None


@click.command()
@click.option("--half", type=click.Choice((FITTED, HELD_OUT)), help="Only rows of one half.")
@click.option("--source", help="Only rows whose source has this in its name.")
def main(half: str | None, source: str | None) -> None:
    """Print a page: each half, each source, every row."""
    wanted = (row for row in ROWS if half in (None, half_of(row)) and (source or "") in source_of(row))
    rows = [compared(row) for row in wanted]
    print(f"# What others measured\n\n{len(rows)} measurements: {PAGE}\n")
    of_half = {name: [row for row in rows if row.half == name] for name in (FITTED, HELD_OUT)}
    headers = ["", "rows", "inside the interval", "median error", "within 2 %", "median width"]
    table = [
        [name, " and ".join(kinds), *summary(chosen)]
        for name, of in of_half.items()
        for kinds in KINDS
        if (chosen := [row for row in of if row.kind in kinds])
    ]
    print(tabulate(table, ["half", "measured", *headers[1:]], tablefmt="github"))
    known = {name: [known for row in of if (known := row.where_context_is_known)] for name, of in of_half.items()}
    both = {**known, "both": [row for of in known.values() for row in of]}
    table = [
        [name, label, *summary(chosen)]
        for name, of in both.items()
        if of
        for label, chosen in (("by GPU and PyTorch", [row for row in rows if is_same_as_one(row, of)]), ("given", of))
    ]
    print(f"\n## Where the context is known\n\n{CONTEXT}\n")
    print(tabulate(table, ["half", "context", *headers[1:]], tablefmt="github"))
    sources = sorted({(row.source, row.kind) for row in rows})
    table = [
        [source, kind, name, *summary(row for row in of if (row.source, row.kind) == (source, kind))]
        for source, kind in sources
        for name, of in of_half.items()
        if any((row.source, row.kind) == (source, kind) for row in of)
    ]
    print("\n## By source\n\n" + tabulate(table, ["source", "measured", "half", *headers[1:]], tablefmt="github"))
    table = [
        [r.name, r.source, r.gpu, r.kind, r.half, r.measured >> 20, *(n >> 20 for n in r.predicted), f"{r.error:+.1%}",
         "" if r.is_inside else "outside"]
        for r in rows
    ]  # fmt: skip
    headers = ["what", "source", "GPU", "measured", "half", "MiB", "low", "estimate", "high", "error", ""]
    print("\n## Each row\n\n" + tabulate(table, headers, tablefmt="github"))
    for name, of in of_half.items():
        for kinds in KINDS[0], KINDS[2]:
            totals = [row.is_inside for row in of if row.kind in kinds]
            claims(f"{name}, {' and '.join(kinds)}: 90 % inside the interval", totals)
        given = [row for row in known[name] if row.kind == "device"]
        claims(f"{name}, device with the context given: 90 % inside the interval", [row.is_inside for row in given])
        if given:
            width = statistics.median(row.width for row in given)
            claim = f"{name}, device with the context given: median width at most a fifth"
            verdict(claim, f"{width:.1%} of {len(given)}", held=width <= WIDTH)
        blocks = [row.is_inside or abs(row.error) <= NEAR for row in of if row.kind != "device"]
        claims(f"{name}, what is reserved or allocated: 90 % within 2 %", blocks)


def is_same_as_one(row: Compared, others: Iterable[Compared]) -> bool:
    """Say whether one of `others` is the same measurement."""
    return any(row[:6] == other[:6] for other in others)


def claims(claim: str, good: list[bool]) -> None:
    """Print whether nine of ten are good, if there are any."""
    if good:
        share = sum(good) / len(good)
        verdict(claim, f"{share:.0%} of {len(good)}", held=share >= GOAL)


def summary(rows: Iterable[Compared]) -> list[object]:
    """How many, the share inside, median error, the share of estimates that are near, and median width."""
    rows = list(rows)
    share = sum(row.is_inside for row in rows) / len(rows)
    error = statistics.median(abs(row.error) for row in rows)
    near = sum(abs(row.error) <= NEAR for row in rows) / len(rows)
    width = statistics.median(row.width for row in rows)
    return [len(rows), f"{share:.0%}", f"{error:.1%}", f"{near:.0%}", f"{width:.0%}"]


if __name__ == "__main__":
    main()
