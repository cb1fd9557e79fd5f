"""Runs the benchmarks one after the other and writes what came out to `docs/performance.md`.

    python benchmarks/performance.py --peers /path/to/venv/bin
    python benchmarks/performance.py --repeats 1 --only start --output page.md

Takes about an hour, on a machine that does nothing else: the page says how busy it was. Each benchmark is a command of
its own, whose docstring says what is measured and how. Those that print no figures of speed or size are named only.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import click
import psutil

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from benchmarks.claims import HELD, MISSED

_INTRODUCTION = """\
# Performance

`python benchmarks/performance.py` writes this page: to change it, run that.
[benchmarks/README.md](../benchmarks/README.md) and the top of each file say what a benchmark measures and how. Ratios
carry over to other machines, seconds do not.
"""


class Benchmark(NamedTuple):
    """A command in `benchmarks/`."""

    name: str
    title: str
    options: tuple[str, ...] = ()
    repeats: bool = True
    """Whether it takes `--repeats`."""

    @property
    def command(self) -> str:
        """As it is typed."""
        return " ".join(("python", f"benchmarks/{self.name}.py", *self.options))


RUN = (
    Benchmark("trace", "Tracing"),
    Benchmark("run_overhead", "Scripts"),
    Benchmark("large", "Large models"),
    Benchmark("ranks", "One rank of many"),
    Benchmark("growth", "Growth with depth and width"),
    Benchmark("memory", "Host memory"),
    Benchmark("start", "Until memlint answers"),
    Benchmark("verdict", "Until the verdict and the end, beside `import torch`"),
    Benchmark("source", "Source rules"),
    Benchmark("sweep", "Many batch sizes", repeats=False),
    Benchmark("histories", "Recorded allocation histories", repeats=False),
)
NAMED = (
    Benchmark("allocator", "whether the allocator answers as PyTorch's binaries", ("--torch", "2.14.0")),
    Benchmark("compiled", "how far compiled steps are from real compiled runs on the CPU"),
    Benchmark("estimators", "what other tools estimate for training runs that others published"),
    Benchmark("first_answer", "what a newcomer gets in public repositories with nothing declared", ("FOLDER",)),
    Benchmark("first_command", "what the first command says in public repositories that nobody tuned on", ("FOLDER",)),
    Benchmark("generation", "how far estimates of diffusion pipelines are from what others published"),
    Benchmark("keystrokes", "how long the language server's source rules take at an edit of a long file"),
    Benchmark("library_tests", "what the stand-in of a library does in that library's tests", ("CHECKOUT/tests",)),
    Benchmark("ops", "how far single ops and chains of them are from real runs on the CPU"),
    Benchmark("precision", "what the source rules say about published code, to be read"),
    Benchmark("programs", "how far random training programs are from real runs on the CPU"),
    Benchmark("published", "how far estimates are from training runs that others published"),
    Benchmark("published_compiled", "how far compiled steps are from figures of GPUs that others published"),
    Benchmark("published_libraries", "how far estimates are from what libraries for GPUs published"),
    Benchmark("serving", "how far plans of serving engines are from what the engines logged"),
    Benchmark("index", "how long the index of a project takes, and whether answers are those without it", ("PROJECT",)),
    Benchmark("snapshots", "whether snapshots of the allocator are read and replayed exactly", ("FOLDER",)),
    Benchmark("watch", "what `memlint.watch` costs a training run"),
    Benchmark("zoo", "which published models analyse", ("--sample", "70", "--shallow")),
)


class Outcome(NamedTuple):
    """What a benchmark printed, or why it was not run."""

    benchmark: Benchmark
    command: str
    output: str = ""
    missing: str = ""

    def claims(self, mark: str) -> list[str]:
        """Its claims that held, or were missed."""
        return [line.removeprefix(mark) for line in self.output.splitlines() if line.startswith(mark)]


def run(benchmark: Benchmark, repeats: int, peers: Path | None) -> Outcome:
    """Run a benchmark; what goes wrong is said in the Outcome."""
    options = [*benchmark.options]
    if benchmark.repeats:
        options += ["--repeats", str(repeats)]
    if benchmark.name == "source":
        if peers is None:
            return Outcome(
                benchmark, benchmark.command, missing="Not run: it needs the other programs, with `--peers FOLDER`."
            )
        options += ["--peers", str(peers)]
    shown = " ".join((benchmark.command, *options[len(benchmark.options) :])).replace(str(peers), "FOLDER")
    print(shown, file=sys.stderr)
    arguments = [sys.executable, str(ROOT / "benchmarks" / f"{benchmark.name}.py"), *options]
    done = subprocess.run(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    missing = f"Failed with exit status {done.returncode}." if done.returncode else ""
    return Outcome(benchmark, shown, done.stdout.strip(), missing)


def machine() -> list[str]:
    """What it was measured on."""
    cores = f"{_processor()}, {len(os.sched_getaffinity(0))} cores"
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB of memory"
    load = f"{os.getloadavg()[0]:.1f} processes were running on average when it began"
    return [
        f"- {dt.datetime.now(dt.UTC):%Y-%m-%d}, memlint {version('torch-memlint')}",
        f"- {cores}, {memory}, {platform.system()}; {load}",
        f"- Python {platform.python_version()}, torch {version('torch')}, transformers {version('transformers')}",
    ]


def _processor() -> str:
    """The model of the CPU, where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def page(about: list[str], outcomes: list[Outcome]) -> str:
    """The page: the machine, every claim, every table."""
    held = [claim for outcome in outcomes for claim in outcome.claims(HELD)]
    missed = [claim for outcome in outcomes for claim in outcome.claims(MISSED)]
    lines = [_INTRODUCTION, *about, "", "## Claims", ""]
    lines += [f"- **missed**: {claim}" for claim in missed] + [f"- held: {claim}" for claim in held]
    for outcome in outcomes:
        lines += ["", f"## {outcome.benchmark.title}", "", f"`{outcome.command}`", ""]
        lines += [f"{outcome.missing}\n"] if outcome.missing else []
        text = [line for line in outcome.output.splitlines() if not line.startswith((HELD, MISSED))]
        lines += ["\n".join(text).strip()] if text else []
    lines += ["", "## Others", "", "These measure neither time nor memory:", ""]
    lines += [f"- `{benchmark.command}`: {benchmark.title}" for benchmark in NAMED]
    return "\n".join(lines).rstrip() + "\n"


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each subject.")
@click.option("--peers", type=click.Path(file_okay=False, exists=True, path_type=Path), help="As benchmarks/source.py.")
@click.option("--only", type=click.Choice([each.name for each in RUN]), multiple=True, help="Benchmarks to run.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=ROOT / "docs" / "performance.md",
    help="Where the page goes, by default docs/performance.md.",
)
def main(repeats: int, peers: Path | None, only: tuple[str, ...], output: Path) -> None:
    """Run the benchmarks, and write the page."""
    about = machine()
    chosen = [benchmark for benchmark in RUN if not only or benchmark.name in only]
    output.write_text(page(about, [run(benchmark, repeats, peers) for benchmark in chosen]), encoding="utf-8")


if __name__ == "__main__":
    main()
