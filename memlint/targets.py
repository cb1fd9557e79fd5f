"""What was typed after `memlint check`, as files for source rules and requests for workers."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.config import find_settings, override
from memlint.errors import TargetError
from memlint.lint.runner import python_files
from memlint.source import Source, Unreadable
from memlint.worker.protocol import Request
from memlint.workload.declare import FUNCTION
from memlint.workload.pyproject import workloads_from_tables
from memlint.workload.target import SEPARATOR, parse_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memlint.config import Settings

_DECORATOR = "memlint.workload"


@dataclass(frozen=True, slots=True)
class Targets:
    """What one argument stands for."""

    settings: Settings
    """Of the configuration closest to it, with the command line's options on top."""
    root: Path
    """Of the project it belongs to; paths in `settings` start here."""
    files: tuple[Path, ...]
    """Python files for the source rules, as paths relative to where the argument counts from."""
    requests: tuple[Request, ...]
    """Files whose Workloads are to be analysed."""


def resolve(argument: str, options: Mapping[str, object], *, init: bool = False) -> Targets:
    """Targets of one argument: a directory, or anything `parse_target` knows. `options` are those of the command line.

    A directory stands for its Python files and for the Workloads declared in them or configured for them; only in a
    file that was named are Workloads discovered. Raises TargetError and UsageError.
    """
    place = Path(argument.partition(SEPARATOR)[0]).expanduser()
    whole_directory = place.is_dir() and SEPARATOR not in argument and not (place / "config.json").is_file()
    if not place.exists() and place.suffix in {".py", ".json", ""} and SEPARATOR not in argument:
        raise TargetError(f"{place} does not exist", "Give a file, a directory, file.py::Name or a config.json.")
    start = place if place.is_dir() else place.parent
    settings, root = find_settings(start if start.is_dir() else Path())
    settings = override(settings, **options)
    if whole_directory:
        return _directory(place, settings, root, init=init)
    target = parse_target(argument, Path.cwd())
    file = target.path
    request = Request(
        target=argument,
        path=None if file is None else str(file),
        module=target.module,
        qualname=target.qualname,
        root=str(root),
        settings=settings,
        init=init,
    )
    return Targets(settings, root, (place,) if file is not None and file.suffix == ".py" else (), (request,))


def _directory(directory: Path, settings: Settings, root: Path, *, init: bool) -> Targets:
    files = tuple(file for file in python_files([directory]) if not _excluded(file, directory, settings.exclude))
    wanted = {str(file.resolve()): str(file) for file in files if _declares(file)}
    modules = []
    for workload in workloads_from_tables(settings.workload, root / "pyproject.toml"):
        if not workload.path:
            modules.append(workload)
        elif Path(workload.path).is_relative_to(directory.resolve()):
            wanted.setdefault(workload.path, str(directory / Path(workload.path).relative_to(directory.resolve())))
    asked: list[tuple[str, str | None, str, str]] = [(text, path, "", "") for path, text in sorted(wanted.items())]
    if directory.resolve() == root:
        named = [(table.target, None, table.target.partition(SEPARATOR)[0], table.qualname) for table in modules]
        asked += dict.fromkeys(named)  # several tables may be of one target
    requests = tuple(
        Request(
            target=text,
            path=path,
            module=module,
            qualname=qualname,
            named=False,
            root=str(root),
            settings=settings,
            init=init,
        )
        for text, path, module, qualname in asked
    )
    return Targets(settings, root, files, requests)


def _excluded(file: Path, directory: Path, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern matches the path below `directory`, or any directory or name on it."""
    relative = file.relative_to(directory)
    return any(
        fnmatch(text, pattern.rstrip("/")) for pattern in patterns for text in (relative.as_posix(), *relative.parts)
    )


def _declares(file: Path) -> bool:
    """Whether the source declares a Workload, seen without running it."""
    try:
        text = file.read_bytes()
        if b"memlint" not in text or b"workload" not in text:
            return False
        source = Source.read(file)
    except (OSError, Unreadable):  # a source rule's finding says so
        return False
    return any(_is_declaration(node, source) for node in source.tree.body)


def _is_declaration(node: ast.stmt, source: Source) -> bool:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name == FUNCTION or any(_decorates(decorator, source) for decorator in node.decorator_list)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == FUNCTION for target in node.targets)
    return isinstance(node, ast.ImportFrom) and any((name.asname or name.name) == FUNCTION for name in node.names)


def _decorates(decorator: ast.expr, source: Source) -> bool:
    name = source.qualified_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name is not None and name.startswith(_DECORATOR)


def distinct(targets: list[Targets]) -> Iterator[Targets]:
    """The same targets with what an earlier one covers left out."""
    files: set[Path] = set()
    asked: set[tuple[str | None, str, str]] = set()
    for target in targets:
        fresh = tuple(file for file in target.files if file.resolve() not in files)
        files.update(file.resolve() for file in fresh)
        requests = [r for r in target.requests if (r.path, r.module, r.qualname) not in asked]
        asked.update((r.path, r.module, r.qualname) for r in requests)
        yield Targets(target.settings, target.root, fresh, tuple(requests))
