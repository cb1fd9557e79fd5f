"""Time of all source rules over 200 modeling files of transformers, beside TorchFix and torch-preflight.

    python benchmarks/source.py --peers /path/to/venv/bin
    python benchmarks/source.py --repeats 7

The files are the first 200 of `transformers/models/*/modeling_*.py` in the order of their names, copied into an empty
directory. Each program is a command of its own, started anew for every run, and the runs alternate. memlint runs all
its source rules: with two processes and no cache, with one, and with two and a cache that a run before has filled.
TorchFix runs all its rules with two jobs. torch-preflight has no option for jobs. What each reports is counted, and not
compared: they look for different things.

The peers are looked for in the folder `--peers`, then beside this Python and on the PATH: `python -m venv peers &&
peers/bin/pip install torchfix torch-preflight` makes such a folder. One that is not there is said to be missing.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click
from tabulate import tabulate

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict

PEERS = ("torchfix", "torch-preflight")
LEAST_OF_PEERS = 30
WITHOUT_CACHE = "memlint, two processes"


class Command(NamedTuple):
    """A program and its arguments, and the CPUs it may use; all of two if none are given."""

    arguments: list[str]
    cpus: int


class Run(NamedTuple):
    seconds: float
    num_findings: int


def copy_files(directory: Path, num: int) -> tuple[int, int]:
    """Copy the files and give how many there are, and their lines."""
    spec = find_spec("transformers")
    assert spec is not None, "transformers is not installed"
    assert spec.origin is not None
    files = sorted(Path(spec.origin).parent.glob("models/*/modeling_*.py"))[:num]
    (directory / "pyproject.toml").write_text("[tool.memlint]\n")
    num_lines = 0
    for file in files:
        shutil.copy(file, directory / file.name)
        num_lines += file.read_bytes().count(b"\n")
    return len(files), num_lines


def commands(peers: Path | None) -> dict[str, Command]:
    memlint = [sys.executable, "-m", "memlint", "check", ".", "--no-exec", "--output-format", "json"]
    found = {
        WITHOUT_CACHE: Command([*memlint, "--no-cache"], 2),
        "memlint, one process": Command([*memlint, "--no-cache"], 1),
        "memlint, filled cache": Command(memlint, 2),
    }
    search = os.pathsep.join([str(peers or ""), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for name in PEERS:
        program = shutil.which(name, path=search)
        if program is None:
            print(f"{name} is not installed, so it is not measured: pip install {name}")
        elif name == "torchfix":
            found[name] = Command([program, "--select", "ALL", "-j", "2", "."], 2)
        else:
            found[name] = Command([program, "check", "."], 2)
    return found


def measure(command: Command, directory: Path) -> Run:
    """Run a command; what it may use of the machine is set by the CPUs it inherits."""
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(everything)[: command.cpus])
    try:
        start = time.perf_counter()
        done = subprocess.run(command.arguments, cwd=directory, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
    finally:
        os.sched_setaffinity(0, everything)
    assert done.returncode in (0, 1), done.stderr[-2000:] + done.stdout[-500:]
    return Run(seconds, _num_findings(done.stdout))


def _num_findings(output: str) -> int:
    """Entries of memlint's report, or lines that begin with a path and a line number."""
    try:
        return len(json.loads(output)["findings"])
    except ValueError:
        return sum(line.partition(":")[0].endswith(".py") and ":" in line for line in output.splitlines())


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each program.")
@click.option("--files", type=click.IntRange(min=1), default=200, show_default=True, help="How many files.")
@click.option("--peers", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Folder with the others.")
def main(repeats: int, files: int, peers: Path | None) -> None:
    """Print medians in seconds, and their ratios to memlint without a cache."""
    subjects = commands(peers)
    with tempfile.TemporaryDirectory() as name:
        num_files, num_lines = copy_files(Path(name), files)
        print(
            f"{num_files} files of transformers {version('transformers')}, {num_lines:,} lines; Python "
            f"{sys.version.split()[0]}; {len(os.sched_getaffinity(0))} CPUs; medians of {repeats} runs in turn\n"
        )
        measured: dict[str, list[Run]] = {subject: [] for subject in subjects}
        with tempfile.TemporaryDirectory() as small:
            (Path(small) / "a.py").write_text("import torch\n")
            for command in subjects.values():
                measure(command, Path(small))  # so that byte code is made
        measure(subjects["memlint, filled cache"], Path(name))
        for _ in range(repeats):
            for subject, command in subjects.items():
                measured[subject].append(measure(command, Path(name)))
    seconds = {subject: statistics.median(run.seconds for run in runs) for subject, runs in measured.items()}
    rows = [
        [subject, took, took / seconds[WITHOUT_CACHE], measured[subject][0].num_findings]
        for subject, took in seconds.items()
    ]
    print(tabulate(rows, ["program", "seconds", "times memlint's", "reports"], tablefmt="github", floatfmt=".2f"))
    for name in (name for name in PEERS if name in seconds):
        times = seconds[name] / seconds[WITHOUT_CACHE]
        verdict(
            f"All source rules are at least {LEAST_OF_PEERS} times as fast as {name}, with two processes and no cache",
            f"{times:.0f} times",
            held=times >= LEAST_OF_PEERS,
        )


if __name__ == "__main__":
    main()
