"""Host memory and seconds of a whole `memlint check`, each in processes of its own.

    python benchmarks/memory.py
    python benchmarks/memory.py --only llama-7b --repeats 5

The memory is the peak resident size of the largest process, which is the one that runs the model. The first row is a
process that only imports torch, for comparison. The Llama is that of Hugging Face's `LlamaConfig()`, 6.7 billion
parameters, 27 GB in float32.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
CHECK = [sys.executable, "-m", "memlint", "check", "--output-format", "json"]
COMMANDS = {
    "import-torch": [sys.executable, "-c", "import torch"],
    "gpt2": [*CHECK, "fixtures/models/gpt2.py::GPT2", "--batch", "8"],
    "llama-7b": [*CHECK, "transformers::LlamaConfig", "--batch", "1", "--gpu", "h200"],
}
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # getrusage(2) of each system


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each.")
@click.option("--only", type=click.Choice(tuple(COMMANDS)), multiple=True, help="Commands to run.")
@click.option("--measure", type=click.Choice(tuple(COMMANDS)), hidden=True, help="Run one, print it as JSON.")
def main(repeats: int, only: tuple[str, ...], measure: str | None) -> None:
    """Print the medians of time and memory."""
    if measure is not None:
        print(json.dumps(_measure(COMMANDS[measure])))
        return
    rows = []
    for name in only or COMMANDS:
        again = [sys.executable, __file__, "--measure", name]
        runs = [json.loads(subprocess.run(again, check=True, capture_output=True).stdout) for _ in range(repeats)]
        medians = [statistics.median(run[key] for run in runs) for key in ("seconds", "resident")]
        rows.append([name, medians[0], medians[1] / 2**20, runs[0]["result"]])
    print(tabulate(rows, ["command", "seconds", "peak resident MiB", "result"], tablefmt="github", floatfmt=".1f"))


def _measure(command: list[str]) -> dict[str, object]:
    """Run `command` from a process that has run nothing else: what the system counts is a maximum over all children."""
    import resource

    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    resident = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _MAXRSS_UNIT
    return {"seconds": seconds, "resident": resident, "result": _result(done)}


def _result(done: subprocess.CompletedProcess[str]) -> str:
    """The estimate, so that a run that failed is seen for what it is."""
    if not done.stdout.startswith("{"):
        return f"exit {done.returncode}"
    workload = json.loads(done.stdout)["workloads"][0]
    if workload["error"] is not None:
        return f"failed: {workload['error']['message']}"
    return f"needs {workload['estimate']['peak']['device']['estimate'] / 2**30:.1f} GiB"


if __name__ == "__main__":
    main()
