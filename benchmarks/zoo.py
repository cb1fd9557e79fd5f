"""How many published models memlint analyses: transformers' configs, timm's families, diffusers' models.

    python benchmarks/zoo.py --of transformers --of timm --of diffusers --table zoo.tsv
    python benchmarks/zoo.py --of transformers --sample 60 --inputs

Nothing is downloaded: each model is built from its config class, or from its own defaults. Every one runs in a child of
memlint's, with its limits. Models that the table has already are not run again, so that a sweep that was stopped goes
on. Prints one line per model, then the count, and the reasons by group.
"""

from __future__ import annotations

import collections
import csv
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from memlint.config import Settings
from memlint.worker.parallel import answers_to
from memlint.worker.protocol import Answer, Request
from memlint.worker.task import Task

LIBRARIES = ("transformers", "timm", "diffusers")
ANALYSED = "analysed"


class Outcome(NamedTuple):
    """One row of the table."""

    library: str
    name: str
    outcome: str
    """`analysed`, or the kind of the error."""
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
    settings = Settings(timeout=timeout)
    tasks = []
    for library, name in left:
        detail = {"library": library, "name": name, "inputs": inputs, "shallow": shallow}
        detail["mode"] = "inference" if inference else "train"
        request = Request(target=name, path=None, root=str(Path.cwd()), settings=settings, detail=detail)
        tasks.append(Task(request, request.limits(), "benchmarks.zoo_child:analyse"))
    for number, answer in answers_to(tasks):
        row = _outcome(*left[number], answer)
        rows[left[number]] = row
        click.echo(f"{row.library} {row.name}: {row.outcome}, {row.seconds:.1f} s: {row.reason[:200]}")
        if table:
            _write(table, rows)
    _report([rows[key] for key in chosen])


def _outcome(library: str, name: str, answer: Answer) -> Outcome:
    if answer.result is not None:
        detail = answer.result.detail
        return Outcome(library, name, ANALYSED, round(detail["seconds"], 1), _line(detail["text"]))
    return Outcome(library, name, type(answer.error).__name__, 0.0, _line(answer.error.message))


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
        click.echo(f"{library}: {sum(row.outcome == ANALYSED for row in own)} of {len(own)} analysed")
        groups = collections.Counter(row.outcome for row in own if row.outcome != ANALYSED)
        for outcome, number in groups.most_common():
            click.echo(f"  {number} {outcome}: {', '.join(row.name for row in own if row.outcome == outcome)}")


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
