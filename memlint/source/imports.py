"""Imports of a Python file, seen in its syntax tree without running anything."""

import ast
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from memlint.base import cache
from memlint.base.errors import TargetError, WorkloadError
from memlint.source.files import Unreadable, read_bytes
from memlint.source.text import Source
from memlint.source.trees import walk

_KIND = "imports"
EVERYTHING = "*"
"""Marks `import *` among the names of an Import."""
_BY_NAME = frozenset({"importlib.import_module", "__import__"})
"""Functions that import the module named by their first argument."""
_DYNAMIC = _BY_NAME | {
    "exec",
    "importlib.machinery.SourceFileLoader",
    "importlib.util.spec_from_file_location",
    "runpy.run_module",
    "runpy.run_path",
}
"""Those functions, and others that run code with a computed name."""
_WORDS = frozenset(name.rpartition(".")[2] for name in _DYNAMIC)
_OWN_PACKAGE = ("__package__", "__name__")
_PLACE = re.compile(r"([^\n\0\ud800-\udfff]+\.py)::[\w.]+")
"""Pattern of a file in a declaration: `losses.py::masked`."""


class Import(NamedTuple):
    """One module that a file imports."""

    module: str
    """Dotted name; empty for `from . import layers`."""
    level: int = 0
    """Number of leading dots."""
    names: tuple[str, ...] = ()
    """Names imported from it, modules or not."""

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the files and folders that it may stand for."""
        return (*self.module.split("."), *self.names)


class Imports(NamedTuple):
    """All imports of one file."""

    modules: frozenset[Import] = frozenset()
    files: frozenset[str] = frozenset()
    """Files named as in `losses.py::masked`, as written."""
    undecided: bool = False
    """True if it may import modules that its text does not name."""


def imports_in(content: bytes, path: str) -> Imports:
    """Read what a file with this content imports; `path` only names it. Raises Unreadable."""
    source = Source.from_bytes(content, path)
    imports: set[Import | None] = set()
    for node in source.statements:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(import_of(node))
    if source.words & _WORDS:
        imports.update(_dynamic(source))
    files = frozenset(_files(source) if _PLACE.search(source.text) else ())
    return Imports(frozenset(each for each in imports if each is not None), files, None in imports)


def import_of(node: ast.Import | ast.ImportFrom) -> Iterator[Import]:
    """Yield what one statement imports."""
    if isinstance(node, ast.Import):
        yield from (Import(name.name) for name in node.names)
    else:
        yield Import(node.module or "", node.level, tuple(name.name for name in node.names))


def _dynamic(source: Source) -> Iterator[Import | None]:
    """Yield what dynamic calls import: None for unknown modules, and for functions that are not called here."""
    called: set[ast.expr] = set()
    for node in walk(source.tree):
        if isinstance(node, ast.Call) and (meaning := _meaning(node.func, source)) in _DYNAMIC:
            called.add(node.func)
            yield _named(node) if meaning in _BY_NAME else None
        elif isinstance(node, ast.Name | ast.Attribute) and node not in called and _meaning(node, source) in _DYNAMIC:
            yield None


def _meaning(node: ast.expr, source: Source) -> str | None:
    known = source.qualified_name(node)
    return node.id if known is None and isinstance(node, ast.Name) else known


def _named(call: ast.Call) -> Import | None:
    """Return the module that is written as text in a call."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    first = arguments[0] if arguments else None
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        return None
    module = first.value.lstrip(".")
    level = len(first.value) - len(module)
    if level and not any(isinstance(each, ast.Name) and each.id in _OWN_PACKAGE for each in arguments):
        return None
    return Import(module, level)


def _files(source: Source) -> Iterator[str]:
    for node in walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (place := _PLACE.fullmatch(node.value)):
            yield place[1]


class ImportReader:
    """Reads the imports of files, once, and keeps them in the cache of the project at `root`.

    In none if that is None.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._known: dict[Path, Imports] = {}

    def __call__(self, path: Path) -> Imports:
        """Return the imports of the file at `path`; undecided if it exists and cannot be read."""
        if path not in self._known:
            try:
                self._known[path] = self._read(path, read_bytes(path))
            except Unreadable:
                self._known[path] = Imports(undecided=os.path.exists(path))  # noqa: PTH110 -- no name is too long
        return self._known[path]

    def _read(self, path: Path, content: bytes) -> Imports:
        if self._root is None:
            return imports_in(content, str(path))
        key = cache.key_of(content)
        imports = cache.read(self._root, _KIND, str(path), key, _decoded)
        if imports is None:
            imports = imports_in(content, str(path))
            cache.write(self._root, _KIND, str(path), key, _encoded(imports))
        return imports


def _encoded(imports: Imports) -> dict[str, Any]:
    return {"modules": sorted(imports.modules), "files": sorted(imports.files), "undecided": imports.undecided}


def _decoded(entry: Any) -> Imports:
    modules = frozenset(Import(module, level, tuple(names)) for module, level, names in entry["modules"])
    return Imports(modules, frozenset(entry["files"]), bool(entry["undecided"]))


def module_name(path: Path) -> tuple[str, Path]:
    """Return the dotted name of the file and the folder from which it is imported.

    Raises WorkloadError for a file that is not valid Python, TargetError for one that cannot be read.
    """
    folder, parts = path.parent, [path.stem]
    if path.name == "__init__.py":
        folder, parts = path.parent.parent, [path.parent.name]
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    # Relative imports in folders without __init__.py: these are namespace packages.
    while len(parts) <= _relative_levels(path) and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


def imports_namesake(path: Path) -> bool:
    """Return True if a file outside of packages imports a package of its own name: it cannot mean itself."""
    try:
        imports = imports_in(read_bytes(path), str(path)).modules
    except Unreadable:  # which its import says
        return False
    is_named = any(not each.level and each.module.partition(".")[0] == path.stem for each in imports)
    return is_named and not (path.parent / "__init__.py").is_file()


def _relative_levels(path: Path) -> int:
    """Return the number of folders that the file's relative imports reach up: 1 for `from .layers import Block`."""
    try:
        return _levels_in(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise WorkloadError(f"{path}{line} is not valid Python: {error}") from error
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=8)
def _levels_in(content: bytes, path: str) -> int:
    tree = ast.parse(content, path)
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)
