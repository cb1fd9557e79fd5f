"""The search for Workloads in the target that a user typed."""

import ast
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from torch import nn

from memlint.base.errors import GUARD, NO_MODULE_FOUND, TargetError, WorkloadError
from memlint.memory.records import Assumption
from memlint.source.files import Unreadable
from memlint.source.scripts import is_script, training_at_import
from memlint.source.text import Source, source_at
from memlint.targets.built import Asked
from memlint.targets.declare import declared_workloads
from memlint.targets.target import SEPARATOR, Target, parse_target
from memlint.targets.workload import Workload
from memlint.workloads.candidates import Discovery
from memlint.workloads.construction.construct import build_object, simulated_device
from memlint.workloads.file_models import discovered
from memlint.workloads.guess.recipes import Recipes, sized
from memlint.workloads.loading import load_file
from memlint.workloads.placeholders.absent_packages import assumptions
from memlint.workloads.script_models import of_script

_ASSUMED = frozenset({"batch", "dtype", "optimizer"})
"""Settings that a project may state and that otherwise have defaults."""


def find_workloads(
    text: str,
    root: Path,
    configured: Sequence[Workload] = (),
    overrides: Mapping[str, Any] | None = None,
    asked: Asked | None = None,
) -> Discovery:
    """Find the Workloads of `text`: an explicit target, declared in the file, in `configured`, or discovered.

    `root` is the project's folder; targets are relative to the current one. `configured` are the Workloads of the
    pyproject, `overrides` are fields from the command line; sizes of dimensions are added to the declared ones. A
    script that was `asked` says how a class is built, before that is guessed. It is not an error to find none. Raises
    TargetError if the target does not exist, WorkloadError if its file cannot be imported.
    """
    overrides = dict(overrides or {})
    target = parse_target(text, Path.cwd())
    if target.path is None or target.is_config:
        workloads = [workload for workload in configured if _is_of(workload, target)]
        name = target.qualname or (target.path.parent.name if target.path else target.module)
    else:
        _refuse_script(target.path, text)
        module, name = load_file(target.path, root), target.qualname
        declared = declared_workloads(vars(module), module.__name__, target.path)
        workloads = _declared_once(declared, [each for each in configured if each.path == str(target.path)])
        if not workloads and not name:
            defaults = Workload(
                target.path.stem, text, str(target.path), assumed=_ASSUMED - overrides.keys(), **overrides
            )
            discovery = of_script(module, target.path, root, text, defaults, asked) or discovered(
                module, target.path, root, text, defaults
            )
            here = str(target.path)
            missing = [each for each in assumptions() if each.frame and each.frame.path == here]
            if missing and not discovery.workloads and not discovery.left_out:
                reasons = "; ".join(each.text for each in missing)
                install, source = (
                    "Install what is missing, or build it where the project has its source.",
                    source_at(here),
                )
                run = f"This is a script: type memlint run {text}. " if source and is_script(source) else ""
                raise TargetError(f"{NO_MODULE_FOUND}: {reasons}", run + install)
            return discovery
        workloads = [w for w in workloads if name in ("", w.qualname) and target.arguments in ({}, w.arguments)]
    if not workloads and asked is not None and target.path is not None:
        defaults = Workload(name, text, str(target.path), assumed=_ASSUMED - overrides.keys(), **overrides)
        found = of_script(load_file(target.path, root), target.path, root, text, defaults, asked, target.qualname)
        if found is not None:
            return found
    workloads = workloads or [_explicit(target, text, root, overrides)]
    sizes = overrides.pop("dimensions", {})
    changed = (replace(each, dimensions={**each.dimensions, **sizes}, **overrides) for each in workloads)
    return Discovery(tuple(changed))


def _declared_once(declared: Sequence[Workload], configured: Sequence[Workload]) -> list[Workload]:
    """Merge both lists: a table for a declared Workload replaces it, and takes over the settings that it leaves out."""
    tables = {workload.qualname for workload in configured}
    in_file = {workload.qualname: workload for workload in declared}
    return [
        *(workload for workload in declared if workload.qualname not in tables),
        *(_merged(in_file[each.qualname], each) if each.qualname in in_file else each for each in configured),
    ]


def _merged(declared: Workload, table: Workload) -> Workload:
    """Return `table` with the settings of `declared` in place of those that the table leaves at their defaults."""
    plain = Workload(table.name, table.target)
    names = {field.name for field in fields(Workload)} - {"name", "target", "path", "qualname", "origin"}
    unsaid = [name for name in names if getattr(table, name) == getattr(plain, name)]
    return replace(table, **{name: getattr(declared, name) for name in unsaid})


def _explicit(target: Target, text: str, root: Path, overrides: Mapping[str, Any]) -> Workload:
    """Make the Workload of an explicit target, with the typed arguments, or else those in the project's own files."""
    name = target.qualname or (target.path.parent.name if target.path else target.module)
    assumed = _ASSUMED - overrides.keys()
    plain = Workload(name, text, str(target.path or ""), target.qualname, arguments=target.arguments, assumed=assumed)
    if target.path is None or target.is_config or target.arguments or "." in target.qualname:
        return _with_dtype_of_config(plain, target, overrides)
    module = load_file(target.path, root)
    value = getattr(module, target.qualname, None)
    if isinstance(value, nn.Module) or not callable(value):
        return plain
    recipes = Recipes(target.path, root, [target.qualname])
    with simulated_device(plain.device if "gpu" not in overrides else replace(plain, gpu=overrides["gpu"]).device):
        for recipe in (*recipes.of(target.qualname, value), sized(target.qualname, value)):
            if recipe is not None:
                workload = recipes.applied(plain, recipe)
                with suppress(WorkloadError, TargetError):
                    build_object(value, replace(workload, **overrides))
                    return workload
    return plain


def _with_dtype_of_config(workload: Workload, target: Target, overrides: Mapping[str, Any]) -> Workload:
    """Take the dtype that a Hugging Face config states, in which its weights are loaded where nothing is trained."""
    is_config = target.is_config or target.qualname.endswith("Config")
    if not is_config or "dtype" in overrides or overrides.get("mode", "train") == "train":
        return workload
    values = target.arguments
    if target.path is not None:
        with suppress(OSError, ValueError):  # whoever builds the model reports the reason
            values = json.loads(target.path.read_bytes())
    stated = values.get("dtype", values.get("torch_dtype")) if isinstance(values, Mapping) else None
    if stated not in ("bfloat16", "float16", "float32"):
        return workload
    found = Assumption(f"dtype {stated}: the config's, in which its weights are loaded", None)
    return replace(workload, dtype=stated, assumed=workload.assumed - {"dtype"}, found=(*workload.found, found))


def _refuse_script(path: Path, text: str) -> None:
    """Raise TargetError for a file whose import would start training."""
    with suppress(Unreadable):  # the import reports the reason
        source = Source.read(path)
        if (call := training_at_import(source)) is not None:
            raise TargetError(
                f"{path}:{call.lineno} `{ast.unparse(call)[:60]}` would run if it was imported: this is a script",
                f"Type memlint run {text.partition(SEPARATOR)[0]}; for a model in it, {GUARD[0].lower()}{GUARD[1:]}",
            )


def _is_of(workload: Workload, target: Target) -> bool:
    """Return True if a table is for this config file, or for this object of a module."""
    if target.path is not None:
        return workload.path == str(target.path)
    return not workload.path and parse_target(workload.target, Path.cwd()) == target
