"""`memlint check --affected`: from files that were changed to what has to be looked at again.

The source rules run over the files themselves. Of the Workloads that their project declares, those are analysed that
one of them is a part of.
"""

import functools
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from memlint.base.errors import UsageError
from memlint.commands.targets import Targets, is_excluded, of_directory, require_possible
from memlint.config import CONFIGURATIONS, Settings, find_settings, override
from memlint.source.program_files import Project
from memlint.targets.script import Script
from memlint.targets.target import SEPARATOR
from memlint.targets.workload_tables import workloads_from_tables
from memlint.worker.capture_store import Store
from memlint.worker.protocol import Request


def resolve_affected(
    names: Sequence[str], options: Mapping[str, object], *, force_exclude: bool = False, cache: bool = True
) -> list[Targets]:
    """Targets for the files `names`, which may be gone; one for each project that they belong to.

    A file belongs to the project of the closest configuration. With `force_exclude` the source rules leave out what
    that excludes; it may still be a part of a Workload. With `cache` what is known from earlier runs is used. Raises
    UsageError and TargetError.
    """
    if not names:
        raise UsageError("--affected takes the files that were changed, and there is none", "Name them.")
    importlib.invalidate_caches()
    projects: dict[Path, tuple[Settings, list[Path]]] = {}
    settings_at = functools.cache(find_settings)
    for file in map(_file, names):
        closest = next(place for place in (file.parent, *file.absolute().parents) if place.is_dir())
        settings, root = settings_at(closest)
        projects.setdefault(root, (settings, []))[1].append(file)
    return [
        _targets(root, override(settings, **options), files, force_exclude=force_exclude, cache=cache)
        for root, (settings, files) in projects.items()
    ]


def _file(name: str) -> Path:
    file = Path(name)
    require_possible(file)
    if file.is_dir():
        raise UsageError(f"{name} is a directory, and --affected takes files", "Name the files that were changed.")
    if SEPARATOR in name and not file.exists() and Path(name.partition(SEPARATOR)[0]).exists():
        raise UsageError(f"{name} is something in a file, and --affected takes files", "Name the file alone.")
    return file


def _targets(root: Path, settings: Settings, changed: Sequence[Path], *, force_exclude: bool, cache: bool) -> Targets:
    declared = of_directory(_from_here(root), settings, root)
    affected = tuple(filter(_affected_by(changed, root, settings, cache=cache), declared.requests))
    excluded = {file for file in changed if force_exclude and is_excluded(file, root, settings.exclude)}
    return Targets(
        settings,
        root,
        tuple(file for file in changed if file.suffix in (".py", ".pyi") and file not in excluded and file.exists()),
        affected,
        excluded=tuple(sorted(excluded)),
        unaffected=tuple(request.target for request in declared.requests if request not in affected),
        lost=declared.lost,
    )


def _from_here(root: Path) -> Path:
    """Write the folder as it is typed in the current directory: what was found in it before is kept under that name."""
    try:
        return Path(os.path.relpath(root))
    except ValueError:  # another drive
        return root


def _affected_by(changed: Iterable[Path], root: Path, settings: Settings, *, cache: bool) -> Callable[[Request], bool]:
    """Give what says whether one of the files that were changed is a part of the Workloads of a Request."""
    files = {_real(file) for file in changed}
    rules = [_real(root / path) for path in settings.rule_paths]
    if any(file.name in CONFIGURATIONS or any(file.is_relative_to(place) for place in rules) for file in files):
        return lambda _request: True
    lost = [file for file in files if file.suffix == ".py" and not file.exists()]
    gone = {file.parent.name if file.name == "__init__.py" else file.stem for file in lost}  # as imports called them
    project = Project(root, cache=cache)

    def is_affected(request: Request) -> bool:
        if cache and files & {_real(file) for file in Store(request).files_read}:
            return True
        if request.script is not None and files & set(_of_arguments(request.script, root)):
            return True
        parts = project.parts(*_named(request))
        return parts.undecided or bool(files & parts.files) or bool(gone & parts.words)

    return is_affected


def _of_arguments(script: Script, root: Path) -> Iterator[Path]:
    """Files of the project that a script's arguments name: `--config small.yaml`, `--config=small.yaml`."""
    for argument in script.arguments:
        yield from (_real(root / part) for part in (argument, argument.rpartition("=")[2]) if part)


def _named(request: Request) -> tuple[list[Path], list[str]]:
    """Files and modules that the target and its configuration name."""
    root = Path(request.root)
    targets = [request.path or f"{request.module}{SEPARATOR}", request.settings.optimizer or ""]
    for workload in workloads_from_tables(request.settings.workload, root / "pyproject.toml", lost={}):
        if workload.path == (request.path or "") and (workload.path or workload.target.startswith(targets[0])):
            targets += [workload.loss or "", workload.optimizer]
    files, modules = [], []
    for target in targets:
        place, separator, _name = target.partition(SEPARATOR)
        if place.endswith((".py", ".json")):
            files.append(root / place)
        elif separator:
            modules.append(place)
    return files, modules


def _real(file: Path | str) -> Path:
    return Path(os.path.realpath(file))
