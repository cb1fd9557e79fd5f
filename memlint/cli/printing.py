"""Printing: reports, progress and errors, each to its stream."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from memlint.base.writing import write_file
from memlint.cli.options import registry_here
from memlint.report.escaping import inert, one_line, visible
from memlint.report.formats import render

if TYPE_CHECKING:
    from memlint.commands.sweep.gather import Document, Gathered
    from memlint.report.model import Report
    from memlint.report.text_style import TextStyle

_COLUMNS = 80  # of a terminal that does not say how wide it is
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
    report: Report, form: str, file: Path | None, color: str, *, verbosity: int, last: str = "", no_exec: bool = False
) -> None:
    """Write a Report as text, which ends in `last`, or in one of the FORMATS. Raises UsageError."""
    if form == "text":
        from memlint.report.terminal import render_text  # noqa: PLC0415

        style = text_style_of(color, file, verbosity=verbosity)
        write(style.fitted(render_text(_from_here(report), style) + last), file, color=style.color)
    else:
        write(render(report, form, lambda: registry_here(no_exec).rules), file, color=False)


def _from_here(report: Report) -> Report:
    """The Report with files of the project around the current folder written from there: `../src/model.py`."""
    from memlint.config import find_settings  # noqa: PLC0415
    from memlint.report.paths import relative_to_parents  # noqa: PLC0415

    here, root = Path.cwd(), find_settings(Path())[1]
    if here == root:
        return report
    return type(report).model_validate(relative_to_parents(report.model_dump(), here, root))


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


@contextmanager
def progress(doing: str = "analysing") -> Iterator[Callable[[str, float], None]]:
    """Show on a terminal which target is being analysed, and wipe it away at the end."""

    def show(target: str, seconds: float) -> None:
        if seconds > _PATIENCE:
            show_progress(f"{doing} {one_line(target)}", f" ({seconds:.0f} s)")

    try:
        yield show
    finally:
        show_progress("")


def show_progress(text: str, end: str = "") -> None:
    """Write over what is on the last line of the terminal, if that is one; `text` is cut so that one line holds both.

    What was longer could not be wiped away.
    """
    if sys.stderr.isatty():
        from memlint.report.text_style import cut  # noqa: PLC0415

        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
        shown = cut(text, columns - len(end) - 1) + end  # the cursor needs a column too
        click.echo(f"\r\033[K{shown}", err=True, nl=False)


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
