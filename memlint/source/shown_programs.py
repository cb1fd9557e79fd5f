"""Python that a project's documents and notebooks show, as programs that may be run: the examples of a README."""

import ast
import builtins
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from operator import itemgetter
from pathlib import Path

from memlint.source.files import Unreadable
from memlint.source.notebooks import SUFFIX
from memlint.source.project_files import ProjectFiles
from memlint.source.text import Source, dotted_name
from memlint.source.typed_commands import TypedCommand

_DOCUMENTS = (".md", ".mdx", ".rst", SUFFIX)
_EVERYTHING = "*"
"""Stands for the names that `from module import *` gives."""
_MOST_DOCUMENTS = 24
"""Documents whose code is looked at though it has no name of the file's, READMEs first."""
_LEFT_OUT = {
    "torch": "import torch",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "np": "import numpy as np",
    "os": "import os",
}
"""Names that an example may take as known, and the imports that give them."""


class _Block:
    """A block of code, with the names that it uses and gives."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @cached_property
    def used(self) -> frozenset[str]:
        nodes = (each for each in self.source.index.nodes if isinstance(each, ast.Name))
        return frozenset(each.id for each in nodes if isinstance(each.ctx, ast.Load)).difference(dir(builtins))

    @cached_property
    def made(self) -> frozenset[str]:
        """The names that it gives by something else than an import."""
        return self.given.difference(self.source.imports)

    @cached_property
    def given(self) -> frozenset[str]:
        given = set(self.source.imports)
        for each in self.source.index.nodes:
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                given.add(each.id)
            elif isinstance(each, ast.FunctionDef | ast.ClassDef):
                given.add(each.name)
            elif isinstance(each, ast.arg):
                given.add(each.arg)
        return frozenset(given)

    @cached_property
    def called(self) -> frozenset[str]:
        calls = (each for each in self.source.index.nodes if isinstance(each, ast.Call))
        return frozenset(dotted_name(each.func) for each in calls)


def shown_programs(
    files: ProjectFiles, names: Collection[str], leads: Callable[[Source], bool]
) -> Iterator[TypedCommand]:
    """Yield the programs that use a file, as `leads` says; those with one of `names` come first.

    A block of code in a document is one, with earlier blocks that give its names and later ones that use what it makes;
    so is a whole notebook. Those that lack a name, or use nothing of what they make, come later.
    """
    paths = (path for path in files.paths if path.suffix in _DOCUMENTS)
    documents = sorted(paths, key=lambda path: (path.stem.lower() != "readme", len(path.parts)))
    naming = (path for path in documents if files.mentions(path, names))
    for chosen, has_name in ((naming, True), (documents[:_MOST_DOCUMENTS], False)):
        found: dict[str, tuple[bool, TypedCommand]] = {}
        for path in chosen:
            for command, is_whole in _in_document(path, files.code(path), names, leads, has_name=has_name):
                found.setdefault(command.code, (not is_whole, command))
        yield from (command for _order, command in sorted(found.values(), key=itemgetter(0)))


def _in_document(
    path: Path, sources: Sequence[Source], names: Collection[str], leads: Callable[[Source], bool], *, has_name: bool
) -> Iterator[tuple[TypedCommand, bool]]:
    """Yield the programs of a document whose block has one of `names`, or none; True for one that lacks nothing."""
    blocks = list(map(_Block, sources))
    for number, block in enumerate(blocks):
        # One without a call has types, or an import alone.
        if block.source.words.isdisjoint(names) is has_name or not block.called:
            continue
        later = (each for each in blocks[number + 1 :] if each.source.words.isdisjoint(names))
        needed, lacked = _needed(blocks[: number + 1])
        parts = [*needed, *_using(block, later)]
        program = _program(path, [each.source for each in parts], lacked)
        if program is not None and leads(program):
            line = block.source.tree.body[0].lineno
            is_used = any(not each.made.isdisjoint(other.used) for each in parts for other in parts)
            yield (
                TypedCommand(path, "", (), path.parent, path, line, code=program.text),
                (is_used and lacked <= _LEFT_OUT.keys()),
            )


def _needed(blocks: Sequence[_Block]) -> tuple[list[_Block], frozenset[str]]:
    """Return the last block after those before it that give the names which it uses, and those that none gives."""
    needed, wanted = [blocks[-1]], blocks[-1].used - blocks[-1].given
    for block in reversed(blocks[:-1]):
        if not wanted.isdisjoint(block.given) or (wanted and _EVERYTHING in block.given):
            needed.insert(0, block)
            wanted = (wanted - block.given) | (block.used - block.given)
    return needed, frozenset() if any(_EVERYTHING in each.given for each in needed) else wanted


def _using(first: _Block, blocks: Iterable[_Block]) -> Iterator[_Block]:
    """Yield the blocks that call what the first one makes, and use nothing but what that or such a block gives.

    If the first one itself uses nothing of what it makes, whatever use is made of it counts.
    """
    given, made = first.given, first.made
    is_used = not made.isdisjoint(first.used)
    for block in blocks:
        wanted = block.used - block.given
        if not made.isdisjoint(block.called if is_used else wanted) and wanted <= given:
            given, made = given | block.given, made | block.made
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
