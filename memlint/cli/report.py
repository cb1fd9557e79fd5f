"""`memlint report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlint.base.errors import UsageError
from memlint.base.writing import write_file
from memlint.cli import completion
from memlint.cli.options import FILE, SECONDS, format_option, workload_options
from memlint.cli.printing import print_errors, progress, text_style_of, write_report
from memlint.report.escaping import one_line
from memlint.report.exports import EXPORTS, GRAPH, GRAPH_ENDINGS, SUFFIXES, export
from memlint.report.formats import FORMATS

if TYPE_CHECKING:
    from memlint.report.model import Report


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCES...", shell_complete=completion.targets)
@format_option(*sorted((*SUFFIXES, "text", *FORMATS), key=lambda name: name != "html"))
@click.option("-o", "--output-file", type=FILE, help="Write it there, whatever is there now.")
@click.option("--force", is_flag=True, help="Without -o: write over a file that is there.")
@click.option("--workload", metavar="NAME", help="Show only this one.")
@workload_options("Of a target: ")
@click.option("--timeout", **SECONDS, help="For one file's code.")
@click.option("--memory-limit", metavar="SIZE", help="Host memory one file's code may take.")
def report(
    sources: tuple[str, ...],
    output_format: str,
    output_file: Path | None,
    force: bool,
    workload: str | None,
    **options: Any,
) -> None:
    """Show reports as a page, or hand them to another program.

    SOURCES are files that `memlint check --timeline --output-format json -o FILE` wrote, - for one from stdin, or
    targets as check takes them, which are analysed first. Several become one report.

    html makes a page that needs nothing else, memviz a snapshot for https://pytorch.org/memory_viz, perfetto a trace
    for https://ui.perfetto.dev, speedscope a flame graph of the peak for https://www.speedscope.app, graph the kernels
    of a step and the tensors between them: node-link JSON, or what -o ends in, .graphml or .dot. They are written to a
    file named after the source. The other formats are those of check, and are printed.

    Exit status: 0 it is written, 2 something could not be read, analysed or written.
    """
    from memlint.commands.check.targets import CheckOptions  # noqa: PLC0415
    from memlint.commands.report import file_name, gather  # noqa: PLC0415
    from memlint.report.workloads import of_workload  # noqa: PLC0415

    file, form = output_file, output_format
    if form in SUFFIXES and file is None:
        file = Path(file_name(sources, SUFFIXES[form]))
        if file.exists() and not force:
            raise UsageError(f"{file} is there already", "Write over it with --force, or name another file with -o.")
    if form == GRAPH and file is not None and file.suffix not in GRAPH_ENDINGS:
        raise UsageError(f"{file} names no format of a graph", f"End it in {' or '.join(GRAPH_ENDINGS)}.")
    has_timeline, has_graph = form in ("html", *EXPORTS), form == GRAPH
    extent = CheckOptions(timeline=has_timeline, graph=has_graph, sweep=form not in (*EXPORTS, GRAPH))
    with progress() as show:
        gathered = gather(sources, options, extent, sys.stdin.buffer.read, show)
    shown = of_workload(gathered.report, workload) if workload is not None else gathered.report
    if file is None or form not in SUFFIXES:
        write_report(shown, form, file, text_style_of("auto", file, verbosity=0), no_exec=True)
    else:
        _write_picture(shown, form, file)
        click.echo(f"Wrote {file}{_devices(shown) if form == 'memviz' else ''}", err=True)
    if form in SUFFIXES or file is not None:
        print_errors(shown)
    click.get_current_context().exit(2 if gathered.has_failed else 0)


def _devices(shown: Report) -> str:
    """Say which device of a snapshot is which Workload, if there are several."""
    names = [each.name for each in shown.workloads if each.estimate is not None]
    if len(names) == 1:
        return ""
    return ": " + ", ".join(f"device {device} is {one_line(name)}" for device, name in enumerate(names))


def _write_picture(shown: Report, form: str, file: Path) -> None:
    if form == "html":
        from memlint.report.page.render import render_page  # noqa: PLC0415

        data = render_page(shown).encode("utf-8")
    else:
        data = export(shown, form, file.suffix)
    write_file(file, data, "Name another file with -o.")
