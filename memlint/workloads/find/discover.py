"""From what a user typed to Workloads."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from memlint.base.errors import TargetError, WorkloadError
from memlint.workloads.build.construct import build_object, build_program, complete
from memlint.workloads.declare import declared_workloads
from memlint.workloads.find.loading import load_file
from memlint.workloads.find.target import parse_target
from memlint.workloads.spec import Workload
from memlint.workloads.standing import standing_device

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from memlint.workloads.find.target import Target

__all__ = ["Found", "LeftOut", "build_program", "complete", "find_workloads"]


class LeftOut(NamedTuple):
    """A model that is in the file and is not analysed."""

    name: str
    reason: str
    has_failed: bool = False
    """Whether it could not be built."""


class Found(NamedTuple):
    """Workloads of a target, and what was left out."""

    workloads: tuple[Workload, ...]
    left_out: tuple[LeftOut, ...] = ()


def find_workloads(
    text: str,
    root: Path,
    configured: Sequence[Workload] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Found:
    """Workloads of `text`: an explicit target, declared in the file, in `configured`, or discovered.

    `root` is the project's folder; relative targets count from the current one. `configured` are those of the
    pyproject, `overrides` fields of Workload that were given on the command line; sizes of dimensions are added to
    those declared. Finding none is no error.
    Raises TargetError and WorkloadError where the target is not there or its file cannot be imported.
    """
    changed = dict(overrides or {})
    target = parse_target(text, Path.cwd())
    if target.path is None or target.is_config:
        tables = [each for each in configured if _is_of(each, target)]
        name = target.qualname or (target.path.parent.name if target.path else target.module)
        known = tables or [Workload(name, text, str(target.path or ""), target.qualname)]
        return Found(tuple(_overridden(workload, changed) for workload in known))
    mine = [workload for workload in configured if workload.path == str(target.path)]
    module = load_file(target.path, root)
    known = [*declared_workloads(vars(module), module.__name__, target.path), *mine]
    if target.qualname:
        known = [workload for workload in known if workload.qualname == target.qualname]
        if not known:
            known = [Workload(target.qualname, text, str(target.path), target.qualname)]
        return Found(tuple(_overridden(workload, changed) for workload in known))
    if known:
        return Found(tuple(_overridden(workload, changed) for workload in known))
    return _discovered(module, target.path, text, changed)


def _overridden(workload: Workload, changed: Mapping[str, Any]) -> Workload:
    dimensions = {**workload.dimensions, **changed.get("dimensions", {})}
    return replace(workload, **{**changed, "dimensions": dimensions})


def _is_of(workload: Workload, target: Target) -> bool:
    """Whether a table is for this config file, or for this object of a module."""
    if target.path is not None:
        return workload.path == str(target.path)
    return not workload.path and parse_target(workload.target, Path.cwd()) == target


class _Candidate(NamedTuple):
    name: str
    num_parameters: int
    parts: frozenset[type]
    """Classes of its submodules."""


def _discovered(module: ModuleType, path: Path, text: str, overrides: Mapping[str, Any]) -> Found:
    """Models defined in the file that are no part of another, largest first."""
    classes = {name: value for name, value in vars(module).items() if _is_model_class(value, module, name)}
    functions = {} if not classes else _factories(module, classes)
    candidates, left_out = {}, []
    defaults = Workload("", text, str(path), **overrides)
    with standing_device(defaults.gpu):
        for name, kind in classes.items():
            for maker in (name, *functions.get(name, ())):
                candidate = _candidate(maker, getattr(module, maker), replace(defaults, name=maker))
                if isinstance(candidate, _Candidate):
                    candidates[kind] = candidate
                    break
                left_out.append(candidate)
    used = frozenset().union(*(candidate.parts for candidate in candidates.values()))
    roots = []
    for kind, candidate in candidates.items():
        users = [other.name for user, other in candidates.items() if user is not kind and kind in other.parts]
        if users:
            left_out.append(LeftOut(candidate.name, f"it is a part of {users[0]}"))
        elif candidate.num_parameters == 0:
            left_out.append(LeftOut(candidate.name, "it has no parameters"))
        else:
            roots.append(candidate)
    built = {candidate.name for candidate in candidates.values()} | {kind.__name__ for kind in candidates}
    kept = [left for left in left_out if left.name not in built or not left.has_failed]
    kept = [
        LeftOut(left.name, "it is a part of another model")
        if classes.get(left.name) in used and left.has_failed
        else left
        for left in kept
    ]
    roots.sort(key=lambda candidate: -candidate.num_parameters)
    found = tuple(
        replace(defaults, name=root.name, target=f"{text}::{root.name}", qualname=root.name, origin="discovered")
        for root in roots
    )
    return Found(found, tuple(kept))


def _candidate(name: str, maker: object, workload: Workload) -> _Candidate | LeftOut:
    try:
        model = build_object(maker, workload).model
    except (WorkloadError, TargetError) as error:
        return LeftOut(name, error.message, has_failed=True)
    parts = frozenset(type(part) for part in model.modules() if part is not model)
    return _Candidate(name, sum(parameter.numel() for parameter in model.parameters()), parts)


def _is_model_class(value: object, module: ModuleType, name: str) -> bool:
    """Whether `value` is a model class the file itself defines under `name`, and not an abstract one."""
    return (
        isinstance(value, type)
        and issubclass(value, nn.Module)
        and value.__module__ == module.__name__
        and value.__name__ == name
        and not inspect.isabstract(value)
        and value.forward is not nn.Module.forward
    )


def _factories(module: ModuleType, classes: Mapping[str, type]) -> dict[str, list[str]]:
    """Functions of the file, by the class they return, that need no argument: `def resnet18(): return ResNet(...)`."""
    made: dict[str, list[str]] = {}
    source = Path(module.__file__ or "").read_bytes()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef) or len(node.args.args) > len(node.args.defaults):
            continue
        for statement in ast.walk(node):
            if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call):
                called = statement.value.func
                if isinstance(called, ast.Name) and called.id in classes and hasattr(module, node.name):
                    made.setdefault(called.id, []).append(node.name)
    return made
