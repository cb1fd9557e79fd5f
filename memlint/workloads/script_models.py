"""Models of a file as a script of the project has built them."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from memlint.base.errors import TargetError, WorkloadError
from memlint.memory.records import Assumption
from memlint.source.model_makers import makers, other_models
from memlint.targets.built import Asked
from memlint.targets.target import SEPARATOR
from memlint.targets.workload import Workload
from memlint.workloads.as_built import (
    as_built,
    classes_in,
    listed,
    takes_inputs,
    with_plain_inputs,
    with_settings_of,
    without_inputs,
)
from memlint.workloads.candidates import Candidate, Discovery, candidate_of, chosen_of
from memlint.workloads.construction.construct import build_object, simulated_device
from memlint.workloads.guess.inputs import missing_inputs
from memlint.workloads.guess.recipes import Recipes
from memlint.workloads.tensors import placed


def of_script(
    module: ModuleType,
    path: Path,
    root: Path,
    text: str,
    defaults: Workload,
    asked: Asked | None,
    name: str = "",
) -> Discovery | None:
    """Find the models of the file that a script has built, or the one of this `name`; None if none can be built so."""
    found, is_named = [] if asked is None else classes_in(asked.built, path, name), bool(name)
    if asked is None or not found:
        return None
    defaults = with_settings_of(defaults, asked)
    is_open = any(kind.arguments is None for _model, kind in found) or not defaults.assumed.isdisjoint(_of(defaults))
    tree = ast.parse(path.read_bytes())
    factories = makers(tree, [kind.qualname for _model, kind in found])
    recipes = Recipes(path, root, [*(kind.qualname for _model, kind in found), *factories], asked.built.sizes)
    candidates: dict[type, Candidate] = {}
    with simulated_device(defaults.device) as place:
        for model, kind in found:
            if kind is not model and candidates:
                break  # one part is enough
            builder = "" if kind.frame is None else kind.frame.path
            # What an example or an evaluation feeds is no batch of a training loop in the project's text.
            is_apart = bool(kind.inputs) and (defaults.mode != "train" or asked.is_example)
            is_in_loop = is_open and not is_apart
            workload = recipes.with_loop_of(kind.qualname, defaults, builder) if is_in_loop else defaults
            workload = as_built(replace(workload, name=kind.name), asked, model, kind)
            try:
                function = attrgetter(kind.qualname)(module)
                of_it = [maker for maker, name in factories.items() if name == kind.qualname and hasattr(module, maker)]
                functions = {kind.qualname: function, **{maker: getattr(module, maker) for maker in of_it}}
                built, workload = _repeated(functions, workload, recipes)
            except (AttributeError, WorkloadError, TargetError):
                continue
            if workload.inputs is not None and not takes_inputs(built, workload, place):
                plain = with_plain_inputs(workload)
                is_taken = takes_inputs(built, plain, place)
                workload = plain if is_taken else _with_missing(built, workload, place, asked)
            if workload.inputs is None and workload.shown is None:
                workload = replace(workload, shown=recipes.shown_elsewhere(kind.qualname))
            name = workload.qualname or kind.qualname
            candidates[type(built)] = candidate_of(name, built, workload, is_trained=True, elsewhere=True)
    classes = {each.__name__: each for each in candidates}
    chosen = chosen_of(candidates, {}, classes, {}, text.partition(SEPARATOR)[0])
    if not chosen.workloads:
        return None
    built_names = {kind.qualname for _model, kind in found} | {each.__name__ for each in candidates}
    others = [] if is_named else other_models(tree, built_names)
    return chosen._replace(workloads=tuple(_beside(others, each) for each in chosen.workloads))


def _beside(others: Sequence[str], workload: Workload) -> Workload:
    """Return `workload` with the models of its file that the script does not build."""
    if not others:
        return workload
    text = f"the file has models that this script does not build: {listed(others)}; name one with ::{others[0]}"
    return replace(workload, found=(*workload.found, Assumption(text, None, found=True)))


def _with_missing(model: nn.Module, workload: Workload, place: str, asked: Asked) -> Workload:
    """Return `workload` with the inputs that a script's call lacked, as it failed before; without any if none fit."""
    known = workload.inputs or ()
    added = missing_inputs(placed(model, place), place, known, {**workload.sizes, **workload.arguments})
    if not added:
        plain = without_inputs(workload)
        of_data = ", which calls it with made-up data that does not fit" if asked.built.made_up else ""
        return replace(plain, built_by=f"{plain.built_by}{of_data}")
    texts = [each.described(workload.dimensions) for each in added]
    notes = (Assumption(f"input {each}, which the script's call lacks", None) for each in texts)
    built_by = f"{workload.built_by}; {', '.join(texts)}: nothing states their size"
    return replace(workload, inputs=(*known, *added), found=(*workload.found, *notes), built_by=built_by)


def _of(workload: Workload) -> frozenset[str]:
    """Return the settings that decide the size of a step."""
    return frozenset({"batch", "dtype"} | ({"optimizer"} if workload.mode == "train" else set()))


def _repeated(
    functions: Mapping[str, Callable[..., Any]], workload: Workload, recipes: Recipes
) -> tuple[nn.Module, Workload]:
    """Build as a script has, or if its arguments are unknown as the project's text says. Raises WorkloadError.

    `functions` are the class and, by their names, the functions of its file that make it.
    """
    if workload.recorded is not None:
        return build_object(next(iter(functions.values())), workload).model, workload
    failure: WorkloadError | TargetError | None = None
    for name, function in functions.items():
        for recipe in recipes.of(name, function):
            changed = replace(recipes.applied(workload, recipe), qualname=name)
            try:
                return build_object(function, changed).model, changed
            except (WorkloadError, TargetError) as error:
                failure = failure or error
    raise failure or WorkloadError(f"nothing says how to build {workload.name}")
