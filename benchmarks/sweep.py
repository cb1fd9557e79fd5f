"""Cost of many batch sizes, against that of one trace.

    python benchmarks/sweep.py
    python benchmarks/sweep.py --models gpt2,moe --sizes 64

For each model of `fixtures/models`: four traces (three sizes, and one to hold them against), the search for the largest
batch up to which all fit an H100, which looks at some fifty sizes, and then as many other sizes, none of which was
traced. Everything runs in one process; the first trace, which also loads what PyTorch loads late, is not counted.
Seconds are those of the processor, which other programs disturb less; a trace is the median of some made before all
this and some made after. A size is what is called for at it, and replays of the allocator: with ascending and
descending segments, and, where cuDNN's workspaces are in doubt, with the least and the most.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict

GPU = "h100-80gb"
UNSEEN = range(1001, 1005)
"""Batch sizes that are not looked at otherwise: what PyTorch infers is remembered."""
TRACES, SECONDS_A_SIZE, SECONDS_TO_FIND = 4, 0.03, 0.5


class Measured(NamedTuple):
    """Of one model, in seconds of the processor."""

    model: str
    trace: float
    learning: float
    size: float
    looks: int
    """Sizes that the search for the largest looked at."""
    largest: int
    searching: float

    def seconds(self, num_sizes: int) -> float:
        """Of all that is needed for so many sizes."""
        return self.learning + num_sizes * self.size


def measured(model: str, num_sizes: int) -> Measured:
    from memlint.memory.devices import device_named
    from memlint.scaling.sizes import Sizes
    from memlint.tracing.workload_errors import trace_of_workload
    from memlint.workloads.construction.construct import complete, completed_program
    from memlint.workloads.discover import find_workloads

    (workload,) = find_workloads(str(ROOT / "fixtures" / "models" / f"{model}.py"), ROOT, [], {"gpu": GPU}).workloads
    completed, _assumptions = complete(workload, ROOT)
    device = device_named(GPU)

    def seconds_to_trace(batch: int) -> float:
        start = time.process_time()
        trace_of_workload(completed_program(replace(completed, batch=batch), ROOT), device)
        return time.process_time() - start

    first, *before = UNSEEN
    seconds_to_trace(first)
    traces = [seconds_to_trace(batch) for batch in before]
    sizes = range(5, 5 + num_sizes)
    workload_sizes = Sizes(completed, lambda each: completed_program(each, ROOT), device)
    start = time.process_time()
    note = workload_sizes.learn([sizes[-1]])
    learned = time.process_time()
    assert note is None, note
    looks = workload_sizes.num_computed
    rows = [workload_sizes.at((batch,)) for batch in sizes]
    swept = time.process_time()
    assert all(row.evidence == "computed" for row in rows[:-1])
    workload_sizes.at((1,))  # a batch of one is always traced
    searching = time.process_time()
    largest = workload_sizes.search([1, 2]).number
    found = time.process_time()
    traces += [seconds_to_trace(batch + len(UNSEEN)) for batch in before]
    size = (swept - learned) / num_sizes
    return Measured(model, median(traces), learned - start, size, looks, largest, found - searching)


@click.command()
@click.option("--models", default="gpt2,bert,clip,resnet50,unet,moe", show_default=True)
@click.option("--sizes", type=click.IntRange(min=2), default=64, show_default=True, help="How many batch sizes.")
def main(models: str, sizes: int) -> None:
    """Print seconds and ratios."""
    import torch

    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {sizes} sizes of each model on {GPU}\n")
    heads = ["model", "trace, s", "learning, in traces", "sizes looked at", "each size, ms", "all, against traces"]
    runs = [measured(model, sizes) for model in models.split(",")]
    rows = [
        (r.model, r.trace, r.learning / r.trace, r.looks, 1000 * r.size, r.seconds(sizes) / (sizes * r.trace))
        for r in runs
    ]
    print(tabulate(rows, heads, tablefmt="github", floatfmt=("", ".2f", ".1f", ".0f", ".0f", ".2f")))
    for run in runs:
        number = sizes + run.looks
        limit, took = TRACES * run.trace + number * SECONDS_A_SIZE, run.seconds(sizes)
        verdict(
            f"{number} batches of {run.model} cost at most {TRACES} traces and {1000 * SECONDS_A_SIZE:.0f} ms a size",
            f"{took:.2f} s of {limit:.2f} s",
            held=took <= limit,
        )
        verdict(
            f"the largest batch of {run.model} is found within {SECONDS_TO_FIND} s after tracing",
            f"{run.largest} in {run.searching:.2f} s",
            held=run.searching <= SECONDS_TO_FIND,
        )


if __name__ == "__main__":
    main()
