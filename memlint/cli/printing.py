"""Printing: reports, progress and errors, each to its stream."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar
from unicodedata import east_asian_width

import click

from memlint.base.writing import write_file
from memlint.report.escaping import inert, one_line, visible
from memlint.report.formats import render

if TYPE_CHECKING:
    from memlint.commands.parts import Part
    from memlint.commands.sweep.gather import Document, Gathered
    from memlint.report.model import Finding, Report, Workload
    from memlint.report.text_style import TextStyle

_Record = TypeVar("_Record", "Report", "Workload", "Finding")
_COLUMNS = 80  # of a terminal that does not say how wide it is
_DOTS = "..."
_PATIENCE = 1.0  # seconds before progress is shown


def show_result(
    gathered: Gathered[Document],
    render: Callable[[Document, str, TextStyle], str],
    form: str,
    file: Path | None,
    color: str,
) -> NoReturn:
    """Write what a sweep or a fit says, and what went wrong, and exit."""
    style = text_style_of(color, file, verbosity=0)
    text = render(gathered.document, form, style)
    write(style.fitted(text) if form == "text" else text, file, color=style.color)
    for failure in gathered.missing:
        print_error(f"{failure.target}: {failure.message}", failure.hint)
    click.get_current_context().exit(gathered.status)


def write_report(
    report: Report, form: str, file: Path | None, style: TextStyle, *, last: str = "", no_exec: bool = False
) -> None:
    """Write a Report as text, which ends in `last`, or in one of the FORMATS. Raises UsageError."""
    if form == "text":
        from memlint.report.terminal import render_text  # noqa: PLC0415

        write(style.fitted(render_text(_from_here(report), style) + last), file, color=style.color)
    else:
        from memlint.lint.registry import registry_here  # noqa: PLC0415

        write(render(report, form, lambda: registry_here(no_exec).rules), file, color=False)


class ReportOutput:
    """A Report in one of the FORMATS, or as text: on stdout each part of that is written as soon as it is known."""

    def __init__(self, form: str, file: Path | None, color: str, *, verbosity: int, no_exec: bool = False) -> None:
        self._form, self._file, self._no_exec = form, file, no_exec
        self._style = text_style_of(color, file, verbosity=verbosity)
        self._comes_in_parts = form == "text" and file is None
        self._written: Counter[str] = Counter()

    def part(self, part: Workload | Finding) -> None:
        """Write a Workload or a finding, if the form allows it."""
        if self._comes_in_parts:
            from memlint.report.terminal import block_of  # noqa: PLC0415

            show_progress("")
            self._write(block_of(_from_here(part), self._style))

    def rest(self, report: Report, last: str = "") -> None:
        """Write all of the Report that was not written yet, and at the end of text `last`. Raises UsageError."""
        from memlint.report.terminal import blocks  # noqa: PLC0415

        if not self._comes_in_parts:
            write_report(report, self._form, self._file, self._style, last=last, no_exec=self._no_exec)
            return
        missing = self._written.copy()
        for block in blocks(_from_here(report), self._style):
            if missing[block]:
                missing[block] -= 1
            else:
                self._write(block)
        write(self._style.fitted(last), None, color=self._style.color)

    def _write(self, block: str) -> None:
        if block:
            start = "\n" if self._written else ""
            write(self._style.fitted(f"{start}{block}\n"), None, color=self._style.color)
            self._written[block] += 1


def _from_here(record: _Record) -> _Record:
    """The Report, or a part of it, with files of the project around the current folder written from there."""
    from memlint.config import find_settings  # noqa: PLC0415
    from memlint.report.paths import relative_to_parents  # noqa: PLC0415

    here, root = Path.cwd(), find_settings(Path())[1]
    if here == root:
        return record
    return type(record).model_validate(relative_to_parents(record.model_dump(), here, root))


def text_style_of(color: str, output_file: Path | None, *, verbosity: int) -> TextStyle:
    """How text looks where it goes. NO_COLOR, FORCE_COLOR and CLICOLOR_FORCE decide where --color does not."""
    from memlint.report.text_style import TextStyle  # noqa: PLC0415

    terminal = output_file is None and sys.stdout.isatty()
    if color == "auto" and os.environ.get("NO_COLOR"):
        color = "never"
    elif color == "auto" and (os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE")):
        color = "always"
    encoding = "utf-8" if output_file is not None else (sys.stdout.encoding or "ascii")
    return TextStyle(
        color=color == "always" or (color == "auto" and terminal),
        width=shutil.get_terminal_size((100, 24)).columns,
        is_terminal=terminal,
        blocks=encoding.lower().replace("-", "") == "utf8",
        verbosity=verbosity,
    )


def write(text: str, file: Path | None, *, color: bool) -> None:
    """Write to a file, or to stdout with a question mark for what it cannot show. Raises UsageError."""
    if file is None:
        encoding = sys.stdout.encoding or "ascii"
        click.echo(text.encode(encoding, "replace").decode(encoding), nl=False, color=color)
        return
    write_file(file, text.encode(), "Give another --output-file.")


class Status:
    """The line on a terminal that says which target is being analysed, and what is done with it."""

    def __init__(self, doing: str, output: ReportOutput | None = None) -> None:
        """`output` is given the parts of the Report that are known before the end."""
        self._doing = doing
        self._output = output
        self._phase = ""
        self._target = ""
        self._begin = time.monotonic()

    def __call__(self, target: str, seconds: float) -> None:
        """Show it, unless that is a matter of a second."""
        self._target = target
        if seconds > _PATIENCE:
            phase = f": {self._phase}" if self._phase else ""
            show_progress(f"{self._doing} {one_line(target)}", f"{phase} ({seconds:.0f} s)")

    def part(self, part: Part) -> None:
        """Take up a Phase, or hand on what is known of the Report."""
        from memlint.capture.capture import Capture  # noqa: PLC0415
        from memlint.commands.parts import Phase  # noqa: PLC0415

        if isinstance(part, Phase):
            self._phase = part.text
            self(self._target, time.monotonic() - self._begin)
        elif self._output is not None and not isinstance(part, Capture):
            self._output.part(part)


@contextmanager
def progress(doing: str = "analysing", output: ReportOutput | None = None) -> Iterator[Status]:
    """Show on a terminal which target is being analysed, and wipe it away at the end."""
    try:
        yield Status(doing, output)
    finally:
        show_progress("")


def show_progress(text: str, end: str = "") -> None:
    """Write over what is on the last line of the terminal, if that is one; `text` is cut so that one line holds both.

    What was longer could not be wiped away: the terminal does not wrap it either, in case it was made narrower.
    """
    if sys.stderr.isatty():
        shown = cut_to_columns(text, end, _columns() - 1)  # the cursor needs a column too
        click.echo(f"\r\033[K\033[?7l{shown}\033[?7h" if shown else "\r\033[K", err=True, nl=False)


def _columns() -> int:
    """The width of the terminal at stderr. COLUMNS may be that of the shell's terminal as it was: the less counts."""
    widths = (int(os.environ.get("COLUMNS") or 0), os.get_terminal_size(sys.stderr.fileno()).columns)
    return min(filter(None, widths), default=_COLUMNS)


def cut_to_columns(text: str, end: str, columns: int) -> str:
    """`text`, cut where it has to be, and `end`, in so many columns; characters of East Asia take two."""
    if _width(text + end) <= columns:
        return text + end
    end = _beginning(end, columns)
    left = columns - _width(end)
    return (_beginning(text, left - len(_DOTS)).rstrip() + _DOTS if left > len(_DOTS) else "") + end


def _beginning(text: str, columns: int) -> str:
    """As much of `text` as fits."""
    ends = accumulate(map(_width, text))
    return "".join(character for character, end in zip(text, ends, strict=True) if end <= columns)


def _width(text: str) -> int:
    return sum(1 + (east_asian_width(character) in "WF") for character in text)


def print_outputs(outputs: Iterable[tuple[str, str, str]]) -> None:
    """Print what the code of each target wrote: its name, stdout and stderr, with nothing that a terminal obeys."""
    for target, stdout, stderr in outputs:
        for name, text in (("stdout", stdout), ("stderr", stderr)):
            if text:
                shown = "\n".join(map(_shown, text.rstrip().split("\n")))
                click.echo(f"--- {name} of {inert(one_line(target))}\n{shown}", err=True)


def _shown(line: str) -> str:
    """A line of the output of a program, of a progress bar its last state."""
    return inert(visible(line.rstrip("\r").rpartition("\r")[2].expandtabs()))


def print_errors(report: Report) -> None:
    """Why each Workload without an Estimate has none."""
    for workload in report.workloads:
        if workload.error is not None:
            print_error(f"{workload.target}: {workload.error.message}", workload.error.hint)


def print_error(message: str, hint: str) -> None:
    """One line each, in which the runner of a workflow finds no command."""
    click.echo(f"{click.style('error', fg='red', bold=True)}: {inert(one_line(message))}", err=True)
    if hint:
        click.echo(f"  {click.style('help', fg='cyan', bold=True)}: {inert(one_line(hint))}", err=True)
