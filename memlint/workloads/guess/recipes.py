"""Ways to build the models of a file: as the project's own files do, with defaults, with sizes that are made up."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from memlint.memory.records import Assumption, Frame
from memlint.source.call_sites import CallSite, Where, call_sites
from memlint.source.project import Project
from memlint.source.project_files import ProjectFiles
from memlint.source.scripts import is_script
from memlint.source.shown_inputs import ShownCall, shown_call
from memlint.source.training_loop import LoopSetting, sizes_in_config, sole_loop, training_loop
from memlint.source.values import Call, Name, shown_arguments
from memlint.targets.workload import Workload
from memlint.workloads.constructor_values import by_name, parameters, plain_value
from memlint.workloads.model_sizes import annotation_class

_MOST = 4
"""Call sites tried of one class or function."""
_ENTRIES = 3
"""Of a list that is made up."""
_GUESS = 64
_LONGEST = 160
"""Letters of a call that is shown."""
_SHOWN = (Where.NOTEBOOK, Where.DOCUMENT)
"""Where calls stand that show how a model is built, and may show how it is trained."""
_SIZES = ("image_size", "image_height", "image_width", "length", "num_points", "segment_size")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to call a class or function of the file."""

    maker: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    site: CallSite | None = None
    """The call in the project that does so."""
    assumed: Mapping[str, object] = field(default_factory=dict)
    """Those of the arguments that nobody says."""

    def with_lists(self) -> Recipe | None:
        """The same call with a list for each number that was assumed where the name is in the plural."""
        numbers = {name: v for name, v in self.assumed.items() if name.endswith("s") and isinstance(v, int | float)}
        lists = {name: [value] * _ENTRIES for name, value in numbers.items()}
        if not lists:
            return None
        return replace(self, arguments={**self.arguments, **lists}, assumed={**self.assumed, **lists})

    @property
    def doubts(self) -> tuple[bool, bool, bool]:
        """Sorts recipes, the likeliest first: what scripts do, by default, what needs no arguments, what others do."""
        return not self.trains, self.site is not None and not self.site.is_default, self.site is not None

    @property
    def trains(self) -> bool:
        """Whether the project's training or inference scripts do so, and not only its tests and documents."""
        return self.site is not None and self.site.where <= Where.OTHER


class Recipes:
    """Recipes for what one file defines, with what the project says of training it."""

    def __init__(self, path: Path, root: Path, names: Collection[str]) -> None:
        """`names` are the classes and functions of the file `path` that give models."""
        self._project = Project(ProjectFiles(root, path))
        self._path, self._names = path, names

    @cached_property
    def _sites(self) -> tuple[CallSite, ...]:
        return call_sites(self._names, self._path, self._project) if self._names else ()

    def of(self, maker: str, function: Callable[..., Any]) -> Iterator[Recipe]:
        """Ways to call `function`, the likeliest first: as scripts do, without arguments, as tests and documents do."""
        recipes = list(self._from_sites(maker, function))
        yield from (recipe for recipe in recipes if recipe.trains)
        yield Recipe(
            maker, {k: False for k, p in parameters(function).items() if "pretrained" in k and p.default is True}
        )
        yield from (recipe for recipe in recipes if not recipe.trains)

    def _from_sites(self, maker: str, function: Callable[..., Any]) -> Iterator[Recipe]:
        tried: list[Mapping[str, object]] = []
        taken = parameters(function)
        needs_none = all(each.default is not each.empty for each in taken.values())
        for site in self._sites:
            if site.function != maker or len(tried) >= _MOST:
                continue
            if needs_none and site.where is Where.OTHER and any(isinstance(v, Call) for v in site.arguments.values()):
                continue  # a file that trains nothing shows one config of many
            arguments, assumed = _filled(site, taken, partial(self._config, function))
            if arguments is None or arguments in tried:
                continue
            tried.append(arguments)
            yield Recipe(maker, arguments, site, assumed)

    def _config(self, function: Callable[..., Any], name: str) -> Call | None:
        """What the project makes elsewhere of the class of its own that a parameter is annotated with."""
        kind = annotation_class(function, name) if isinstance(function, type) else None
        path = inspect.getsourcefile(kind) if kind is not None and kind.__module__ != "builtins" else None
        if kind is None or path is None or not Path(path).is_relative_to(self._project.root):
            return None
        sites = call_sites([kind.__name__], Path(path), self._project)
        seen = (site.arguments for site in sites if site.arguments and not site.unseen)
        return next((Call(Name(kind.__name__, ""), arguments) for arguments in seen), None)

    def methods_of(self, maker: str) -> Iterator[str]:
        """Methods of a class that the project calls in place of the class itself: `Class.from_name`."""
        names = (site.function for site in self._sites)
        yield from dict.fromkeys(name for name in names if name.startswith(f"{maker}."))

    def is_trained(self, maker: str) -> bool:
        """Whether a script of the project calls it, or a method of it, with whatever arguments."""
        return any(site.function.partition(".")[0] == maker and site.where <= Where.OTHER for site in self._sites)

    def script_of(self, names: Collection[str]) -> CallSite | None:
        """Where a script that can be run calls one of these, with whatever arguments; that which trains first."""
        sites = (each for each in self._sites if each.where <= Where.OTHER and each.function in names)
        scripts = (each for each in sites if each.source is not None and is_script(each.source))
        return min(scripts, key=lambda site: ("train" not in Path(site.path).stem, site.where), default=None)

    def applied(self, workload: Workload, recipe: Recipe) -> Workload:
        """`workload` built by `recipe`, with the batch size and the like of the script that does so."""
        assumptions: list[Assumption] = []
        if (site := recipe.site) is not None:
            call = typed_call(recipe.maker, {k: v for k, v in recipe.arguments.items() if k not in recipe.assumed})
            unseen = [name for name in site.unseen if not name.isdigit() and name not in recipe.assumed]
            text = f"built as {Path(site.path).name}:{site.line} does: {call}"
            text += f"; what it gives for {', '.join(unseen)} is not seen" if unseen else ""
            assumptions.append(Assumption(text, Frame(site.path, site.line, ""), found=True))
        settings: dict[str, Any] = {}
        sizes: dict[str, Any] = {}
        for each in self._loop(recipe).values():
            if each.key in _SIZES:
                sizes[each.key] = each.value
            elif each.key == "loss":
                if workload.loss is not None or workload.mode != "train":
                    continue
                settings["loss"] = each.value
            elif each.key not in workload.assumed or (each.key == "optimizer" and workload.mode != "train"):
                continue
            else:
                settings[each.key] = each.value
            named = each.key.replace("_", " ")
            assumptions.append(
                Assumption(f"{named} {each.value}: {each.text}", Frame(each.path, each.line, ""), found=True)
            )
        return replace(
            workload,
            **settings,
            arguments={**recipe.arguments, **workload.arguments},
            guessed=recipe.assumed,
            found=tuple(assumptions),
            sizes=sizes,
            shown=self._shown(recipe),
            assumed=workload.assumed - settings.keys(),
        )

    def _shown(self, recipe: Recipe) -> ShownCall | None:
        """What the code that builds it so calls it with, or else what other code does."""
        sites = [site for site in self._sites if site.function == recipe.maker]
        alike = {} if recipe.site is None else recipe.site.arguments
        for site in sorted(sites, key=lambda site: (site is not recipe.site, site.arguments != alike)):
            if (call := shown_call(site, self._project)) is not None:
                return replace(call, builds_so=site.arguments == alike)
        return None

    def _loop(self, recipe: Recipe) -> Mapping[str, LoopSetting]:
        """What the loop that trains such a model says: that around the call, or the only one there is."""
        site, paths = recipe.site, [value for value in recipe.arguments.values() if isinstance(value, str)]
        says = site is not None and (recipe.trains or site.where in _SHOWN)
        around = training_loop(site, self._project) if site is not None and says else {}
        is_whole = around and recipe.trains and site is not None and site.where is not Where.CONFIG
        sole = {} if is_whole else self._sole_loop
        found = [around, sole] if recipe.trains else [sole, around]
        merged: dict[str, LoopSetting] = {}
        for settings in (*found, *(sizes_in_config(path, self._project) for path in paths)):
            merged = {**settings, **merged}
        return merged

    @cached_property
    def _sole_loop(self) -> Mapping[str, LoopSetting]:
        return sole_loop(self._path, self._project)


def _filled(
    site: CallSite, taken: Mapping[str, Any], config: Callable[[str], Call | None]
) -> tuple[dict[str, object] | None, dict[str, object]]:
    """Arguments of the call, with numbers or a `config` for those nobody can see and that have no default.

    None where that fails.
    """
    names = list(taken)
    if site.where is Where.CONFIG and site.arguments and taken.keys().isdisjoint(site.arguments):
        return None, {}  # something else of that name, such as an environment
    arguments: dict[str, object] = {}
    assumed: dict[str, object] = {}
    for key, value in by_name(site.arguments, taken).items():
        if key.isdigit():
            return None, {}
        if key in taken or not site.path.endswith((".yaml", ".yml", ".json")):
            arguments[key] = value
    for name, parameter in taken.items():
        if "pretrained" in name and arguments.get(name, parameter.default) is True:
            arguments[name] = False  # weights change no size
        if name in arguments or parameter.default is not parameter.empty:
            continue
        called = site.unseen.get(name) or site.unseen.get(str(names.index(name)), "")
        value = plain_value(parameter, called)
        if value is None and (value := config(name)) is None:
            return None, {}
        arguments[name] = assumed[name] = value
    return arguments, assumed


def typed_call(maker: str, arguments: Mapping[str, object]) -> str:
    """The call as somebody would type it, cut where it is very long."""
    text = f"{maker}({shown_arguments(arguments)})"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]}...)"


def sized(maker: str, function: Callable[..., Any], *, guess: bool = False) -> Recipe | None:
    """The call with a number for each argument that it needs; None where one of them takes something else.

    With `guess` also where nothing says what it takes.
    """
    values = {
        name: _GUESS if guess and _is_open(parameter) else _likely(function, name, parameter)
        for name, parameter in parameters(function).items()
        if parameter.default is parameter.empty
    }
    return None if not values or None in values.values() else Recipe(maker, values, assumed=values)


def _likely(function: Callable[..., Any], name: str, parameter: inspect.Parameter) -> object:
    value = plain_value(parameter)
    return _sized_config(function, name) if value is None else value


def _sized_config(function: Callable[..., Any], name: str) -> Call | None:
    """A dataclass that the parameter is annotated with, with a number for each field that it needs."""
    kind = annotation_class(function, name) if isinstance(function, type) else None
    if kind is None or not dataclasses.is_dataclass(kind):
        return None
    needed = {key: plain_value(each) for key, each in parameters(kind).items() if each.default is each.empty}
    return None if not needed or None in needed.values() else Call(Name(kind.__name__, ""), needed)


def _is_open(parameter: inspect.Parameter) -> bool:
    """Whether nothing says what it takes."""
    return parameter.annotation is parameter.empty and plain_value(parameter) is None


def parts_of_others(tree: ast.Module, names: Collection[str]) -> dict[str, str]:
    """Classes that another class of the file uses or is called with, with its name."""
    users: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in names:
            bases = {each for base in node.bases for each in ast.walk(base)}
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and each.id in names and each.id != node.name and each not in bases:
                    users.setdefault(each.id, node.name)
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id in names:
            for value in (*call.args, *(keyword.value for keyword in call.keywords)):
                if isinstance(value, ast.Name) and value.id in names and value.id != call.func.id:
                    users.setdefault(value.id, call.func.id)
    return users


def makers(tree: ast.Module, classes: Collection[str]) -> dict[str, str]:
    """Functions of the file that call one of its classes, or another of these, with that class."""
    made: dict[str, str] = {}
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for _ in functions:
        before = len(made)
        for node in functions:
            returned = {
                each.id
                for statement in ast.walk(node)
                if isinstance(statement, ast.Return) and statement.value is not None
                for each in ast.walk(statement.value)
                if isinstance(each, ast.Name)
            }
            called = [
                (each.func.id, each)
                for each in ast.walk(node)
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
            ]
            for name, call in called:
                kind = name if name in classes else made.get(name)
                if kind and node.name not in made and (name in returned or _is_bound(node, call, returned)):
                    made[node.name] = kind
        if len(made) == before:
            break
    return made


def _is_bound(function: ast.FunctionDef, call: ast.Call, names: Collection[str]) -> bool:
    """Whether what `call` gives is assigned to one of `names`."""
    return any(
        isinstance(node, ast.Assign) and node.value is call and isinstance(target, ast.Name) and target.id in names
        for node in ast.walk(function)
        for target in getattr(node, "targets", ())
    )
