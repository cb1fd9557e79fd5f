"""Seconds until memlint answers: its help, a small model, and the same model again.

    python benchmarks/start.py
    python benchmarks/start.py --repeats 21

Each is a process of its own, and the runs alternate with what no such command can be faster than: a Python that imports
click, and one that imports torch. The model is `fixtures/models/mlp.py` in a project of its own; its cache is deleted
before each cold run and filled by it. Byte code is there for all of them.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import click
from tabulate import tabulate

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from benchmarks.processes import MEMLINT, ROOT, measure

CLICK, TORCH, HELP = "python -c 'import click'", "python -c 'import torch'", "memlint --help"
COLD, AGAIN = "memlint check, cold", "memlint check again, cached"
COMMANDS = {
    CLICK: [sys.executable, "-c", "import click"],
    TORCH: [sys.executable, "-c", "import torch"],
    HELP: [*MEMLINT, "--help"],
    COLD: [*MEMLINT, "check", "mlp.py"],
    AGAIN: [*MEMLINT, "check", "mlp.py"],
}
PEERS = {HELP: CLICK, COLD: TORCH, AGAIN: CLICK}
LIMITS = {HELP: 0.25, AGAIN: 0.5}


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=9, show_default=True, help="Runs of each.")
def main(repeats: int) -> None:
    """Print medians, and their ratios to a Python that imports what they cannot do without."""
    measured: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text("[tool.memlint]\n")
        shutil.copy(ROOT / "fixtures" / "models" / "mlp.py", folder)
        for repeat in range(repeats + 1):
            for command, arguments in COMMANDS.items():
                if command == COLD:
                    shutil.rmtree(folder / ".memlint_cache", ignore_errors=True)
                found = measure(arguments, folder)
                assert found.status == 0 or "needs" in found.output, found.output
                if repeat:  # the first makes byte code
                    measured[command].append(found.seconds)
    seconds = {command: statistics.median(runs) for command, runs in measured.items()}
    rows = [
        (command, took, PEERS.get(command), took / seconds[PEERS[command]] if command in PEERS else None)
        for command, took in seconds.items()
    ]
    print(f"Medians of {repeats} runs in turn, on two CPUs at most.\n")
    print(tabulate(rows, ["command", "seconds", "against", "times"], tablefmt="github", floatfmt=".2f", missingval="-"))
    for command, limit in LIMITS.items():
        verdict(f"{command} takes less than {limit} s", f"{seconds[command]:.2f} s", held=seconds[command] < limit)


if __name__ == "__main__":
    main()
