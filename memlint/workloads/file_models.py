"""Models that a file has: its classes, what its functions make, and its variables."""

import ast
import dis
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from torch import nn

from memlint.base.errors import TargetError, UsageError, WorkloadError
from memlint.base.signatures import annotations_of
from memlint.memory.records import Assumption, Frame
from memlint.source.model_makers import makers, parts_of_others
from memlint.source.text import dotted_name
from memlint.source.training_loop import LoopSetting
from memlint.source.values import shown_arguments
from memlint.targets.workload import Workload
from memlint.workloads.candidates import Candidate, Discovery, LeftOut, candidate_of, chosen_of
from memlint.workloads.construction.construct import build_object, complete, simulated_device
from memlint.workloads.construction.training_step import has_methods
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.arguments import MissingArgumentsError
from memlint.workloads.guess.recipes import Recipe, Recipes, sized
from memlint.workloads.placeholders.absent_packages import AbsentError

_BUILDER = re.compile(
    r"build|make|create|(build|make|create|get|load)_?\w*(model|net|network|unet|vit|transformer|backbone)(_\w+)?"
    r"|[a-z]\w*_(tiny|small|base|medium|large|huge|giant|nano|mini|xs|xl|xxl|[a-z]?\d+[a-z]?)(_\w+)?"
)
"""Names of functions that give a model: `build_model`, and a model with its size, `net_tiny`."""
_BASE = re.compile(r"(^|_)base(_|$)")
"""Name of the usual size in a family of models."""
_MOST_OTHERS = 6
_MOST_TYPED = 3
"""Maximum number of calls with guessed arguments whose inputs are tried."""


def discovered(module: ModuleType, path: Path, root: Path, text: str, defaults: Workload) -> Discovery:
    """Find models of the file that are not parts of others: those that the project builds, else the largest first."""
    tree = ast.parse(path.read_bytes())
    decorated = frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.decorator_list)
    classes = {name: value for name, value in vars(module).items() if _is_model_class(value, module, name, decorated)}
    factories: dict[str, list[str]] = {}
    for maker, name in makers(tree, classes).items():
        if hasattr(module, maker):
            factories.setdefault(name, []).append(maker)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    builders = [node.name for node in functions if _is_named_as_builder(node)]
    used = {n: kind for n, kind in vars(module).items() if _is_class_of(kind, module, n) and not _has_forward(kind)}
    makers_of_all = [maker for each in factories.values() for maker in each]
    called = builders if classes else [node.name for node in functions]
    recipes = Recipes(path, root, [*classes, *called, *used, *makers_of_all])
    parts = parts_of_others(tree, {**classes, **used})
    candidates: dict[type, Candidate] = {}
    failures: dict[str, LeftOut] = {}
    absent: list[AbsentError] = []
    with simulated_device(defaults.device):
        for name, kind in classes.items():
            methods = [each for each in recipes.methods_of(name) if _makes_by_class(kind, each)]
            makers_of_it = (*factories.get(name, ()), *methods)
            built = _first_built(module, name, makers_of_it, recipes, defaults, failures, absent)
            if built is not None:
                candidates[kind] = built
        candidates |= _without_forward(module, used, factories, recipes, defaults)
        if not candidates:
            candidates |= _of_functions(module, tree, called, builders, recipes, defaults, failures)
        candidates |= _of_variables(module, tree, recipes, defaults, candidates)
        if not any(each.num_parameters for kind, each in candidates.items() if kind.__name__ not in parts):
            ready = {name: kind for name, kind in classes.items() if name not in parts and kind not in candidates}
            makers_with_sizes = (
                ready if classes else {n: f for n in builders if callable(f := getattr(module, n, None))}
            )
            candidates |= _of_guessed_sizes(module, makers_with_sizes, recipes, defaults, failures)
    for name in (each for each in used if used[each] not in candidates):
        failures.setdefault(name, LeftOut(name, f"{name} has no forward"))
    _refuse_others(candidates.values(), absent)
    trained = {n for n in (*classes, *used) if any(map(recipes.is_trained, (n, *factories.get(n, ()))))}
    _leave_out_untrained(candidates, failures, parts, trained)
    chosen = chosen_of(candidates, failures, classes, parts, text)
    call = "" if chosen.workloads else _suggested_call(module, recipes, {**classes}, trained, parts, defaults)
    return chosen._replace(left_out=tuple(each._replace(call=call) for each in chosen.left_out))


def _learns(model: nn.Module) -> bool:
    """Return True if any of its parameters gets a gradient, or if it has none."""
    weights = list(model.parameters())
    return not weights or any(weight.requires_grad for weight in weights)


def _of_functions(
    module: ModuleType,
    tree: ast.Module,
    called: Sequence[str],
    builders: Collection[str],
    recipes: Recipes,
    defaults: Workload,
    failures: dict[str, LeftOut],
) -> dict[type, Candidate]:
    """Find the models that functions make, those first that scripts call; `failures` gets those of `builders`."""
    defined = {name: function for name in called if callable(function := getattr(module, name, None))}
    trained = (r for name, function in defined.items() for r in recipes.of(name, function) if r.trains)
    found: dict[type, Candidate] = {}
    for recipe in (*trained, *map(Recipe, _makers(module, tree))):
        try:
            found.setdefault(*_built(module, recipes, recipe, defaults))
        except (WorkloadError, TargetError) as error:
            if recipe.maker in builders:
                failures.setdefault(recipe.maker, LeftOut(recipe.maker, error.message, hint=error.hint))
    return found


def _of_guessed_sizes(
    module: ModuleType,
    open_makers: Mapping[str, Callable[..., Any]],
    recipes: Recipes,
    defaults: Workload,
    failures: dict[str, LeftOut],
) -> dict[type, Candidate]:
    """Find the models of classes or functions that are given a number for each argument; `failures` gets the others."""
    found: dict[type, Candidate] = {}
    for recipe in filter(None, map(sized, open_makers, open_makers.values())):
        try:
            found.setdefault(*_built(module, recipes, recipe, defaults))
        except (WorkloadError, TargetError) as error:
            before = failures.get(recipe.maker, LeftOut(recipe.maker, recipe.maker))
            reason = f"{before.reason}; with guessed sizes, {error.message}"
            failures[recipe.maker] = before._replace(reason=reason, hint=before.hint or error.hint)
    return found


def _of_variables(
    module: ModuleType, tree: ast.Module, recipes: Recipes, defaults: Workload, candidates: Mapping[type, Candidate]
) -> dict[type, Candidate]:
    """Find the models that the file itself makes as it is imported, but for those of the classes that can be built."""
    assigned = (each for each in ast.walk(tree) if isinstance(each, ast.Assign | ast.AnnAssign))
    targets = (target for each in assigned for target in getattr(each, "targets", (getattr(each, "target", None),)))
    names = dict.fromkeys(each.id for each in targets if isinstance(each, ast.Name))
    values = {name: vars(module).get(name) for name in names}
    models = {name: value for name, value in values.items() if isinstance(value, nn.Module) and _learns(value)}
    inside = {part for value in models.values() for part in value.modules() if part is not value}
    found: dict[nn.Module, Candidate] = {}
    for name, value in models.items():
        if value not in inside and type(value) not in candidates:
            workload = recipes.applied(replace(defaults, name=name), Recipe(name))
            found[value] = candidate_of(name, value, workload, is_trained=False, elsewhere=False)
    return {type(each.name, (), {}): each for each in found.values()}  # of one class there may be several


def _without_forward(
    module: ModuleType,
    classes: Mapping[str, type],
    factories: Mapping[str, Sequence[str]],
    recipes: Recipes,
    defaults: Workload,
) -> dict[type, Candidate]:
    """Build those of these classes without a `forward` whose methods a training loop calls."""
    candidates: dict[type, Candidate] = {}
    for name, kind in classes.items():
        makers_of_it = factories.get(name, ())
        if any(map(recipes.is_trained, (name, *makers_of_it))):
            built = _first_built(module, name, makers_of_it, recipes, defaults, {}, [])
            fed = None if built is None else built.workload.fed
            if built is not None and fed is not None and fed.code and has_methods(kind, fed):
                candidates[kind] = built
    return candidates


def _leave_out_untrained(
    candidates: dict[type, Candidate],
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


def _refuse_others(candidates: Iterable[Candidate], absent: Sequence[AbsentError]) -> None:
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
    absent: list[AbsentError],
) -> Candidate | None:
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
            if recipe.trains and isinstance(error, AbsentError):
                absent.append(error)
            if "." not in recipe.maker:  # a method of the class that has failures of its own
                hint = "" if isinstance(error, MissingArgumentsError) else error.hint  # --init writes these out
                failure = LeftOut(recipe.maker, error.message, hint=hint, is_trained=recipe.trains)
                (own if recipe.site is None else failures).setdefault(recipe.maker, failure)
    failures |= {name: failure for name, failure in own.items() if name not in failures}
    return None


def _one_of(candidate: Candidate, makers: Sequence[str], named: LoopSetting | None) -> Candidate:
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


def _built(module: ModuleType, recipes: Recipes, recipe: Recipe, defaults: Workload) -> tuple[type, Candidate]:
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
    return type(model), candidate_of(recipe.maker, model, workload, is_trained=recipe.trains, elsewhere=elsewhere)


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
