"""Cost of many batch sizes, against that of one trace.

    python benchmarks/sweep.py
    python benchmarks/sweep.py --models gpt2,moe --sizes 64

For each model of `fixtures/models`: four traces (three sizes, and one to hold them against), then as many other sizes,
none of which was traced, and the search for the largest batch that fits an H100 from there. Everything runs in one
process; the first trace, which also loads what PyTorch loads late, is not counted.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import click
from tabulate import tabulate

ROOT = Path(__file__).parents[1]
GPU = "h100-80gb"


def measured(model: str, num_sizes: int) -> list[object]:
    from memlint.analyse import traced
    from memlint.cuda.devices import device_named
    from memlint.scaling.steps import Steps
    from memlint.workload.construct import completed_program
    from memlint.workload.discover import complete, find_workloads

    (workload,) = find_workloads(str(ROOT / "fixtures" / "models" / f"{model}.py"), ROOT, [], {"gpu": GPU}).workloads
    completed, _assumptions = complete(workload, ROOT)
    device = device_named(GPU)

    def trace(batch: int) -> None:
        traced(completed_program(replace(completed, batch=batch), ROOT), device)

    trace(2)
    traces = []
    for batch in (2, 3, 4):
        start = time.perf_counter()
        trace(batch)
        traces.append(time.perf_counter() - start)
    one = median(traces)

    sizes = range(5, 5 + num_sizes)
    steps = Steps(completed, lambda each: completed_program(each, ROOT), device)
    start = time.perf_counter()
    note = steps.learn([sizes[-1]])
    learned = time.perf_counter()
    assert note is None, note
    rows = [steps.row((batch,)) for batch in sizes]
    swept = time.perf_counter()
    assert all(row.evidence == "computed" for row in rows[:-1])
    largest = steps.search([1, 2]).number
    found = time.perf_counter()
    per_size = (swept - learned) / num_sizes
    return [
        model,
        one,
        (learned - start) / one,
        1000 * per_size,
        (swept - start) / (num_sizes * one),
        largest,
        found - swept,
    ]


@click.command()
@click.option("--models", default="gpt2,bert,clip,resnet50,unet,moe", show_default=True)
@click.option("--sizes", type=click.IntRange(min=2), default=64, show_default=True, help="How many batch sizes.")
def main(models: str, sizes: int) -> None:
    """Print seconds and ratios."""
    import torch

    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {sizes} sizes of each model on {GPU}\n")
    heads = [
        "model",
        "one trace, s",
        "learning, in traces",
        "each size, ms",
        "all sizes, against tracing each",
        "largest batch",
        "found in, s",
    ]
    rows = [measured(model, sizes) for model in models.split(",")]
    print(tabulate(rows, heads, tablefmt="github", floatfmt=("", ".2f", ".1f", ".0f", ".2f", "", ".2f")))


if __name__ == "__main__":
    main()
