"""`memlint explain`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlint.base.errors import UsageError
from memlint.base.writing import write_file
from memlint.cli.options import COLOR, FILE
from memlint.cli.printing import text_style_of, write

if TYPE_CHECKING:
    from memlint.commands.explain.sources import Sources
    from memlint.report.text_style import TextStyle


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCES...")
@click.option(
    "--alloc-conf", "settings", multiple=True, metavar="SETTINGS", help="Replay it under these settings as well."
)
@click.option(
    "--gpu", "gpus", multiple=True, metavar="NAME", help="The GPU that it was; given again, others to try it on."
)
@click.option("--device", type=click.IntRange(min=0), metavar="N", help="This GPU of a snapshot alone.")
@click.option(
    "--output-format", "--format", "form", type=click.Choice(("text", "json", "markdown", "html")), default="text",
    show_default=True,
)  # fmt: skip
@click.option("-o", "--output-file", type=FILE, help="Write it there.")
@COLOR
@click.option("-v", "--verbose", is_flag=True, help="Every line that held memory.")
def explain(
    sources: tuple[str, ...],
    settings: tuple[str, ...],
    gpus: tuple[str, ...],
    device: int | None,
    form: str,
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
    from memlint.commands.explain.sources import sorted_out  # noqa: PLC0415 -- as all commands: --help is immediate

    given = sorted_out(sources)
    if given.logs and form == "json" and (given.recordings or len(given.logs) > 1):
        raise UsageError("several sources do not go into one JSON document", "Name one text, or recordings alone.")
    if given.logs and not given.recordings and (settings or gpus or device is not None):
        raise UsageError(
            "a message can not be replayed: it has no events",
            "Leave --alloc-conf, --gpu and --device out, or give what torch.cuda.memory._dump_snapshot wrote.",
        )
    if form == "html":
        _write_page(given, settings, gpus, device, output_file)
        return
    style = text_style_of(color, output_file, verbosity=int(verbose))
    write(_explained(given, settings, gpus, device, form, style), output_file, color=style.color)


def _write_page(
    given: Sources, settings: tuple[str, ...], gpus: tuple[str, ...], device: int | None, output_file: Path | None
) -> None:
    from memlint.commands.explain.page import report_of_recordings  # noqa: PLC0415
    from memlint.report.page.render import render_page  # noqa: PLC0415

    if given.logs or settings or output_file is None:
        raise UsageError(
            "a page is made of recordings, without --alloc-conf, and written to a file",
            "Write memlint explain snapshot.pickle --output-format html -o snapshot.html.",
        )
    page = render_page(report_of_recordings(given.recordings, gpus, device))
    write_file(output_file, page.encode(), "Name another file with -o.")
    click.echo(f"Wrote {output_file}", err=True)


def _explained(
    given: Sources, settings: tuple[str, ...], gpus: tuple[str, ...], device: int | None, form: str, style: TextStyle
) -> str:
    from memlint.commands.explain import message  # noqa: PLC0415

    parts = []
    if given.recordings:
        from memlint.commands.explain.recordings import explain_recordings  # noqa: PLC0415
        from memlint.explain.recordings.text import render_markdown, render_text  # noqa: PLC0415

        document = explain_recordings(given.recordings, settings, gpus, device)
        match form:
            case "json":
                parts.append(document.model_dump_json(indent=2) + "\n")
            case "markdown":
                parts.append(render_markdown(document))
            case _:
                parts.append(style.fitted(render_text(document, style)))
    for log in given.logs:
        text = message.read_stream(sys.stdin.buffer) if log == "-" else message.read_log(Path(log))
        parts.append(message.explain_text(text, form))
    return "\n".join(parts)
