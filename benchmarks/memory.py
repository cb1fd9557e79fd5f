"""Host memory and seconds of a whole `memlint check`, each in processes of its own.

    python benchmarks/memory.py
    python benchmarks/memory.py --only llama-7b --repeats 5

The memory is the peak resident size of the largest process, which is the one that runs the model. The first row is a
process that only imports torch, for comparison. The Llama is that of Hugging Face's `LlamaConfig()`, 6.7 billion
parameters, 27 GB in float32.
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

LLAMA, LIMIT_NBYTES = "llama-7b", 2**30
COMMANDS = {
    "import-torch": [sys.executable, "-c", "import torch"],
    "gpt2": [*CHECK, "fixtures/models/gpt2.py::GPT2", "--batch", "8"],
    LLAMA: [*CHECK, "transformers::LlamaConfig", "--batch", "1", "--gpu", "h200"],
}


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each.")
@click.option("--only", type=click.Choice(tuple(COMMANDS)), multiple=True, help="Commands to run.")
def main(repeats: int, only: tuple[str, ...]) -> None:
    """Print the medians of time and memory."""
    measured: dict[str, list[Measured]] = {name: [] for name in only or COMMANDS}
    for _ in range(repeats):
        for name, runs in measured.items():
            runs.append(measure(COMMANDS[name]))
    print(f"Medians of {repeats} runs in turn.\n")
    rows = []
    for name, runs in measured.items():
        seconds = statistics.median(run.seconds for run in runs)
        resident = statistics.median(run.resident for run in runs)
        rows.append([name, seconds, resident / 2**20, answer(runs[0]) if "memlint" in COMMANDS[name] else ""])
    print(tabulate(rows, ["command", "seconds", "peak resident MiB", "result"], tablefmt="github", floatfmt=".1f"))
    if LLAMA in measured:
        resident = statistics.median(run.resident for run in measured[LLAMA])
        verdict(
            "memlint check of a 7-billion-parameter Llama takes less than 1 GiB of host memory",
            f"{resident / 2**20:.0f} MiB, {answer(measured[LLAMA][0])}",
            held=resident < LIMIT_NBYTES and answer(measured[LLAMA][0]).startswith("needs"),
        )


if __name__ == "__main__":
    main()
