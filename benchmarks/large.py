"""Seconds and host memory of `memlint check` of large models, on two CPUs at most.

    python benchmarks/large.py
    python benchmarks/large.py --only resnet-1001 --repeats 5

Everything in a run is counted: the start of Python and of PyTorch, the model, the trace, the rules, the changes that
these try, and the other batch sizes that are looked at beside. Processor seconds are those of all processes together.
The memory is the peak resident size of the largest process, which is the one that runs the model. The models are in
`fixtures/scale`. Nothing is cached.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import click
from tabulate import tabulate

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from benchmarks.processes import CHECK, Measured, answer, measure

LIMIT_SECONDS, LIMIT_NBYTES = 60, 4 * 2**30
BFLOAT16 = ["--dtype", "bfloat16", "--optimizer", "adamw", "--batch", "1"]
MODELS = {
    "llama-3.1-405b": ("Llama-3.1-405B, bfloat16", ["fixtures/scale/llama-3.1-405b/config.json", *BFLOAT16]),
    "mixture-128": ("128 experts in each of 8 layers", ["fixtures/scale/mixture.py::mixture_of_128"]),
    "resnet-1001": ("ResNet-1001, batch 128", ["fixtures/scale/resnet1001.py"]),
}


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each.")
@click.option("--only", type=click.Choice(tuple(MODELS)), multiple=True, help="Models to check.")
def main(repeats: int, only: tuple[str, ...]) -> None:
    """Print the medians of time and memory."""
    measured: dict[str, list[Measured]] = {name: [] for name in only or MODELS}
    for _ in range(repeats):
        for name, runs in measured.items():
            runs.append(measure([*CHECK, *MODELS[name][1]]))
            print(f"{name}: {runs[-1].seconds:.1f} s", file=sys.stderr)
    rows = []
    for name, runs in measured.items():
        seconds = statistics.median(run.seconds for run in runs)
        processors = statistics.median(run.processor_seconds for run in runs)
        resident = statistics.median(run.resident for run in runs)
        rows.append((MODELS[name][0], seconds, processors, resident / 2**20, answer(runs[0])))
    print(f"Medians of {repeats} runs in turn, on two CPUs at most.\n")
    heads = ["train step of", "seconds", "processor seconds", "peak resident MiB", "result"]
    print(tabulate(rows, heads, tablefmt="github", floatfmt=".1f"))
    for title, seconds, _, mebibytes, result in rows:
        verdict(
            f"memlint check of {title} takes less than {LIMIT_SECONDS} s and {LIMIT_NBYTES >> 30} GiB",
            f"{seconds:.1f} s, {mebibytes:.0f} MiB, {result}",
            held=seconds < LIMIT_SECONDS and mebibytes * 2**20 < LIMIT_NBYTES and result.startswith("needs"),
        )


if __name__ == "__main__":
    main()
