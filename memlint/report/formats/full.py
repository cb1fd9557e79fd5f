"""Each problem with the lines of source around it, as compilers print them."""

import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from memlint.report.escaping import inert, one_line, visible
from memlint.report.formats.problems import Problem, problems
from memlint.report.model import Report
from memlint.report.phrases import by_severity

_AROUND = 1
_WIDEST = 160


def render_full(report: Report) -> str:
    """Return a block for each error, exceeded limit and finding, then their number; empty without any."""
    every = problems(report)
    if not every:
        return ""
    sources = {path: _lines(path) for path in {problem.path for problem in every}}
    blocks = ["\n".join(map(inert, _block(problem, sources[problem.path]))) for problem in every]
    return "\n\n".join([*blocks, f"Found {by_severity(problem.severity for problem in every)}."]) + "\n"


def _lines(path: str) -> Sequence[str]:
    """Read a Python file below the current directory. No other file is read: the Report may come from a stranger."""
    file, here = Path(path), Path.cwd()
    try:
        if file.suffix != ".py" or file.is_absolute() or not file.resolve().is_relative_to(here):
            return ()
        with tokenize.open(file) as opened:
            return opened.read().splitlines()
    except (OSError, SyntaxError, ValueError):
        return ()


def _block(problem: Problem, source: Sequence[str]) -> Iterator[str]:
    line = problem.line or 0
    last = min(line + _AROUND, len(source))
    gutter = " " * len(str(last if 0 < line <= len(source) else problem.line or ""))
    yield f"{problem.severity}[{problem.code}]: {problem.message}"
    yield f"{gutter}--> {visible(problem.place)}"
    if 1 <= line <= len(source):
        yield f"{gutter} |"
        for number in range(max(1, line - _AROUND), last + 1):
            text = visible(source[number - 1].expandtabs(4))[:_WIDEST]
            yield f"{number:>{len(gutter)}} | {text}".rstrip()
            if number == line:
                yield f"{gutter} | {' ' * _indent(source[number - 1], problem.column)}^"
        yield f"{gutter} |"
    yield from (f"{gutter} = {advice}" for advice in problem.advice)
    yield from (f"{gutter} = in {one_line(frame)}" for frame in problem.traceback)


def _indent(text: str, column: int | None) -> int:
    """Return the width of the text before the column, with tabs expanded; without a column, that of the indentation."""
    before = text[: column - 1] if column is not None else text[: len(text) - len(text.lstrip())]
    return min(len(visible(before.expandtabs(4))), _WIDEST)
