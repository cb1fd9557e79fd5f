"""Packages that a program cannot do without, read from the imports of its files before any of them runs.

Imports within functions count for the file that is run alone: of other files, few functions are called. Those within
`try`, `if`, `with` and loops do not count: the file may do without them.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from memlint.source.files import Unreadable, folders_of_modules
from memlint.source.imports import Import, import_of
from memlint.source.program_files import Project
from memlint.source.text import Source

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_FILES = 200


def required_packages(file: Path, root: Path, is_missing: Callable[[str], bool]) -> list[str]:
    """Return the packages for which `is_missing` that `file`, or a file of the project that it imports, must import.

    The order is that of the imports. Files that cannot be read need nothing. A module of the project's own is none,
    wherever it is: the program may put its folder on the search path.
    """
    project, own = Project(root, cache=False), folders_of_modules(root)
    packages: dict[str, None] = {}
    pending, seen = [file.resolve()], set[Path]()
    while pending and len(seen) < _MOST_FILES:
        current = pending.pop(0)
        if current in seen:
            continue
        seen.add(current)
        for each in _required_by(current, within_functions=current == file.resolve()):
            top = each.module.partition(".")[0]
            files = project.files_of(each, current.parent, [file.resolve()])
            pending += files
            if not (files or each.level or top in own) and is_missing(top):
                packages.setdefault(top)
    return list(packages)


def _required_by(file: Path, *, within_functions: bool) -> Iterator[Import]:
    try:
        tree = Source.read(file).tree
    except (OSError, Unreadable):
        return
    yield from _required(tree.body, within_functions=within_functions)


def _required(body: Iterable[ast.stmt], *, within_functions: bool) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from import_of(node)
        elif isinstance(node, ast.ClassDef) or (within_functions and isinstance(node, _FUNCTIONS)):
            yield from _required(node.body, within_functions=within_functions)
