"""Each complaint with the lines of source around it, as compilers print them."""

from __future__ import annotations

import tokenize
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base.units import format_count
from memlint.report.formats.entries import entries
from memlint.report.formats.visible import inert, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlint.report.formats.entries import Entry
    from memlint.report.model import Report

_AROUND = 1
_WIDEST = 160


def render_full(report: Report) -> str:
    """A block for each error, exceeded limit and finding, then how many there are; empty without any."""
    found = entries(report)
    if not found:
        return ""
    sources = {path: _lines(path) for path in {entry.path for entry in found}}
    blocks = ["\n".join(map(inert, _block(entry, sources[entry.path]))) for entry in found]
    severities = sorted(("error", "warning", "info", "note").index(entry.severity) for entry in found)
    counts = ((("error", "warning", "info", "note")[kind], len(list(group))) for kind, group in groupby(severities))
    told = ", ".join(f"{count} info" if name == "info" else format_count(count, name) for name, count in counts)
    return "\n\n".join([*blocks, f"Found {told}."]) + "\n"


def _lines(path: str) -> Sequence[str]:
    """The lines of a Python file below the current directory. No other is read: the Report may be a stranger's."""
    file, here = Path(path), Path.cwd()
    try:
        if file.suffix != ".py" or file.is_absolute() or not file.resolve().is_relative_to(here):
            return ()
        with tokenize.open(file) as opened:
            return opened.read().splitlines()
    except (OSError, SyntaxError, ValueError):
        return ()


def _block(entry: Entry, source: Sequence[str]) -> Iterator[str]:
    last = min((entry.line or 0) + _AROUND, len(source))
    gutter = " " * len(str(last if entry.line and entry.line <= len(source) else entry.line or ""))
    yield f"{entry.severity}[{entry.code}]: {entry.message}"
    numbers = "".join(f":{number}" for number in (entry.line, entry.column) if number is not None)
    yield f"{gutter}--> {visible(entry.path)}{numbers}"
    if entry.line is not None and 1 <= entry.line <= len(source):
        yield f"{gutter} |"
        for number in range(max(1, entry.line - _AROUND), last + 1):
            text = visible(source[number - 1].expandtabs(4))[:_WIDEST]
            yield f"{number:>{len(gutter)}} | {text}".rstrip()
            if number == entry.line:
                yield f"{gutter} | {' ' * _indent(source[number - 1], entry.column)}^"
        yield f"{gutter} |"
    for line in (entry.saving, f"help: {entry.fix}" if entry.fix else ""):
        if line:
            yield f"{gutter} = {line}"
    yield from (f"{gutter} = in {one_line(frame)}" for frame in entry.traceback)


def _indent(text: str, column: int | None) -> int:
    """Columns before the place, as tabs are shown; before the first word where no column is known."""
    before = text[: column - 1] if column is not None else text[: len(text) - len(text.lstrip())]
    return min(len(visible(before.expandtabs(4))), _WIDEST)
