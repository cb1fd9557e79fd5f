"""Processor time of the language server's source rules at each of 50 quick edits, in the longest files of transformers.

    python benchmarks/keystrokes.py
    python benchmarks/keystrokes.py --files 2 --edits 10

The files are those of the installed package with the most lines. Edits are spread over the simple statements inside
functions of a file: every other one writes within a line, the rest add a line, as typing does; the text stays Python,
so no edit is cheap because it cannot be parsed. Each is checked as the server checks it: parsed anew where it has to
be, and looked at by all source rules, those of `memlint_rules` included.
"""

from __future__ import annotations

import ast
import gc
import statistics
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import click
from tabulate import tabulate

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from memlint.language_server.source import Linter

MOST_MILLISECONDS = 100


def longest_files(num: int) -> list[Path]:
    spec = find_spec("transformers")
    assert spec is not None, "transformers is not installed"
    assert spec.origin is not None
    files = Path(spec.origin).parent.rglob("*.py")
    return sorted(files, key=lambda file: (-file.read_bytes().count(b"\n"), file))[:num]


def edited(text: str, num: int) -> list[str]:
    """Give the text after each of `num` edits, one after the other."""
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    inside = (node for function in functions for node in function.body if isinstance(node, ast.Assign | ast.Return))
    places = sorted({node.lineno for node in inside if node.lineno == node.end_lineno})
    assert len(places) >= num, "not that many simple statements"
    lines, texts = text.split("\n"), []
    for number in range(num):
        line = places[number * len(places) // num] - 1 + number // 2  # half of the edits before have added a line
        if number % 2:
            lines.insert(line, lines[line])
        else:
            lines[line] += f"  # edit {number}"
        texts.append("\n".join(lines))
    return texts


def measure(file: Path, num: int) -> list[float]:
    """Give the milliseconds of processor that each edit took."""
    linter, text = Linter(), file.read_text(encoding="utf-8")
    checked = linter.check(file, text)
    taken = []
    for newer in edited(text, num):
        gc.collect()
        start = time.process_time()
        checked = linter.check(file, newer, checked)
        taken.append(1e3 * (time.process_time() - start))
        assert checked.source is not None, "the edit is no Python"
    return taken


@click.command()
@click.option("--files", type=click.IntRange(min=1), default=6, show_default=True, help="How many files.")
@click.option("--edits", type=click.IntRange(min=2), default=50, show_default=True, help="Edits of each file.")
def main(files: int, edits: int) -> None:
    """Print the median and the 95th percentile for each file."""
    print(f"transformers {version('transformers')}; Python {sys.version.split()[0]}; {edits} edits of each file\n")
    rows, slowest = [], 0.0
    for file in longest_files(files):
        taken = measure(file, edits)
        high = statistics.quantiles(taken, n=20, method="inclusive")[-1]
        rows.append([file.name, file.read_bytes().count(b"\n"), statistics.median(taken), high])
        slowest = max(slowest, statistics.median(taken))
    headers = ["file", "lines", "median, ms", "95th percentile, ms"]
    print(tabulate(rows, headers, tablefmt="github", floatfmt=".0f", intfmt=","))
    verdict(
        f"Source rules look at an edit of each of these files in less than {MOST_MILLISECONDS} ms of processor",
        f"at most {slowest:.0f} ms, medians",
        held=slowest < MOST_MILLISECONDS,
    )


if __name__ == "__main__":
    main()
