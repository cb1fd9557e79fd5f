"""Python that a project's documents and notebooks show, as programs that may be run: the examples of a README."""

import ast
import builtins
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from memlint.source.files import Unreadable
from memlint.source.notebooks import SUFFIX
from memlint.source.project_files import ProjectFiles
from memlint.source.text import Source, dotted_name
from memlint.source.typed_commands import TypedCommand

_DOCUMENTS = (".md", ".mdx", ".rst", SUFFIX)
_LEFT_OUT = {
    "torch": "import torch",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "np": "import numpy as np",
    "os": "import os",
}
"""Names that an example may take as known, and the imports that give them."""


def shown_programs(
    files: ProjectFiles, names: Collection[str], leads: Callable[[Source], bool]
) -> Iterator[TypedCommand]:
    """Yield the programs that use a file, as `leads` says.

    Those with one of `names` come first, then those that lack no name, and use what they make.

    A block of code in a document is one, with earlier blocks that give its names and later ones that use what it makes;
    so is a whole notebook.
    """
    found: dict[str, tuple[bool, bool, TypedCommand]] = {}
    documents = [path for path in files.paths if path.suffix in _DOCUMENTS and "import" in files.text(path)]
    for path in sorted(documents, key=lambda path: (path.stem.lower() != "readme", len(path.parts))):
        blocks = files.code(path)
        for number, block in enumerate(blocks):
            if not any(isinstance(each, ast.Call) for each in ast.walk(block.tree)):
                continue  # it has types, or an import alone
            later = [each for each in blocks[number + 1 :] if each.words.isdisjoint(names)]
            needed, lacked = _needed(blocks[: number + 1])
            program = _program(path, [*needed, *_using(block, later)], lacked)
            if program is not None and leads(program):
                command = TypedCommand(path, "", (), path.parent, path, block.tree.body[0].lineno, code=program.text)
                is_used = not _made_by(program).isdisjoint(_used(program))
                order = block.words.isdisjoint(names), not (is_used and lacked <= set(_LEFT_OUT))
                found.setdefault(program.text, (*order, command))
    yield from (command for *_order, command in sorted(found.values(), key=itemgetter(0, 1)))


def _needed(blocks: Sequence[Source]) -> tuple[list[Source], set[str]]:
    """Return the last block after those before it that give the names which it uses, and those that none gives."""
    needed, wanted = [blocks[-1]], _used(blocks[-1]) - _given(blocks[-1])
    for block in reversed(blocks[:-1]):
        if not wanted.isdisjoint(given := _given(block)):
            needed.insert(0, block)
            wanted = (wanted - given) | (_used(block) - given)
    return needed, wanted


def _using(first: Source, blocks: Sequence[Source]) -> Iterator[Source]:
    """Yield the blocks that call what the first one makes, and use nothing but what that or such a block gives.

    If the first one itself uses nothing of what it makes, whatever use is made of it counts.
    """
    given, made = _given(first), _made_by(first)
    is_used = not made.isdisjoint(_used(first))
    for block in blocks:
        wanted = _used(block) - _given(block)
        called = {dotted_name(each.func) for each in ast.walk(block.tree) if isinstance(each, ast.Call)}
        if not made.isdisjoint(called if is_used else wanted) and wanted <= given:
            given, made = given | _given(block), made | _made_by(block)
            yield block


def _program(path: Path, blocks: Sequence[Source], lacked: Collection[str]) -> Source | None:
    """Return blocks of a document as one program, each line at its own number; None if they make none together.

    Of the names that are `lacked`, those that everybody knows are imported in its first line, which is no code.
    """
    lines = [""] * max(len(each.lines) for each in blocks)
    for block in blocks:
        for number, line in enumerate(block.lines):
            lines[number] = line or lines[number]
    lines[0] = lines[0] or "; ".join(_LEFT_OUT[name] for name in sorted(_LEFT_OUT.keys() & set(lacked)))
    with suppress(Unreadable):
        return Source.from_text("\n".join(lines), str(path))
    return None


def _used(block: Source) -> set[str]:
    names = {each.id for each in ast.walk(block.tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    return names.difference(dir(builtins))


def _made_by(block: Source) -> set[str]:
    return _given(block).difference(block.imports)


def _given(block: Source) -> set[str]:
    given = set(block.imports)
    for each in ast.walk(block.tree):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            given.add(each.id)
        elif isinstance(each, ast.FunctionDef | ast.ClassDef):
            given.add(each.name)
        elif isinstance(each, ast.arg):
            given.add(each.arg)
    return given
