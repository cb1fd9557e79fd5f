"""The examples of the documentation: every console block of a page is run, and holds what its commands print.

Pages say with marks what their commands find. `<!-- file: NAME -->` before a code block, or a comment that begins like
that and has the text in it, is a file; `<!-- copy: PATH -->` and `<!-- copy: PATH as NAME -->` are ones of this
repository. `<!-- edit: NAME` has lines of such a file, a line of three dashes and what takes their place, and
`<!-- commit -->` commits all that is there. Such pages run in a folder of their own, all others in this repository. In
what is shown a line of three dots stands for any number of lines.

`python -m tests.integration.examples README.md docs/sweep.md` writes what is printed today into these pages.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = "..."
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(
    r"<!-- file: (?P<name>\S+) -->\n```\w*\n(?P<shown>.*?)```|<!-- file: (?P<hidden>\S+)\n(?P<text>.*?)-->"
    r"|<!-- copy: (?P<source>\S+)(?: as (?P<copy>\S+))? -->|<!-- edit: (?P<edited>\S+)\n(?P<old>.*?)---\n(?P<new>.*?)-->"
    r"|<!-- (?P<commit>commit) -->",
    re.DOTALL,
)
_GIT = {
    **{f"GIT_{who}_{what}": "memlint" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    **{f"GIT_{who}_DATE": "2026-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}
"""With the same files a commit has the same name everywhere."""


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


@contextmanager
def place(page: Path) -> Iterator[Path]:
    """Find where the commands of a page run: a folder with the files that the page gives, or the repository.

    What they write there goes again, as far as the page names it.
    """
    text = page.read_text(encoding="utf-8")
    marks = list(_MARK.finditer(text))
    if not marks:
        before = set(ROOT.iterdir())
        try:
            yield ROOT
        finally:
            for file in set(ROOT.iterdir()) - before:
                if file.name in text:
                    file.unlink()
        return
    with tempfile.TemporaryDirectory() as name:
        for mark in marks:
            _follow(mark, Path(name))
        yield Path(name)


def _follow(mark: re.Match[str], folder: Path) -> None:
    """Do what a mark says."""
    if mark["commit"]:
        if not (folder / ".git").exists():
            subprocess.run(["git", "init", "-q", "-b", "main"], cwd=folder, check=True)
        for arguments in (["add", "--all"], ["commit", "-q", "-m", "A commit"]):
            subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **_GIT}, check=True)
    elif mark["source"]:
        (folder / (mark["copy"] or Path(mark["source"]).name)).write_bytes((ROOT / mark["source"]).read_bytes())
    elif mark["edited"]:
        file = folder / mark["edited"]
        text = file.read_text(encoding="utf-8")
        assert text.count(mark["old"]) == 1, f"{mark['edited']} does not have these lines once:\n{mark['old']}"
        file.write_text(text.replace(mark["old"], mark["new"]), encoding="utf-8")
    else:
        (folder / (mark["name"] or mark["hidden"])).write_text(mark["shown"] or mark["text"], encoding="utf-8")


def printed(command: str, directory: Path) -> list[str]:
    """The lines that a command of memlint prints there, 100 columns wide."""
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=directory,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return (done.stdout + done.stderr).rstrip("\n").splitlines()


def difference(shown: list[str], lines: list[str]) -> str:
    """Give what of `shown` is not in what was printed, in its order; empty where all is."""
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
    with place(page) as directory:

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
