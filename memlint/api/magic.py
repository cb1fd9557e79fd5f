"""`%%memlint`: a cell of a notebook that trains, run for a few steps without a GPU instead of being run."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from IPython.core import magic_arguments

from memlint.api.result import Result
from memlint.base.temporary import exchange_folder
from memlint.commands.check.check import check_resolved
from memlint.commands.check.notebooks import script_of, write_program
from memlint.commands.check.targets import CheckOptions, CheckTargets
from memlint.commands.targets import of_scripts
from memlint.config import find_settings, override
from memlint.report.model import Report
from memlint.source.files import Unreadable
from memlint.source.notebooks import program_of
from memlint.source.scripts import training_at_import
from memlint.source.text import Source

_MAGIC = "%%memlint"


def register(shell: Any) -> None:
    """Register the magic in an IPython shell."""

    def estimate_cell(line: str, cell: str) -> Result:
        """Estimate the memory of a cell that trains, after the cells that ran before; the cell itself is not run.

        In a child process the cells before are run on a simulated GPU, but those that train, and then this one.
        """
        options = arguments.parse_argstring(magic, line)
        typed = shell.history_manager.input_hist_raw
        number = len(typed) - 1
        cells = [*_before(typed[1:number]), (f"In [{number}]", f"\n{cell}")]
        settings = {} if options.gpu is None else {"gpu": options.gpu}
        return Result(
            _analysed(cells, settings, options.steps),
            lambda gpu: _analysed(cells, {**settings, "gpu": gpu}, options.steps),
        )

    arguments: Any = magic_arguments  # IPython has no annotations
    magic = estimate_cell
    for option in (
        arguments.argument("--steps", type=int, default=2, help="Optimizer steps to take."),
        arguments.argument("--gpu", help="GPU to estimate for, such as rtx4090."),
        arguments.magic_arguments("memlint"),
    ):
        magic = option(magic)
    shell.register_magic_function(magic, "cell", "memlint")


def _before(cells: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and text of the cells that ran, each text once, without those that train."""
    texts = {text: number for number, text in reversed(list(enumerate(cells, 1)))}
    for text, number in sorted(texts.items(), key=lambda item: item[1]):
        if not (text.lstrip().startswith(_MAGIC) or _trains(text)):
            yield f"In [{number}]", text


def _trains(text: str) -> bool:
    program = program_of([("", f"import torch\n{text}")], Path())
    try:
        return training_at_import(Source.from_text(program.text, "cell")) is not None
    except Unreadable:
        return True  # it did not run either


def _analysed(cells: list[tuple[str, str]], options: dict[str, object], steps: int) -> Report:
    here = Path.cwd()
    settings, root = find_settings(here)
    with exchange_folder() as folder:
        written = write_program(program_of(cells, here), "In", "cells", Path(folder))
        script = script_of(written, "cell", here).model_copy(update={"steps": steps})
        targets = of_scripts([script], override(settings, **options), root, (written.file,))
        resolved = CheckTargets((targets,), (), (), (written,))
        return check_resolved(
            resolved, (), CheckOptions(timeline=True, cache=False), lambda _target, _seconds: None
        ).report
