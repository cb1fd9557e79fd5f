"""The search for Workloads in the target that a user typed."""

import ast
import dis
import inspect
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeGuard

from torch import nn
from torch.nn.parameter import is_lazy

from memlint.base.errors import GUARD, NO_MODULE_FOUND, TargetError, UsageError, WorkloadError
from memlint.base.signatures import annotations_of
from memlint.memory.records import Assumption, Frame
from memlint.source.files import Unreadable
from memlint.source.model_makers import makers, parts_of_others
from memlint.source.scripts import is_script, training_at_import
from memlint.source.text import Source, dotted_name, source_at
from memlint.source.training_loop import LoopSetting
from memlint.source.values import shown_arguments
from memlint.targets.built import Asked
from memlint.targets.declare import declared_workloads
from memlint.targets.target import SEPARATOR, Target, parse_target
from memlint.targets.workload import Workload
from memlint.workloads import placeholders
from memlint.workloads.as_built import as_built, classes_in, takes_inputs, with_settings_of
from memlint.workloads.construction.construct import build_object, build_program, complete, simulated_device
from memlint.workloads.construction.training_step import has_methods
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.arguments import MissingArgumentsError
from memlint.workloads.guess.recipes import Recipe, Recipes, sized
from memlint.workloads.loading import load_file

__all__ = ["Discovery", "LeftOut", "build_program", "complete", "find_workloads"]


_ASSUMED = frozenset({"batch", "dtype", "optimizer"})
"""Settings that a project may state and that otherwise have defaults."""


_BUILDER = re.compile(
    r"(build|make|create|get)_?\w*(model|net|network|unet|vit|transformer|backbone)"
    r"|[a-z]\w*_(tiny|small|base|medium|large|huge|giant|nano|mini|xs|xl|xxl|[a-z]?\d+[a-z]?)(_\w+)?"
)
"""Names of functions that give a model: `build_model`, and a model with its size, `net_tiny`."""
_BASE = re.compile(r"(^|_)base(_|$)")
"""Name of the usual size in a family of models."""
_FEW = 10
"""A class is a small part of one that has more parameters by this factor."""
_MOST_OTHERS = 6
_MOST_TYPED = 3
"""Maximum number of calls with guessed arguments whose inputs are tried."""


class LeftOut(NamedTuple):
    """A model in the file that is not analysed."""

    name: str
    reason: str
    call: str = ""
    """A call to type instead, with guessed arguments."""
    hint: str = ""
    """Advice on how to make it build."""
    is_trained: bool = False
    """True if a script of the project builds it."""


class Discovery(NamedTuple):
    """The Workloads of a target, and the models left out."""

    workloads: tuple[Workload, ...]
    left_out: tuple[LeftOut, ...] = ()


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
            discovery = _of_script(module, target.path, root, text, defaults, asked) or _discovered(
                module, target.path, root, text, defaults
            )
            here = str(target.path)
            missing = [each for each in placeholders.assumptions() if each.frame and each.frame.path == here]
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
        found = _of_script(load_file(target.path, root), target.path, root, text, defaults, asked, target.qualname)
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


class _Candidate(NamedTuple):
    name: str
    num_parameters: int
    parts: frozenset[type]
    """Classes of its submodules."""
    workload: Workload
    is_trained: bool
    """True if a script of the project builds it."""
    is_built_elsewhere: bool
    """True if that script is another file: code in the model's own file may only try it out."""


def _of_script(
    module: ModuleType,
    path: Path,
    root: Path,
    text: str,
    defaults: Workload,
    asked: Asked | None,
    name: str = "",
) -> Discovery | None:
    """Find the models of the file that a script has built, or the one of this `name`; None if none can be built so."""
    found = [] if asked is None else classes_in(asked.built, path, name)
    if asked is None or not found:
        return None
    defaults = with_settings_of(defaults, asked)
    is_open = any(kind.arguments is None for _model, kind in found) or not defaults.assumed.isdisjoint(_of(defaults))
    factories = makers(ast.parse(path.read_bytes()), [kind.qualname for _model, kind in found])
    recipes = Recipes(
        path, root, [*(kind.qualname for _model, kind in found), *factories] if is_open else [], asked.built.sizes
    )
    candidates: dict[type, _Candidate] = {}
    with simulated_device(defaults.device) as place:
        for model, kind in found:
            if kind is not model and candidates:
                break  # one part is enough
            builder = "" if kind.frame is None else kind.frame.path
            workload = recipes.with_loop_of(kind.qualname, defaults, builder) if is_open else defaults
            workload = as_built(replace(workload, name=kind.name), asked, model, kind)
            try:
                function = attrgetter(kind.qualname)(module)
                of_it = [maker for maker, name in factories.items() if name == kind.qualname and hasattr(module, maker)]
                functions = {kind.qualname: function, **{maker: getattr(module, maker) for maker in of_it}}
                built, workload = _repeated(functions, workload, recipes)
            except (AttributeError, WorkloadError, TargetError):
                continue
            if workload.inputs is not None and not takes_inputs(built, workload, place):
                workload = replace(workload, inputs=None)
            name = workload.qualname or kind.qualname
            candidates[type(built)] = _candidate(name, built, workload, is_trained=True, elsewhere=True)
    classes = {each.__name__: each for each in candidates}
    chosen = _chosen(candidates, {}, classes, {}, text.partition(SEPARATOR)[0])
    return chosen if chosen.workloads else None


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


def _discovered(module: ModuleType, path: Path, root: Path, text: str, defaults: Workload) -> Discovery:
    """Find models of the file that are not parts of others: those that the project builds, else the largest first."""
    tree = ast.parse(path.read_bytes())
    decorated = frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.decorator_list)
    classes = {name: value for name, value in vars(module).items() if _is_model_class(value, module, name, decorated)}
    factories: dict[str, list[str]] = {}
    for maker, name in makers(tree, classes).items():
        if hasattr(module, maker):
            factories.setdefault(name, []).append(maker)
    functions = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and (not classes or _is_named_as_builder(node))
    ]
    used = {n: kind for n, kind in vars(module).items() if _is_class_of(kind, module, n) and not _has_forward(kind)}
    makers_of_all = [maker for each in factories.values() for maker in each]
    recipes = Recipes(path, root, [*classes, *functions, *used, *makers_of_all])
    parts = parts_of_others(tree, {**classes, **used})
    candidates: dict[type, _Candidate] = {}
    failures: dict[str, LeftOut] = {}
    absent: list[placeholders.AbsentError] = []
    with simulated_device(defaults.device):
        for name, kind in classes.items():
            methods = [each for each in recipes.methods_of(name) if _makes_by_class(kind, each)]
            makers_of_it = (*factories.get(name, ()), *methods)
            built = _first_built(module, name, makers_of_it, recipes, defaults, failures, absent)
            if built is not None:
                candidates[kind] = built
        candidates |= _without_forward(module, used, factories, recipes, defaults)
        defined = (name for name in functions if callable(getattr(module, name, None)))
        called = (r for name in defined for r in recipes.of(name, getattr(module, name)) if r.trains)
        for recipe in () if candidates else (*called, *map(Recipe, _makers(module, tree))):
            with suppress(WorkloadError, TargetError):
                candidates.setdefault(*_built(module, recipes, recipe, defaults))
        is_built = any(candidate.num_parameters for candidate in candidates.values())
        open_classes = (
            {} if is_built else {n: kind for n, kind in classes.items() if n not in parts and kind not in candidates}
        )
        for recipe in filter(None, map(sized, open_classes, open_classes.values())):
            try:
                candidates.setdefault(*_built(module, recipes, recipe, defaults))
            except (WorkloadError, TargetError) as error:
                before = failures.get(recipe.maker, LeftOut(recipe.maker, recipe.maker))
                reason = f"{before.reason}; with guessed sizes, {error.message}"
                failures[recipe.maker] = before._replace(reason=reason, hint=before.hint or error.hint)
    for name in (each for each in used if used[each] not in candidates):
        failures.setdefault(name, LeftOut(name, f"{name} has no forward"))
    _refuse_others(candidates.values(), absent)
    trained = {n for n in (*classes, *used) if any(map(recipes.is_trained, (n, *factories.get(n, ()))))}
    _leave_out_untrained(candidates, failures, parts, trained)
    chosen = _chosen(candidates, failures, classes, parts, text)
    call = "" if chosen.workloads else _suggested_call(module, recipes, {**classes}, trained, parts, defaults)
    return chosen._replace(left_out=tuple(each._replace(call=call) for each in chosen.left_out))


def _without_forward(
    module: ModuleType,
    classes: Mapping[str, type],
    factories: Mapping[str, Sequence[str]],
    recipes: Recipes,
    defaults: Workload,
) -> dict[type, _Candidate]:
    """Build those of these classes without a `forward` whose methods a training loop calls."""
    candidates: dict[type, _Candidate] = {}
    for name, kind in classes.items():
        makers_of_it = factories.get(name, ())
        if any(map(recipes.is_trained, (name, *makers_of_it))):
            built = _first_built(module, name, makers_of_it, recipes, defaults, {}, [])
            fed = None if built is None else built.workload.fed
            if built is not None and fed is not None and fed.code and has_methods(kind, fed):
                candidates[kind] = built
    return candidates


def _leave_out_untrained(
    candidates: dict[type, _Candidate],
    failures: dict[str, LeftOut],
    parts: Collection[str],
    trained: Collection[str],
) -> None:
    """Drop models that no script builds if one of the `trained` has failed: they would stand for that one."""
    failing = {name for name, each in failures.items() if (each.is_trained or name in trained) and name not in parts}
    if failing:
        others = [kind for kind, each in candidates.items() if not each.is_trained]
        for candidate in map(candidates.pop, (kind for kind in others if kind.__name__ not in failing)):
            failures[candidate.name] = LeftOut(candidate.name, "no script of the project builds it")


def _refuse_others(candidates: Iterable[_Candidate], absent: Sequence[placeholders.AbsentError]) -> None:
    """Raise what keeps the project's own models from being built, unless another trained model could be built."""
    if absent and not any(candidate.is_trained for candidate in candidates):
        raise absent[0]


def _suggested_call(
    module: ModuleType,
    recipes: Recipes,
    classes: Mapping[str, type],
    trained: Collection[str],
    parts: Mapping[str, str],
    defaults: Workload,
) -> str:
    """Return a call with guessed arguments that runs, for the likeliest class, and of equally likely ones the largest.

    Classes in `trained` come first, because scripts build them, then those that are not `parts` of others. A part is
    only offered if no script builds anything in the file: otherwise it would not replace the model that failed.
    """
    candidates = []
    with simulated_device(defaults.device):
        for name, kind in classes.items():
            is_only_part = trained and name in parts and (name not in trained or parts[name] in trained)
            recipe = None if is_only_part else sized(name, kind, guess=True)
            with suppress(WorkloadError, TargetError):
                candidates += [] if recipe is None else [_built(module, recipes, recipe, defaults)[1]]
    candidates = [each for each in candidates if each.num_parameters]
    candidates.sort(key=lambda each: (each.name not in trained, each.name in parts, -each.num_parameters))
    for candidate in candidates[:_MOST_TYPED]:
        workload = replace(candidate.workload, qualname=candidate.name, found=())
        with suppress(WorkloadError, TargetError, UsageError):
            complete(workload)
            return f"{candidate.name}({shown_arguments(workload.arguments)})"
    return ""


def _first_built(
    module: ModuleType,
    name: str,
    makers: Sequence[str],
    recipes: Recipes,
    defaults: Workload,
    failures: dict[str, LeftOut],
    absent: list[placeholders.AbsentError],
) -> _Candidate | None:
    """Build with the first recipe that works, training scripts' recipes first; `failures` gets the others' errors.

    Where no script builds the class `name`, the file's own `makers` without arguments come before the bare class.
    `absent` gets the missing packages that the recipes of the project's scripts need.
    """
    every = [recipe for maker in (name, *makers) for recipe in recipes.of(maker, attrgetter(maker)(module))]
    own: dict[str, LeftOut] = {}
    named = recipes.named(makers) if len(makers) > 1 else None

    def doubts(recipe: Recipe) -> tuple[bool, ...]:
        is_bare = recipe.maker == name and recipe.site is None
        is_unnamed = named is None or recipe.maker != named.value
        return (*recipe.doubts, is_unnamed, "pretrained" in recipe.maker, is_bare, _BASE.search(recipe.maker) is None)

    for recipe in sorted(every, key=doubts):
        try:
            built = _built(module, recipes, recipe, defaults)[1]
            return built if recipe.site is not None or recipe.maker == name else _one_of(built, makers, named)
        except (WorkloadError, TargetError) as error:
            if recipe.trains and isinstance(error, placeholders.AbsentError):
                absent.append(error)
            if "." not in recipe.maker:  # a method of the class that has failures of its own
                hint = "" if isinstance(error, MissingArgumentsError) else error.hint  # --init writes these out
                failure = LeftOut(recipe.maker, error.message, hint=hint, is_trained=recipe.trains)
                (own if recipe.site is None else failures).setdefault(recipe.maker, failure)
    failures |= {name: failure for name, failure in own.items() if name not in failures}
    return None


def _one_of(candidate: _Candidate, makers: Sequence[str], named: LoopSetting | None) -> _Candidate:
    """Return a model with the reason why it is taken among those that several functions make, or with their names."""
    workload, others = candidate.workload, [each for each in makers if each != candidate.name]
    if not others:
        return candidate
    if named is not None and named.value == candidate.name:
        place = Frame(named.path, named.line, "")
        note = Assumption(f"{candidate.name}, of {len(makers)} such functions: {named.text}", place, found=True)
        return candidate._replace(workload=replace(workload, found=(note, *workload.found)))
    shown = ", ".join(others[:_MOST_OTHERS]) + (", ..." if len(others) > _MOST_OTHERS else "")
    text = f"one of {len(makers)} models of the file that nothing chooses among; another with ::NAME, as {shown}"
    return candidate._replace(workload=replace(workload, built_by=workload.built_by or text))


def _makes_by_class(kind: type, dotted: str) -> bool:
    """Return True if this method is called on the class, not on an object."""
    method = inspect.getattr_static(kind, dotted.rpartition(".")[2], None)
    return isinstance(method, classmethod | staticmethod)


def _built(module: ModuleType, recipes: Recipes, recipe: Recipe, defaults: Workload) -> tuple[type, _Candidate]:
    function = attrgetter(recipe.maker)(module)
    workload = recipes.applied(replace(defaults, name=recipe.maker), recipe)
    try:
        model = build_object(function, workload).model
    except WorkloadError as error:
        if not (isinstance(error.__cause__, TypeError) and (lists := recipe.with_lists())):
            raise
        workload = recipes.applied(replace(defaults, name=recipe.maker), lists)
        model = build_object(function, workload).model
    elsewhere = recipe.trains and recipe.site is not None and recipe.site.path != module.__file__
    return type(model), _candidate(recipe.maker, model, workload, is_trained=recipe.trains, elsewhere=elsewhere)


def _candidate(name: str, model: nn.Module, workload: Workload, *, is_trained: bool, elsewhere: bool) -> _Candidate:
    parts = frozenset(type(part) for part in model.modules() if part is not model)
    number = sum(weight.numel() or is_lazy(weight) for weight in model.parameters())
    return _Candidate(name, number, parts, workload, is_trained, elsewhere)


def _chosen(
    candidates: Mapping[type, _Candidate],
    failures: Mapping[str, LeftOut],
    classes: Mapping[str, type],
    of_others: Mapping[str, str],
    text: str,
) -> Discovery:
    """Keep the models that stand on their own, and explain why the others are left out."""
    built = {candidate.name for candidate in candidates.values()} | {kind.__name__ for kind in candidates}
    used = frozenset().union(*(candidate.parts for candidate in candidates.values()))
    left_out = [
        LeftOut(name, "it is a part of another model") if classes.get(name) in used else failure
        for name, failure in failures.items()
        if name not in built
    ]
    roots = []
    for kind, candidate in candidates.items():
        users = [other.name for user, other in candidates.items() if user is not kind and kind in other.parts]
        user = of_others.get(kind.__name__, "")
        failed = next((each for each in _users_of(kind.__name__, of_others) if each in failures.keys() - built), "")
        if (
            user in built
            and of_others.get(user) != kind.__name__
            and _belongs(candidate, candidates.values(), of_others)
        ):
            users.append(user)  # the same model with other arguments
        elif failed and (failures[failed].is_trained or not candidate.is_trained):
            users.append(f"{failed}, which cannot be built")
        if users:
            left_out.append(LeftOut(candidate.name, f"it is a part of {users[0]}"))
        elif candidate.num_parameters == 0:
            left_out.append(LeftOut(candidate.name, "it has no parameters"))
        else:
            roots.append(candidate)
    if any(root.is_trained for root in roots):
        others = [root for root in roots if not root.is_trained]
        left_out += (LeftOut(root.name, "no script of the project builds it") for root in others)
        roots = [root for root in roots if root.is_trained]
    roots.sort(key=lambda candidate: -candidate.num_parameters)
    workloads = (
        replace(root.workload, target=f"{text}::{root.name}", qualname=root.name, origin="discovered") for root in roots
    )
    left_out.sort(key=lambda each: not each.is_trained)
    return Discovery(tuple(workloads), tuple(left_out))


def _belongs(candidate: _Candidate, candidates: Iterable[_Candidate], of_others: Mapping[str, str]) -> bool:
    """Return True if a class that others use is nothing without them: no other file builds it, or only as a small part.

    A script that builds both builds the whole.
    """
    users = frozenset(_users_of(candidate.name, of_others))
    of_users = (each.num_parameters for each in candidates if each.name in users and each.is_trained)
    return not candidate.is_built_elsewhere or candidate.num_parameters * _FEW < max(of_users, default=0)


def _users_of(name: str, of_others: Mapping[str, str]) -> Iterator[str]:
    """Yield the class that uses a class, the one that uses that, and so on."""
    seen = {name}
    while (name := of_others.get(name, "")) and name not in seen:
        seen.add(name)
        yield name


def _is_model_class(value: object, module: ModuleType, name: str, decorated: frozenset[str]) -> TypeGuard[type]:
    """Return True for a concrete model class that the file itself defines under `name`."""
    return _is_class_of(value, module, name, decorated) and not inspect.isabstract(value) and _has_forward(value)


def _is_class_of(
    value: object, module: ModuleType, name: str, decorated: frozenset[str] = frozenset()
) -> TypeGuard[type[nn.Module]]:
    """Return True if the file defines it as a class of modules; a decorator may have given it another name."""
    if not (isinstance(value, type) and issubclass(value, nn.Module)):
        return False
    return name in decorated or (value.__module__ == module.__name__ and value.__name__ == name)


def _has_forward(kind: type[nn.Module]) -> bool:
    """Return True if it has a `forward` that does something: a class with other entry points may have a dummy."""
    if kind.forward is nn.Module.forward:
        return False
    code = getattr(kind.forward, "__code__", None)
    if code is None or "NotImplementedError" not in code.co_names:
        return True
    return any(each.opname.startswith("RETURN") for each in dis.get_instructions(code))


def _makers(module: ModuleType, tree: ast.Module) -> Iterator[str]:
    """Yield functions of the file without required arguments that return a module, by annotation or by their calls."""
    for node in tree.body:
        function = getattr(module, getattr(node, "name", ""), None)
        if not isinstance(node, ast.FunctionDef) or not callable(function) or node.name.startswith("_"):
            continue
        if any(parameter.default is parameter.empty for parameter in parameters(function).values()):
            continue
        assigned = {
            dotted_name(target): each.value
            for each in ast.walk(node)
            if isinstance(each, ast.Assign)
            for target in each.targets
        }
        returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value is not None]
        values = [assigned.get(dotted_name(value), value) for value in returned]
        is_annotated = _is_annotated_module(function, module) or _is_named_as_builder(node)
        if is_annotated or any(_makes_module(value, module) for value in values):
            yield node.name


def _is_named_as_builder(node: ast.FunctionDef) -> bool:
    """Return True if a function is named or registered as one that gives a model, or takes `pretrained`."""
    names = (ast.unparse(each).lower() for each in node.decorator_list)
    takes = any(each.arg == "pretrained" for each in (*node.args.args, *node.args.kwonlyargs))
    return takes or any("register" in each for each in names) or _BUILDER.fullmatch(node.name.lower()) is not None


def _makes_module(value: ast.expr, module: ModuleType) -> bool:
    """Return True if it calls a class of modules, or a function that is annotated to return one."""
    if not isinstance(value, ast.Call):
        return False
    called: object = module
    for part in dotted_name(value.func).split("."):
        called = getattr(called, part, None)
    if isinstance(called, type):
        return issubclass(called, nn.Module)
    return callable(called) and _is_annotated_module(called, sys.modules.get(called.__module__, module))


def _is_annotated_module(function: Callable[..., object], module: ModuleType) -> bool:
    annotation = annotations_of(function).get("return")
    kind = getattr(module, annotation, None) if isinstance(annotation, str) else annotation
    return isinstance(kind, type) and issubclass(kind, nn.Module)
