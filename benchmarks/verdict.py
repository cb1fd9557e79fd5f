"""Seconds to the verdict, and to the end, of a first check.

    python benchmarks/verdict.py
    python benchmarks/verdict.py --repeats 9

A small file, README's GPT-2, a config class and a script, each with nothing kept from before, in turn with a Python
that imports PyTorch, in this repository and on two CPUs at most. The verdict is the first line on stdout, which is a
pipe. `again` is a further look at the same GPT-2: the same command with `-v`, which finds the first one's answers.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click
from tabulate import tabulate

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from benchmarks.processes import ENVIRONMENT, MEMLINT, ROOT

TORCH, SMALL, GPT2, QUICK = "python -c 'import torch'", "a small file", "README's GPT-2", "the same with --quick"
LLAMA, SCRIPT, AGAIN = "transformers::LlamaConfig", "a script", "README's GPT-2 again, with -v"
_GPT2 = ("check", "fixtures/models/gpt2.py", "--batch", "8", "--dtype", "bf16-amp", "--gpu", "a100-80gb")
COMMANDS = {
    TORCH: [sys.executable, "-c", "import torch; print()"],
    SMALL: [*MEMLINT, "check", "fixtures/models/mlp.py", "--no-cache"],
    QUICK: [*MEMLINT, *_GPT2, "--no-cache", "--quick"],
    GPT2: [*MEMLINT, *_GPT2],
    AGAIN: [*MEMLINT, *_GPT2, "-v"],
    LLAMA: [*MEMLINT, "check", "transformers::LlamaConfig", "--no-cache"],
    SCRIPT: [*MEMLINT, "run", "fixtures/scripts/train_lm.py"],
}
TO_VERDICT, TO_END, AGAIN_SECONDS, TIMES = 1.0, 3.0, 0.5, 3.95


class Timed(NamedTuple):
    """One run."""

    first: float
    """Seconds until the first line."""
    end: float
    processor: float
    """Seconds of processor of all its processes."""


def timed(arguments: list[str], folder: Path) -> Timed:
    """Run a command, and read its lines as they come."""
    start = time.perf_counter()
    process = subprocess.Popen(
        arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**ENVIRONMENT, "COLUMNS": "120"}
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    first = time.perf_counter() - start
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert arguments == COMMANDS[TORCH] or b" needs " in line, line
    return Timed(first, time.perf_counter() - start, usage.ru_utime + usage.ru_stime)


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each.")
def main(repeats: int) -> None:
    """Print the medians of the seconds to the verdict and to the end, and of the seconds of processor."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    runs: dict[str, list[Timed]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "memlint"
        shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".venv", ".git", ".memlint_cache"))
        for repeat in range(repeats + 1):
            for command, arguments in COMMANDS.items():
                if command == GPT2:
                    shutil.rmtree(project / ".memlint_cache", ignore_errors=True)
                run = timed(arguments, project)
                if repeat:  # the first makes byte code
                    runs[command].append(run)
    medians = {name: Timed(*map(statistics.median, zip(*each, strict=True))) for name, each in runs.items()}
    torch = medians[TORCH]
    rows = [
        (name, each.first, each.first - torch.end, each.end, each.end - torch.end, each.processor,
         each.processor / torch.processor)
        for name, each in medians.items()
    ]  # fmt: skip
    print(f"Medians of {repeats} runs in turn, on two CPUs at most.\n")
    head = ("command", "verdict s", "beyond torch", "end s", "beyond torch", "processor s", "times torch's")
    print(tabulate(rows, head, tablefmt="github", floatfmt=".2f"))
    for name in (SMALL, GPT2):
        late = medians[name].first - torch.end
        verdict(f"the verdict on {name} comes {TO_VERDICT} s after PyTorch", f"{late:.2f} s", held=late <= TO_VERDICT)
    late = medians[GPT2].end - torch.end
    verdict(f"the end of {GPT2} comes {TO_END} s after PyTorch", f"{late:.2f} s", held=late <= TO_END)
    times = medians[GPT2].processor / torch.processor
    verdict(f"{GPT2} takes {TIMES} times the processor of `import torch`", f"{times:.2f}", held=times <= TIMES)
    again = medians[AGAIN].end
    verdict(f"a further look takes {AGAIN_SECONDS} s", f"{again:.2f} s", held=again <= AGAIN_SECONDS)


if __name__ == "__main__":
    main()
