"""Turns the arguments of `memlint check` into files for source rules and requests for workers."""

import ast
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from memlint.base.errors import TargetError, UsageError
from memlint.base.exclusion import exclusion
from memlint.capture.files import is_capture, is_recording
from memlint.config import Settings, find_settings, override
from memlint.report.model import Skipped
from memlint.source.files import Unreadable, python_files
from memlint.source.text import Source
from memlint.targets.declare import FUNCTION
from memlint.targets.script import Script
from memlint.targets.script_tables import scripts_from_tables
from memlint.targets.target import SEPARATOR, is_known_model, parse_target
from memlint.targets.workload_tables import workloads_from_tables
from memlint.worker.protocol import Request

_DECORATORS = ("memlint.workload", "memlint.targets.declare.workload")
"""The decorator by its public name, and by that of its module."""
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NUM_SHOWN = 5
"""Names of what was left out."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The files and requests that one argument stands for."""

    settings: Settings
    """The settings of the closest configuration, overridden by the command line's options."""
    root: Path
    """The root of the project it belongs to; paths in `settings` start here."""
    files: tuple[Path, ...]
    """Python files for the source rules, as paths relative to where the argument counts from."""
    requests: tuple[Request, ...]
    """Files whose Workloads are to be analysed."""
    excluded: tuple[Path, ...] = ()
    """Files that were named and are excluded all the same."""
    unaffected: tuple[str, ...] = ()
    """Targets of the project that no file that was named is a part of, if it matters."""
    lost: tuple[tuple[str, TargetError], ...] = ()
    """Names of Workloads that are configured for what does not exist."""


def require_possible(place: Path) -> None:
    """Raise OSError where no file can be called so, or nobody may look; `Path.exists` says no since Python 3.14."""
    try:
        place.lstat()
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise


def resolve(argument: str, options: Mapping[str, object], *, force_exclude: bool = False) -> Targets:
    """Targets of one argument: a directory, or anything `parse_target` knows. `options` are those of the command line.

    A directory stands for its Python files and for the Workloads declared in them or configured for them; only in a
    file that was named are Workloads discovered. With `force_exclude` nothing that the configuration excludes is a
    target, named or not. Raises TargetError and UsageError.
    """
    if not argument.partition(SEPARATOR)[0].strip():
        raise TargetError(f"{argument!r} names no file", "Give a file, a directory, file.py::Name or a config.json.")
    place = Path(os.path.expanduser(argument.partition(SEPARATOR)[0]))  # noqa: PTH111 -- a file may be called ~x.py
    require_possible(place)
    whole_directory = place.is_dir() and SEPARATOR not in argument and not (place / "config.json").is_file()
    is_missing = not place.exists() and SEPARATOR not in argument and not is_known_model(argument)
    if is_missing and place.suffix in {".py", ".json", ""}:
        raise TargetError(f"{place} does not exist", "Give a file, a directory, file.py::Name or a config.json.")
    start = place if place.is_dir() else place.parent
    settings, root = find_settings(start if start.is_dir() else Path())
    settings = override(settings, **options)
    if force_exclude and is_excluded(place, root, settings.exclude):
        return Targets(settings, root, (), (), excluded=(place,))
    if whole_directory:
        return of_directory(place, settings, root)
    if place.suffix == ".pyi" and place.is_file():  # which nothing imports
        return Targets(settings, root, (place,), ())
    if place.is_file() and is_capture(place.name):
        return of_capture(argument, place, settings, root, options)
    target = parse_target(argument, Path.cwd())
    file = target.path
    scripts = [script for script in _scripts(settings, root, {}) if script.path == str(file)]
    if scripts and not target.qualname:
        return of_scripts(scripts, settings, root, (place,))
    request = Request(
        target=argument,
        path=None if file is None else str(file),
        module=target.module,
        qualname=target.qualname,
        call=argument.partition(SEPARATOR)[2] if target.arguments else "",
        root=str(root),
        settings=settings,
    )
    return Targets(settings, root, (place,) if file is not None and file.suffix == ".py" else (), (request,))


_OF_TRACE = (
    *("batch", "dimensions", "dtype", "mode", "optimizer", "torch", "context", "compile"),
    *("strategy", "world_size", "rank", "prompt", "new_tokens", "num_beams", "kv_cache"),
)
"""Settings that decide what a program does, and not how it is looked at."""


def of_capture(argument: str, file: Path, settings: Settings, root: Path, options: Mapping[str, object]) -> Targets:
    """The target that is a file of a Capture, or a recording, for which a GPU may be named. Raises UsageError."""
    fixed = _OF_TRACE if is_recording(file.name) else (*_OF_TRACE, "gpu")
    changed = next((name for name in fixed if options.get(name) not in (None, (), {})), None)
    if changed is not None:
        option = {"dimensions": "dim", "world_size": "ranks", "new_tokens": "new-tokens"}.get(changed, changed)
        raise UsageError(f"--{option} cannot change what {argument} has captured", "Give it to memlint capture.")
    request = Request(target=argument, path=str(file.resolve()), root=str(root), settings=settings)
    return Targets(settings, root, (), (request,))


def of_directory(directory: Path, settings: Settings, root: Path) -> Targets:
    """Targets of a directory of the project at `root`: its Python files, and the Workloads declared for them."""
    place = directory.resolve()
    is_left_out = exclusion(settings.exclude, root)
    if is_left_out(place):  # and named all the same
        is_left_out = exclusion(settings.exclude, place)
    files = tuple(file for file in python_files([directory]) if not is_left_out(place / file.relative_to(directory)))
    declared = {str(file.resolve()): str(file) for file in files if _declares(file)}
    modules = []
    lost: dict[str, TargetError] = {}
    for workload in workloads_from_tables(settings.workload, root / "pyproject.toml", lost):
        if not workload.path:
            modules.append(workload)
        elif Path(workload.path).is_relative_to(place):
            declared.setdefault(workload.path, str(directory / Path(workload.path).relative_to(place)))
    request = partial(Request, named=False, root=str(root), settings=settings)
    requests = [request(target=text, path=path) for path, text in sorted(declared.items())]
    scripts = _scripts(settings, root, lost)
    requests += [script_request(s, settings, root) for s in scripts if s.path and Path(s.path).is_relative_to(place)]
    if place != root:
        return Targets(settings, root, files, tuple(requests))
    requests += [script_request(script, settings, root) for script in scripts if not script.path]
    names = dict.fromkeys((table.target, table.qualname) for table in modules)  # several tables may be of one target
    requests += [request(target=t, path=None, module=t.partition(SEPARATOR)[0], qualname=q) for t, q in names]
    return Targets(settings, root, files, tuple(requests), lost=tuple(lost.items()))


def of_scripts(scripts: Iterable[Script], settings: Settings, root: Path, files: tuple[Path, ...] = ()) -> Targets:
    """Targets of scripts of the project at `root`, of which `files` are those that were named."""
    return Targets(settings, root, files, tuple(script_request(script, settings, root) for script in scripts))


def script_request(script: Script, settings: Settings, root: Path) -> Request:
    """Run a script."""
    path, module = script.path or None, script.module
    return Request(target=script.command, path=path, module=module, root=str(root), settings=settings, script=script)


def _scripts(settings: Settings, root: Path, lost: dict[str, TargetError]) -> tuple[Script, ...]:
    return scripts_from_tables(settings.workload, root / "pyproject.toml", lost)


def is_excluded(place: Path, root: Path, patterns: tuple[str, ...]) -> bool:
    """Return True if a pattern of the project at `root` matches a file or directory in it."""
    absolute = Path(os.path.abspath(place))  # noqa: PTH100 -- what a link is called counts
    return exclusion(patterns, root)(absolute.parent.resolve() / absolute.name)


def is_declared(request: Request) -> bool:
    """Return True if the requested file, or a table of the configuration for it, declares a Workload."""
    tables = workloads_from_tables(request.settings.workload, Path(request.root) / "pyproject.toml", {})
    return any(each.path == request.path for each in tables) or _declares(Path(request.path or ""))


def _declares(file: Path) -> bool:
    """Return True if the source declares a Workload, judged without running it."""
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
    return name in _DECORATORS


def distinct(targets: list[Targets]) -> Iterator[Targets]:
    """The same targets with what an earlier one covers left out."""
    files: set[Path] = set()
    covered: set[tuple[str | None, str, str, str, Script | None]] = set()
    for target in targets:
        fresh = tuple(file for file in target.files if file.resolve() not in files)
        files.update(file.resolve() for file in fresh)
        requests = [r for r in target.requests if _subject(r) not in covered]
        covered.update(map(_subject, requests))
        yield replace(target, files=fresh, requests=tuple(requests))


def _subject(request: Request) -> tuple[str | None, str, str, str, Script | None]:
    return request.path, request.module, request.qualname, request.call, request.script


def together(targets: Iterable[Targets]) -> list[Targets]:
    """The same targets with neighbours of one project as one, so that their files are checked side by side."""
    merged: list[Targets] = []
    for target in targets:
        last = merged[-1] if merged else None
        if last is None or (last.root, last.settings) != (target.root, target.settings) or _is_single(last, target):
            merged.append(target)
            continue
        merged[-1] = replace(
            last,
            files=last.files + target.files,
            requests=last.requests + target.requests,
            excluded=last.excluded + target.excluded,
            unaffected=last.unaffected + target.unaffected,
            lost=tuple(dict((*last.lost, *target.lost)).items()),
        )
    return merged


def _is_single(*targets: Targets) -> bool:
    """Return True if only one thing in a file is analysed, which does not tell what all of the file needs."""
    return any(request.qualname for target in targets for request in target.requests)


def requests_of(text: str, settings: Mapping[str, object]) -> tuple[Request, ...]:
    """Give the requests of one argument. Raises MemlintError."""
    return resolve(text, settings).requests


def passed_over(targets: Iterable[Targets]) -> Iterator[Skipped]:
    """Arguments and Workloads that are left out, one line for each reason."""
    excluded = [str(place) for target in targets for place in target.excluded]
    unaffected = [text for target in targets for text in target.unaffected]
    for reason, names in (("left out by `exclude`", excluded), ("not affected by these files", unaffected)):
        if names:
            more = f" and {len(names) - _NUM_SHOWN} more" if len(names) > _NUM_SHOWN else ""
            yield Skipped(reason=f"{reason}: {', '.join(names[:_NUM_SHOWN])}{more}")
