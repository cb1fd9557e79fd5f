"""Seconds to look through a project for what its files say of a model, the first time and afterwards.

    python benchmarks/index.py CHECKOUT...
    python benchmarks/index.py --answers CHECKOUTS [-o benchmarks/index.md]

Each CHECKOUT is a project: copies of transformers and of timm, or a clone of detectron2. Prints how long the index of
words takes to build and, when it is there, to find that nothing has changed; how long the search for the calls of the
models in some of the files takes, with the index and without (then every file that mentions a name is parsed); and for
how many of these files both say the same. The files are those with an `nn.Module`, evenly chosen from all of them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import click

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

import ast

from benchmarks.claims import verdict
from benchmarks.first_answer import places_of
from benchmarks.processes import ENVIRONMENT, MEMLINT
from memlint.base import cache
from memlint.source.call_sites import call_sites
from memlint.source.files import Unreadable
from memlint.source.project import Project
from memlint.source.project_files import MOST_NBYTES, ProjectFiles
from memlint.source.text import Source
from memlint.source.training_loop import sole_loop
from memlint.source.word_index import WordIndex

LIMIT_FIRST, LIMIT_AGAIN = 3.0, 0.1
PER_FILES = 2000
"""The number of files that the limits are for."""


class Unindexed(ProjectFiles):
    """The files of a project without an index: what mentions a word is read and parsed."""

    def may_mention(self, *_words: object) -> bool:
        """Return True: nothing is known."""
        return True

    def sources(self, words: Collection[str], *_is_worth: object) -> Iterator[Source]:
        """Yield all code that contains one of `words`."""
        yield from super().sources(words)


def said(files: ProjectFiles, names: Collection[str]) -> str:
    """All that the project says of how the classes of a file are called and trained."""
    project = Project(files)
    sites = call_sites(names, files.near, project)
    shown = [(each.function, each.arguments, each.unseen, each.where, each.path, each.line) for each in sites]
    return repr((shown, sole_loop(files.near, project)))


def update(root: Path) -> None:
    """Look which files there are, and bring the index of words up to date."""
    WordIndex.read(root).updated(sorted(ProjectFiles(root, root / "none.py").paths), MOST_NBYTES)


def processor_seconds(work: Callable[[], object]) -> float:
    """Seconds of processor that something takes: what else runs on the machine disturbs them little."""
    start = time.process_time()
    work()
    return time.process_time() - start


def models_in(root: Path, most: int) -> list[tuple[Path, list[str]]]:
    """Some files with modules, and the names of their classes."""
    files = [path for path in sorted(root.rglob("*.py")) if "nn.Module)" in path.read_text(errors="replace")]
    chosen = files[:: max(1, len(files) // most)][:most]
    models = []
    for path in chosen:
        try:
            body = Source.read(path).tree.body
        except Unreadable:
            continue
        models.append((path, [each.name for each in body if isinstance(each, ast.ClassDef)]))
    return models


def answer(place: Path, file: str, *options: str) -> str:
    """Return the answer of `memlint check` for a file of a checkout: verdict and assumptions, or why there is none."""
    done = subprocess.run(
        [*MEMLINT, "check", file, "--quick", "--timeout", "60", *options], check=False, cwd=place, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=ENVIRONMENT,
    )  # fmt: skip
    return done.stdout


def compare_answers(checkouts: Path, output: Path | None) -> None:
    """Print, file by file, if all answers are the same."""
    lines = ["| file | same | first line |", "|---|---|---|"]
    num_same = num_figures = 0
    files = places_of("both")
    there = [(checkouts / name.replace("/", "+"), name, file) for name, file in files]
    there = [each for each in there if (each[0] / each[2]).is_file()]
    print("\n".join(lines))
    for place, name, file in there:
        shutil.rmtree(place / cache.NAME, ignore_errors=True)
        answers = [answer(place, file), answer(place, file, "--no-cache")]
        is_same = answers[0] == answers[1]
        num_same += is_same
        num_figures += " needs " in answers[0]
        first = next(iter(answers[0].splitlines()), "").replace(str(place), "").replace("|", "/")
        lines.append(f"| {name} `{file}` | {'yes' if is_same else 'no'} | {first} |")
        print(lines[-1], flush=True)
        shutil.rmtree(place / cache.NAME, ignore_errors=True)
    lines += [
        "",
        f"{num_same} of {len(there)} files, of {len(files)}, have the same answers; {num_figures} are figures.",
    ]
    print(lines[-1])
    if output is not None:
        output.write_text("\n".join(lines) + "\n")
    verdict(
        "the index changes no answer", f"{len(there) - num_same} of {len(there)} differ", held=num_same == len(there)
    )


@click.command()
@click.argument("checkouts", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--files", type=click.IntRange(min=1), default=20, show_default=True, help="Of each project.")
@click.option("--answers", is_flag=True, help="Compare answers to commands instead.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the table of answers here too.")
def main(checkouts: tuple[Path, ...], files: int, answers: bool, output: Path | None) -> None:
    """Print a line for each project, or for each file."""
    if answers:
        compare_answers(checkouts[0].resolve(), output)
        return
    print("| project | files | first s | again s | MiB | asked | s each | without |\n|---|---|---|---|---|---|---|---|")
    differing: list[str] = []
    first, again = [], []
    for root in (each.resolve() for each in checkouts):
        shutil.rmtree(root / cache.NAME, ignore_errors=True)
        paths = ProjectFiles(root, root / "none.py").paths
        built = processor_seconds(partial(update, root))
        unchanged = processor_seconds(partial(update, root))
        first.append(built * PER_FILES / len(paths))
        again.append(unchanged)
        seconds = {True: 0.0, False: 0.0}
        models = models_in(root, files)
        for path, names in models:
            said_of = {}
            for is_indexed, kind in ((True, ProjectFiles), (False, Unindexed)):
                start = time.process_time()
                said_of[is_indexed] = said(kind(root, path), names)
                seconds[is_indexed] += time.process_time() - start
            if said_of[True] != said_of[False]:
                differing.append(str(path))
        nbytes = len(WordIndex.read(root).words)
        each = (value / max(1, len(models)) for value in seconds.values())
        figures = (built, unchanged, nbytes / 2**20, len(models), *each)
        print(f"| {root.name} | {len(paths):,} | {' | '.join(f'{figure:.2f}' for figure in figures)} |", flush=True)
    for path in differing:
        print(f"differs: {path}")
    verdict(
        f"an index of {PER_FILES:,} files is built in {LIMIT_FIRST} s, and afterwards read in {LIMIT_AGAIN} s",
        f"{max(first):.2f} s, {max(again):.2f} s",
        held=max(first) < LIMIT_FIRST and max(again) < LIMIT_AGAIN,
    )
    verdict("the index changes no answer", f"{len(differing)} differ", held=not differing)


if __name__ == "__main__":
    main()
