"""Notebooks among the targets of `memlint check`: run as programs, and named by cell and line in the Report."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memlint.base.errors import TargetError
from memlint.base.temporary import exchange_folder
from memlint.base.writing import write_file
from memlint.commands.targets import Targets, is_excluded, script_request
from memlint.config import find_settings, override
from memlint.source.files import Unreadable
from memlint.source.notebooks import SUFFIX, Notebook, read_notebook
from memlint.source.scripts import training_at_import
from memlint.source.text import Source
from memlint.targets.script import Script
from memlint.targets.target import SEPARATOR
from memlint.worker.protocol import Request

_LINE = re.compile(r":(\d+)")


@dataclass(frozen=True, slots=True)
class Written:
    """A notebook, and the program that stands for it."""

    typed: str
    """The notebook as it was typed."""
    file: Path
    notebook: Notebook


def is_notebook(argument: str) -> bool:
    """Say whether an argument names a notebook, or something in one."""
    return argument.partition(SEPARATOR)[0].endswith(SUFFIX)


@contextmanager
def notebook_folder(arguments: Sequence[str]) -> Iterator[Path | None]:
    """Provide a folder for the programs, if there is a notebook among the arguments."""
    if not any(map(is_notebook, arguments)):
        yield None
        return
    with exchange_folder() as folder:
        yield Path(folder)


def of_notebook(
    argument: str, folder: Path, options: Mapping[str, object], *, force_exclude: bool = False
) -> tuple[Targets, Written]:
    """Write the program of a notebook into `folder`, and give its target with the settings of the notebook's project.

    A notebook that trains is run as a script; in another one models are looked for. Raises TargetError and UsageError.
    """
    typed, _, qualname = argument.partition(SEPARATOR)
    place = Path(typed).expanduser()
    if not place.is_file():
        raise TargetError(f"{typed} does not exist", "Give the path of a notebook.")
    settings, root = find_settings(place.parent)
    settings = override(settings, **options)
    written, source = written_notebook(typed, folder)
    file = written.file
    if force_exclude and is_excluded(place, root, settings.exclude):
        return Targets(settings, root, (), (), excluded=(place,)), written
    if not qualname and training_at_import(source) is not None:
        script = script_of(written, place.stem, place.resolve().parent)
        return Targets(settings, root, (file,), (script_request(script, settings, root),)), written
    # No script imports a notebook, and nothing else of the project says what its models take.
    rule_paths = tuple(str(root / path) for path in settings.rule_paths)
    alone = settings.model_copy(update={"ask_scripts": False, "rule_paths": rule_paths})
    request = Request(target=argument, path=str(file), qualname=qualname, root=str(file.parent), settings=alone)
    return Targets(settings, root, (file,), (request,)), written


def written_notebook(typed: str, folder: Path) -> tuple[Written, Source]:
    """Write the program of the notebook at `typed` into `folder`; give its source, too.

    Raises TargetError and UsageError.
    """
    place = Path(typed).expanduser()
    try:
        notebook = read_notebook(place, typed)
    except Unreadable as error:
        raise TargetError(f"{typed} {error.reason}", "Open it in Jupyter and save it again.") from error
    source = _source(notebook, typed)
    return write_program(notebook, typed, place.stem, folder), source


def write_program(notebook: Notebook, typed: str, stem: str, folder: Path) -> Written:
    """Write the program of a notebook into a folder of its own in `folder`. Raises UsageError where it cannot."""
    file = (folder / str(len(list(folder.iterdir()))) / f"{stem}_ipynb.py").resolve()
    file.parent.mkdir()
    write_file(file, notebook.text.encode(), "Name another place for temporary files.")
    return Written(typed, file, notebook)


def script_of(written: Written, name: str, folder: Path) -> Script:
    """Give the script that runs the cells in `folder`."""
    return Script(name=name, path=str(written.file), folder=str(folder), typed=(written.typed,))


def _source(notebook: Notebook, typed: str) -> Source:
    """Parse the program. Raises TargetError that names the cell."""
    try:
        return Source.from_text(notebook.text, typed)
    except Unreadable as error:
        name, line = notebook.place(error.line) or (typed, 1)
        raise TargetError(f"{name}:{line} {error.reason}", "Correct the cell.") from error


def by_cell(value: Any, written: Sequence[Written]) -> Any:
    """Give `value`, a part of a Report, with places in notebooks by cell: `train.ipynb:cell 3`, a line of it."""
    for each in written:
        value = _by_cell(value, each)
    return value


def _by_cell(value: Any, written: Written) -> Any:
    match value:
        case str():
            return _text_by_cell(value, written)
        case list() | tuple():
            return [_by_cell(each, written) for each in value]
        case dict():
            path, line = value.get("path"), value.get("line")
            renamed = {key: _by_cell(each, written) for key, each in value.items()}
            place = written.notebook.place(line) if path == str(written.file) and isinstance(line, int) else None
            if place is not None:
                renamed |= {"path": place[0], "line": place[1]}
            return renamed
    return value


def _text_by_cell(text: str, written: Written) -> str:
    """Replace the program's path, or its name alone, which no other file has."""
    before, *parts = re.split(rf"(?:{re.escape(str(written.file.parent))}/)?{re.escape(written.file.name)}", text)
    shown = [before]
    for part in parts:
        match = _LINE.match(part)
        place = written.notebook.place(int(match[1])) if match is not None else None
        if match is None or place is None:
            shown.append(written.typed + part)
        else:
            shown.append(f"{place[0]}:{place[1]}{part[match.end() :]}")
    return "".join(shown)
