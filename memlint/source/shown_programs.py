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
from memlint.source.text import Source
from memlint.source.typed_commands import TypedCommand

_DOCUMENTS = (".md", ".mdx", ".rst", SUFFIX)


def shown_programs(
    files: ProjectFiles, names: Collection[str], leads: Callable[[Source], bool]
) -> Iterator[TypedCommand]:
    """Yield the programs that use a file, as `leads` says.

    Those with one of `names` come first, then those that lack no name, and use what they make.

    A block of code in a document is one, with earlier blocks that give its names and later ones that use what it makes;
    so is a whole notebook.
    """
    found = []
    documents = [path for path in files.paths if path.suffix in _DOCUMENTS and "import" in files.text(path)]
    for path in sorted(documents, key=lambda path: (path.stem.lower() != "readme", len(path.parts))):
        blocks = files.code(path)
        for number, block in enumerate(blocks):
            if not any(isinstance(each, ast.Call) for each in ast.walk(block.tree)):
                continue  # it has types, or an import alone
            later = [each for each in blocks[number + 1 :] if each.words.isdisjoint(names)]
            needed, lacked = _needed(blocks[: number + 1])
            program = _program(path, [*needed, *_using(block, later)])
            if program is not None and leads(program):
                command = TypedCommand(path, "", (), path.parent, path, block.tree.body[0].lineno, code=program.text)
                is_used = not _made_by(program).isdisjoint(_used(program))
                found.append((block.words.isdisjoint(names), bool(lacked) or not is_used, command))
    yield from (command for *_order, command in sorted(found, key=itemgetter(0, 1)))


def _needed(blocks: Sequence[Source]) -> tuple[list[Source], set[str]]:
    """Return the last block after those before it that give the names which it uses, and those that none gives."""
    needed, wanted = [blocks[-1]], _used(blocks[-1]) - _given(blocks[-1])
    for block in reversed(blocks[:-1]):
        if not wanted.isdisjoint(given := _given(block)):
            needed.insert(0, block)
            wanted = (wanted - given) | (_used(block) - given)
    return needed, wanted


def _using(first: Source, blocks: Sequence[Source]) -> Iterator[Source]:
    """Yield the blocks that use nothing but what the first one gives, or such a block after it."""
    given, made = _given(first), _made_by(first)
    for block in blocks:
        wanted = _used(block) - _given(block)
        if not made.isdisjoint(wanted) and wanted <= given:
            given, made = given | _given(block), made | _made_by(block)
            yield block


def _program(path: Path, blocks: Sequence[Source]) -> Source | None:
    """Return blocks of a document as one program, each line at its own number; None if they make none together."""
    lines = [""] * max(len(each.lines) for each in blocks)
    for block in blocks:
        for number, line in enumerate(block.lines):
            lines[number] = line or lines[number]
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
