"""`memlint explain`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlint.base.errors import UsageError
from memlint.base.writing import write_file
from memlint.cli import completion
from memlint.cli.options import COLOR, FILE, format_option
from memlint.cli.printing import progress, text_style_of, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.commands.explain.recordings import RecordingOptions
    from memlint.commands.explain.sources import Sources
    from memlint.report.text_style import TextStyle


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCES...")
@click.option(
    "--alloc-conf", "settings", multiple=True, metavar="SETTINGS", help="Replay it under these settings as well."
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="NAME",
    shell_complete=completion.gpus,
    help="The GPU that it was; given again, others to try it on.",
)
@click.option(
    "--against", metavar="TARGET", help="Put the simulated step of this program beside it, as check takes it."
)
@click.option("--device", type=click.IntRange(min=0), metavar="N", help="This GPU of a snapshot alone.")
@format_option("text", "json", "markdown", "html")
@click.option("-o", "--output-file", type=FILE, help="Write it there.")
@COLOR
@click.option("-v", "--verbose", is_flag=True, help="Every line that held memory.")
def explain(
    sources: tuple[str, ...],
    settings: tuple[str, ...],
    gpus: tuple[str, ...],
    against: str | None,
    device: int | None,
    output_format: str,
    output_file: Path | None,
    color: str,
    verbose: bool,
) -> None:
    """Say why a run ran out of memory, what held it, and what would have helped.

    SOURCES are snapshots of torch.cuda.memory._dump_snapshot (.pickle, also compressed, or a folder with one a rank),
    histories of memlint validate (.json.gz), or text: the log of a run, or - for what comes from stdin. A text may hold
    a message of CUDA, cuBLAS, NCCL, Triton, a DataLoader or the OOM killer, in the wordings of PyTorch 1.0 to 2.13.

    Exit status: 0 it is explained, 2 a source could not be read, or nothing in it is about memory.
    """
    from memlint.commands.explain.recordings import RecordingOptions  # noqa: PLC0415 -- --help is immediate
    from memlint.commands.explain.sources import sorted_out  # noqa: PLC0415

    given, options = sorted_out(sources), RecordingOptions(settings, gpus, device, against)
    if given.logs and output_format == "json" and (given.recordings or len(given.logs) > 1):
        raise UsageError("several sources do not go into one JSON document", "Name one text, or recordings alone.")
    if given.logs and not given.recordings and not options.are_default:
        raise UsageError(
            "a message can not be replayed: it has no events",
            "Leave --alloc-conf, --gpu, --against and --device out, or give a snapshot of PyTorch.",
        )
    if output_format == "html":
        _write_page(given, options, output_file)
        return
    style = text_style_of(color, output_file, verbosity=int(verbose))
    write("\n".join(_explained(given, options, output_format, style)), output_file, color=style.color)


def _write_page(given: Sources, options: RecordingOptions, output_file: Path | None) -> None:
    from memlint.commands.explain.page import report_of_recordings  # noqa: PLC0415
    from memlint.report.page.render import render_page  # noqa: PLC0415

    if given.logs or options.settings or options.against or output_file is None:
        raise UsageError(
            "a page is made of recordings, without --alloc-conf and --against, and written to a file",
            "Write memlint explain snapshot.pickle --output-format html -o snapshot.html.",
        )
    page = render_page(report_of_recordings(given.recordings, options))
    write_file(output_file, page.encode(), "Name another file with -o.")
    click.echo(f"Wrote {output_file}", err=True)


def _explained(given: Sources, options: RecordingOptions, form: str, style: TextStyle) -> Iterator[str]:
    from memlint.commands.explain import message  # noqa: PLC0415

    if given.recordings:
        from memlint.commands.explain.recordings import explain_recordings  # noqa: PLC0415
        from memlint.explain.recordings.text import render_markdown, render_text  # noqa: PLC0415

        with progress("simulating") as show:
            document = explain_recordings(given.recordings, options, show)
        match form:
            case "json":
                yield document.model_dump_json(indent=2) + "\n"
            case "markdown":
                yield render_markdown(document)
            case _:
                yield style.fitted(render_text(document, style))
    for log in given.logs:
        text = message.read_stream(sys.stdin.buffer) if log == "-" else message.read_log(Path(log))
        yield message.explain_text(text, form)
