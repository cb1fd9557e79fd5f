"""The first command on strangers' projects: `memlint check FILE`, and `memlint run SCRIPT` with its README's arguments.

    python benchmarks/first_command.py CHECKOUTS [--list FILE] [--memlint COMMAND] [--only TEXT] [-o FOLDER]

CHECKOUTS has a folder `owner+name` for each repository of `first_command.tsv`. Each command is typed in a copy of its
folder, with nothing declared and no option added; what it says goes to FOLDER, one file a line of the list. Prints the
headline of each. Whether an answer is that which a person would mean is for a reader to judge: `first_command.md`.

The lists were written down, with what a person would mean by each command, before any of them was typed: repositories
of language models from scratch, fine-tuning, diffusion, detection, segmentation, graphs, reinforcement learning, time
series, audio, point clouds, robots and research code with hydra, none of them among the fixtures, in
`first_answer.txt` or in an earlier list. The last column of the list has the answer on the first reading.

`inference_scripts.tsv` is a list of scripts that only generate; what they got stands in `inference_scripts.md`.
"""

from __future__ import annotations

import csv
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import click

_LIST = Path(__file__).with_suffix(".tsv")
_CONFIGS = _LIST.with_name("inference_configs")
"""Sizes of models that are on no machine here, as their authors state them: a command has `CONFIGS` in their place."""
_LONGEST = 400


@click.command()
@click.argument("checkouts", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--list", "listed", default=_LIST, type=click.Path(exists=True, path_type=Path), help="Another list.")
@click.option("--memlint", "program", default="memlint", help="The command to type in place of memlint.")
@click.option("--only", default="", help="Only lines of the list with this text.")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Keep what is said here.")
def main(checkouts: Path, listed: Path, program: str, only: str, output: Path | None) -> None:
    with listed.open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if only in " ".join(row.values())]
    for number, row in enumerate(rows):
        row["command"] = row["command"].replace("CONFIGS", str(_CONFIGS))
        folder = checkouts / row["repository"].replace("/", "+")
        begin = time.monotonic()
        status, said = _typed(folder, row["folder"], [*shlex.split(program), *shlex.split(row["command"])])
        head = " ".join(said.split("\n\n")[0].split())[:300]
        command = f"memlint {row['command']}"
        print(f"{row['repository']}: {command}\n  {status}, {time.monotonic() - begin:.0f} s: {head}", flush=True)
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            comments = f"# {row['repository']} {command}\n# a person would mean: {row['expected']}\n"
            (output / f"{number:02}.txt").write_text(f"{comments}# exit status {status}\n{said}")


def _typed(folder: Path, inside: str, words: list[str]) -> tuple[str, str]:
    """Type a command in a copy of the folder; return its exit status, and all that it says."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, folder.name.partition("+")[2])
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        try:
            done = subprocess.run(
                words, check=False, cwd=copy / inside, text=True, errors="replace", timeout=_LONGEST,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "none", f"no answer in {_LONGEST} s"
    return str(done.returncode), done.stdout


if __name__ == "__main__":
    main()
