"""The examples of the documentation: every console block of a page is run, and holds what its commands print.

Pages say with marks what their commands find. `<!-- file: NAME -->` before a code block, or a comment that begins like
that and has the text in it, is a file; `<!-- copy: PATH -->` is one of this repository. Such pages run in a folder of
their own, all others in this repository. A line of three dots stands for any number of lines.

`python -m tests.integration.examples README.md docs/sweep.md` writes what is printed today into these pages.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = "..."
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(
    r"<!-- file: (?P<name>\S+) -->\n```\w*\n(?P<shown>.*?)```|<!-- file: (?P<hidden>\S+)\n(?P<text>.*?)-->", re.DOTALL
)
_COPY = re.compile(r"<!-- copy: (\S+) -->")


@dataclass(frozen=True)
class Example:
    """One command of a page, and the lines that the page shows below it."""

    page: Path
    command: str
    shown: list[str]


def examples(page: Path) -> list[Example]:
    """Those of all console blocks of a page that are commands of memlint, in their order."""
    return [
        Example(page, command, shown)
        for block in _BLOCK.findall(page.read_text(encoding="utf-8"))
        for command, shown in _commands(block)
        if command.startswith("memlint ")
    ]


def _commands(block: str) -> list[tuple[str, list[str]]]:
    first, *others = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not first, f"a console block begins with its command: {first!r}"
    return [(lines[0], lines[1:]) for lines in (each.splitlines() for each in others)]


def place(page: Path, folder: Path) -> Path:
    """Where the commands of a page run: the repository, or `folder` with the files that the page gives."""
    text = page.read_text(encoding="utf-8")
    files, copies = list(_FILE.finditer(text)), _COPY.findall(text)
    if not files and not copies:
        return ROOT
    for each in files:
        (folder / (each["name"] or each["hidden"])).write_text(each["shown"] or each["text"], encoding="utf-8")
    for path in copies:
        (folder / Path(path).name).write_bytes((ROOT / path).read_bytes())
    return folder


def printed(command: str, directory: Path) -> list[str]:
    """The lines that a command of memlint prints there, 100 columns wide; files that it writes into the repository go."""
    before = set(directory.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=directory,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    for file in set(directory.iterdir()) - before if directory == ROOT else ():
        if file.name in command or f"Wrote {file.name}" in done.stdout + done.stderr:
            file.unlink()
    return (done.stdout + done.stderr).rstrip("\n").splitlines()


def difference(shown: list[str], lines: list[str]) -> str:
    """What of `shown` is not in what was printed, in its order; empty where all is."""
    position, loose = 0, shown[:1] == [LEFT_OUT]
    for segment, is_last in _segments(shown):
        starts = range(position, len(lines) - len(segment) + 1) if loose else [position]
        if is_last and loose:
            starts = [len(lines) - len(segment)]
        start = next((each for each in starts if lines[each : each + len(segment)] == segment), None)
        if start is None:
            return "these lines are not printed so:\n" + "\n".join(segment)
        position, loose = start + len(segment), True
    return "" if position == len(lines) or shown[-1:] == [LEFT_OUT] else f"the end is missing: {lines[position:]}"


def renewed(shown: list[str], lines: list[str]) -> list[str]:
    """`shown` with what is printed today in the place of what is most like it."""
    if LEFT_OUT not in shown:
        return lines
    result: list[str] = []
    position = 0
    for segment, is_last in _segments(shown):
        starts = list(range(position, len(lines) - len(segment) + 1))
        if is_last:
            starts = starts[-1:]
        elif not result and shown[0] != LEFT_OUT:
            starts = starts[:1]
        start = max(starts, key=lambda each: _likeness(segment, lines[each : each + len(segment)]))
        result += [*([LEFT_OUT] if result or shown[0] == LEFT_OUT else []), *lines[start : start + len(segment)]]
        position = start + len(segment)
    return [*result, *([LEFT_OUT] if shown[-1] == LEFT_OUT else [])]


def _likeness(old: list[str], new: list[str]) -> float:
    return sum(SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in zip(old, new, strict=True))


def _segments(shown: list[str]) -> list[tuple[list[str], bool]]:
    """Lines in a row between those that are left out, and whether they are the end of what is printed."""
    segments: list[list[str]] = [[]]
    for line in shown:
        if line == LEFT_OUT:
            segments.append([])
        else:
            segments[-1].append(line)
    ends = shown[-1:] != [LEFT_OUT]
    last = len(segments) - 1
    return [(each, ends and number == last) for number, each in enumerate(segments) if each]


def renew(page: Path) -> None:
    """Write what is printed today into the page."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        directory = place(page, Path(folder))

        def block(match: re.Match[str]) -> str:
            parts = []
            for command, shown in _commands(match[1]):
                if command.startswith("memlint "):
                    shown = renewed(shown, printed(command, directory))  # noqa: PLW2901
                parts += [f"$ {command}", *shown]
            return "\n".join(["```console", *parts, "```"])

        page.write_text(_BLOCK.sub(block, text), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        renew(Path(name).resolve())
