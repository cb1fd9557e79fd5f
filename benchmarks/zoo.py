"""How many published models memlint analyses: transformers' configs, timm's families, diffusers' models.

    python benchmarks/zoo.py --of transformers --of timm --of diffusers --table zoo.tsv
    python benchmarks/zoo.py --of transformers --sample 60 --inputs
    python benchmarks/zoo.py --of transformers --of timm --sample 30 --shallow --compile --table compiled_zoo.tsv

Nothing is downloaded: each model is built from its config class, or from its own defaults. Every one runs in a fork of
this process, within so many seconds of processor time. Models that the table has already are not run again, so that a
sweep that was stopped goes on. Prints one line per model, then the count, and the reasons by group.
"""

from __future__ import annotations

import collections
import csv
import multiprocessing
import os
import random
import re
import resource
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

import click

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's
FORK = multiprocessing.get_context("fork")
LIBRARIES = ("transformers", "timm", "diffusers")


class Outcome(NamedTuple):
    """One row of the table."""

    library: str
    name: str
    outcome: str
    """`analysed`, what became of its compilation, or the kind of the error."""
    seconds: float
    reason: str
    """First line of the error, or what was found."""


@click.command()
@click.option("--of", "libraries", multiple=True, type=click.Choice(LIBRARIES), default=LIBRARIES)
@click.option("--sample", type=int, default=0, help="Only this many models of each library, drawn at random.")
@click.option("--seed", type=int, default=0)
@click.option("--only", default="", help="Only models whose name matches this.")
@click.option("--again", default="", help="Run those again whose outcome or reason matches this.")
@click.option("--inputs", is_flag=True, help="Stop when the inputs are found: one forward and no step.")
@click.option("--shallow", is_flag=True, help="Configs with two layers, where that goes.")
@click.option("--inference", is_flag=True)
@click.option("--compile", "compiles", is_flag=True, help="Compile each model; at most half the time limit.")
@click.option("--timeout", type=float, default=60.0)
@click.option("--table", type=click.Path(path_type=Path), default=None, help="Where outcomes are kept.")
def main(
    libraries: tuple[str, ...],
    sample: int,
    seed: int,
    only: str,
    again: str,
    inputs: bool,
    shallow: bool,
    inference: bool,
    compiles: bool,
    timeout: float,
    table: Path | None,
) -> None:
    rows = _read(table) if table else {}
    chosen = []
    for library in libraries:
        names = sorted(name for name in _names(library) if re.search(only, name))
        chosen += [
            (library, n) for n in (random.Random(seed).sample(names, min(sample, len(names))) if sample else names)
        ]
    left = [key for key in chosen if key not in rows or (again and re.search(again, " ".join(map(str, rows[key]))))]
    options = {"inputs": inputs, "shallow": shallow, "compiles": compiles, "seconds": timeout}
    options["mode"] = "inference" if inference else "train"
    for number, (outcome, seconds, reason) in _outcomes(left, options):
        row = Outcome(*left[number], outcome, round(seconds, 1), _line(reason))
        rows[left[number]] = row
        click.echo(f"{row.library} {row.name}: {row.outcome}, {row.seconds:.1f} s: {row.reason[:200]}")
        if table:
            _write(table, rows)
    _report([rows[key] for key in chosen])


def _outcomes(models: Sequence[tuple[str, str]], options: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield the position of each model with its outcome, seconds and reason, as they end."""
    from benchmarks import zoo_child  # what it imports is then there in every fork

    waiting, running = list(enumerate(models)), dict[Any, tuple[int, Any]]()
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            number, model = waiting.pop(0)
            receiver, sender = FORK.Pipe(duplex=False)
            process = FORK.Process(target=_send, args=(sender, zoo_child.analyse, model, options))
            process.start()
            sender.close()
            running[receiver] = number, process
        for receiver in connection.wait(running):
            number, process = running.pop(receiver)
            try:
                outcome = receiver.recv()
            except EOFError:
                outcome = "died", options["seconds"], "it died, or took longer than the time limit"
            process.join()
            yield number, outcome


def _send(sender: Any, analyse: Any, model: tuple[str, str], options: dict[str, Any]) -> None:
    os.setsid()  # a share of the processor of its own
    resource.setrlimit(resource.RLIMIT_CPU, (int(options["seconds"]), int(options["seconds"]) + 1))
    sender.send(analyse(*model, **options))


def _line(text: str) -> str:
    return " ".join(text.split())[:600]


def _names(library: str) -> Iterator[str]:
    """Config classes of transformers, one model of each family of timm, model classes of diffusers."""
    from memlint.workloads.loading import prepare_imports

    prepare_imports()
    if library == "timm":
        import timm

        for module in timm.list_modules():
            models = [name for name in timm.list_models(module=module) if not name.startswith("test_")]
            if models:
                yield random.Random(0).choice(sorted(models))
        return
    if library == "transformers":
        import transformers as package

        base, ending = package.PreTrainedConfig, "Config"
    else:
        import diffusers as package

        base, ending = package.ModelMixin, ""
    for name in dir(package):
        value = getattr(package, name, None) if name.endswith(ending) else None
        if isinstance(value, type) and issubclass(value, base) and value is not base:
            yield name


def _report(rows: list[Outcome]) -> None:
    for library in dict.fromkeys(row.library for row in rows):
        own = [row for row in rows if row.library == library]
        click.echo(f"{library}: {len(own)}")
        for outcome, number in collections.Counter(row.outcome for row in own).most_common():
            names = ", ".join(row.name for row in own if row.outcome == outcome)
            click.echo(f"  {number} {outcome}" + (f": {names}" if outcome not in ("analysed", "compiled") else ""))


def _read(table: Path) -> dict[tuple[str, str], Outcome]:
    if not table.exists():
        return {}
    with table.open(newline="", encoding="utf-8") as file:
        rows = (Outcome(a, b, c, float(d), e) for a, b, c, d, e in csv.reader(file, delimiter="\t"))
        return {(row.library, row.name): row for row in rows}


def _write(table: Path, rows: dict[tuple[str, str], Outcome]) -> None:
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t").writerows(rows.values())


if __name__ == "__main__":
    main()
