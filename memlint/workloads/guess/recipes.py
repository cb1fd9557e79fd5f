"""Ways to build the models of a file: as the project's own files do, with defaults, with guessed sizes."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

from torch import nn

from memlint.memory.records import Assumption, Frame
from memlint.source.call_sites import CallSite, Where, call_sites
from memlint.source.fed_calls import FedCall, fed_call
from memlint.source.project import Project
from memlint.source.shown_inputs import ShownCall, shown_call
from memlint.source.training_loop import (
    LoopSetting,
    batch_of,
    nearest_batch,
    sizes_in_config,
    sole_loop,
    training_loop,
    training_scripts,
)
from memlint.source.typed_commands import typed_commands
from memlint.source.values import Call, Name, shown_arguments
from memlint.targets.workload import Workload
from memlint.workloads.constructor_values import by_name, parameters, plain_value, takes_any
from memlint.workloads.hydra_configs import HydraConfigs
from memlint.workloads.model_sizes import annotation_class

_MOST = 4
"""Maximum number of call sites to try for one class or function."""
_ENTRIES = 3
"""Number of entries in a guessed list."""
_GUESS = 64
_LONGEST = 160
"""Maximum number of characters of a displayed call."""
_SHOWN = (Where.NOTEBOOK, Where.DOCUMENT)
"""Kinds of places whose calls show how a model is built, and maybe how it is trained."""
_AS_IT_IS = object()
_SIZES = ("image_size", "image_height", "image_width", "length", "num_points", "segment_size", "hop_length")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to call a class or function of the file."""

    maker: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    site: CallSite | None = None
    """The call in the project that it comes from."""
    assumed: Mapping[str, object] = field(default_factory=dict)
    """The guessed arguments."""

    def with_lists(self) -> Recipe | None:
        """Return the same call with a list in place of each guessed number whose name is a plural."""
        numbers = {name: v for name, v in self.assumed.items() if name.endswith("s") and isinstance(v, int | float)}
        lists = {name: [value] * _ENTRIES for name, value in numbers.items()}
        if not lists:
            return None
        return replace(self, arguments={**self.arguments, **lists}, assumed={**self.assumed, **lists})

    @property
    def doubts(self) -> tuple[bool, bool, bool]:
        """Sort key, the likeliest first: calls in scripts, defaults in scripts, no arguments, calls elsewhere."""
        return not self.trains, self.site is not None and not self.site.is_default, self.site is not None

    @property
    def trains(self) -> bool:
        """True if the project's training or inference scripts do so, and not only its tests and documents."""
        return self.site is not None and self.site.where <= Where.OTHER


class Recipes:
    """Recipes for the definitions of one file, with the settings of the project's training."""

    def __init__(self, path: Path, root: Path, names: Collection[str], sizes: Mapping[str, int] | None = None) -> None:
        """`names` are the classes and functions of the file `path` that return models.

        `sizes` are whole numbers by name that a script had when it built one.
        """
        self._project = Project(HydraConfigs(root, path).files)
        self._path, self._names, self._sizes = path, names, sizes or {}

    @cached_property
    def _sites(self) -> tuple[CallSite, ...]:
        return call_sites(self._names, self._path, self._project) if self._names else ()

    def of(self, maker: str, function: Callable[..., Any]) -> Iterator[Recipe]:
        """Yield ways to call `function`, the likeliest first: as scripts do, without arguments, as other files do."""
        recipes = list(self._from_sites(maker, function))
        yield from (recipe for recipe in recipes if recipe.trains)
        loaded = ((name, _without_weights(name, each, each.default)) for name, each in parameters(function).items())
        yield Recipe(maker, {name: value for name, value in loaded if value is not _AS_IT_IS})
        yield from (recipe for recipe in recipes if not recipe.trains)

    def _from_sites(self, maker: str, function: Callable[..., Any]) -> Iterator[Recipe]:
        tried: list[Mapping[str, object]] = []
        taken = parameters(function)
        needs_none = all(each.default is not each.empty for each in taken.values())
        for site in self._sites:
            if site.function != maker or len(tried) >= _MOST:
                continue
            if needs_none and site.where is Where.OTHER and any(isinstance(v, Call) for v in site.arguments.values()):
                continue  # a file without training shows one config of many
            config = partial(self._config, function)
            arguments, assumed = _completed_arguments(site, taken, self._sizes, config, takes_any(function))
            if arguments is None or arguments in tried:
                continue
            tried.append(arguments)
            yield Recipe(maker, arguments, site, assumed)

    def _config(self, function: Callable[..., Any], name: str) -> Call | None:
        """Return the call by which the project elsewhere creates its own class that a parameter is annotated with."""
        kind = annotation_class(function, name) if isinstance(function, type) else None
        path = inspect.getsourcefile(kind) if kind is not None and kind.__module__ != "builtins" else None
        if kind is None or path is None or not Path(path).is_relative_to(self._project.root):
            return None
        sites = call_sites([kind.__name__], Path(path), self._project)
        seen = (site.arguments for site in sites if site.arguments and not site.unseen)
        return next((Call(Name(kind.__name__, ""), arguments) for arguments in seen), None)

    def named(self, makers: Collection[str]) -> LoopSetting | None:
        """Return the first of these makers that a command in a document names, or that an option defaults to."""
        files = self._project.files
        for command in typed_commands(files):
            words = {word for each in command.arguments for word in (_as_name(each), *re.split(r"\W+", each))}
            if chosen := next((each for each in makers if each in words), None):
                place = str(command.document or command.script)
                return LoopSetting("maker", chosen, f"a command of {Path(place).name} names it", place, command.line)
        for source in files.sources(makers):
            for option in self._project.options_of(source).values():
                value = _as_name(option.value) if isinstance(option.value, str) else ""
                if value in makers and Path(source.path) != self._path:
                    text = f"an option of {Path(source.path).name} defaults to it"
                    return LoopSetting("maker", value, text, source.path, option.line)
        return None

    def methods_of(self, maker: str) -> Iterator[str]:
        """Yield methods of a class that the project calls in place of the class itself: `Class.from_name`."""
        names = (site.function for site in self._sites)
        yield from dict.fromkeys(name for name in names if name.startswith(f"{maker}."))

    def is_trained(self, maker: str) -> bool:
        """Return True if a script of the project calls it, or a method of it, with any arguments."""
        return any(site.function.partition(".")[0] == maker and site.where <= Where.OTHER for site in self._sites)

    def applied(self, workload: Workload, recipe: Recipe) -> Workload:
        """Return `workload` built by `recipe`, with the batch size and other settings of the same script."""
        assumptions: list[Assumption] = []
        if (site := recipe.site) is not None:
            call = typed_call(recipe.maker, {k: v for k, v in recipe.arguments.items() if k not in recipe.assumed})
            unseen = [name for name in site.unseen if not name.isdigit() and name not in recipe.assumed]
            text = f"built as {Path(site.path).name}:{site.line} does: {call}"
            text += f"; its values for {', '.join(unseen)} are unknown" if unseen else ""
            assumptions.append(Assumption(text, Frame(site.path, site.line, ""), found=True))
        return replace(
            self._with_loop(replace(workload, found=(*workload.found, *assumptions)), recipe),
            arguments={**recipe.arguments, **workload.arguments},
            guessed=recipe.assumed,
            built_by=workload.built_by or _built_by(recipe),
            shown=self._shown(recipe),
            fed=self._fed(recipe),
        )

    def with_loop_of(self, maker: str, workload: Workload, builder: str) -> Workload:
        """Return `workload` with the settings of the loop that trains what `maker` gives, where it has none.

        A script that `builder` is, which has built it, decides alone; another one that calls the maker may only count.
        """
        sites = (each for each in self._sites if each.function == maker and each.where <= Where.OTHER)
        site = next((each for each in sites if builder in ("", str(self._path), each.path)), None)
        return self._with_loop(workload, Recipe(maker, {} if site is None else site.arguments, site))

    def _with_loop(self, workload: Workload, recipe: Recipe) -> Workload:
        assumptions: list[Assumption] = []
        settings: dict[str, Any] = {}
        sizes: dict[str, Any] = {}
        for each in self._loop(recipe).values():
            if each.key == "global_batch":
                continue
            is_own = each.text.partition(":")[0] in recipe.arguments
            if each.key in _SIZES and is_own and recipe.site is not None and each.path == recipe.site.path:
                continue  # the class says itself what its `input_size` is
            if each.key in workload.sizes:  # as the script had it
                continue
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
            named, place = each.key.replace("_", " "), Frame(each.path, each.line, "")
            assumptions.append(Assumption(f"{named} {each.value}: {each.text}", place, found=not each.is_guess))
        guesses = [each for each in assumptions if not each.found]
        return replace(
            workload,
            **settings,
            found=(*guesses, *workload.found, *(each for each in assumptions if each.found)),
            sizes={**sizes, **workload.sizes},
            assumed=workload.assumed - settings.keys(),
        )

    def _shown(self, recipe: Recipe) -> ShownCall | None:
        """Return the arguments that the recipe's code passes to the model, or else those that other code passes."""
        sites = [site for site in self._sites if site.function == recipe.maker]
        alike = {} if recipe.site is None else recipe.site.arguments
        for site in sorted(
            sites, key=lambda site: (site.where is Where.TEST, site is not recipe.site, site.arguments != alike)
        ):
            if (call := shown_call(site, self._project)) is not None:  # the sizes of tests are small on purpose
                is_alike = site.arguments == alike and site.where is not Where.TEST
                is_here = recipe.site is None or recipe.site.path == site.path
                return replace(call, builds_so=is_alike and is_here)
        return None

    def shown_elsewhere(self, maker: str) -> ShownCall | None:
        """Return the arguments that an example passes to what `maker` gives, however it builds that."""
        call = self._shown(Recipe(maker))
        return None if call is None else replace(call, builds_so=False)

    def _fed(self, recipe: Recipe) -> FedCall | None:
        """Return the call of the model in the loop around the recipe's call, or in a script that imports the file."""
        around = recipe.site.source if recipe.site is not None and recipe.trains else None
        sources = chain([] if around is None else [around], training_scripts(self._path, self._project))
        return fed_call(sources, {recipe.maker, *self._names})

    def _loop(self, recipe: Recipe) -> Mapping[str, LoopSetting]:
        """Return the settings of the model's training loop: the one around the call, or the project's only one."""
        site, paths = recipe.site, [value for value in recipe.arguments.values() if isinstance(value, str)]
        says = site is not None and (recipe.trains or site.where in _SHOWN)
        around = training_loop(site, self._project) if site is not None and says else {}
        is_whole = around and recipe.trains and site is not None and site.where is not Where.CONFIG
        sole = {} if is_whole else self._sole_loop
        found = [around, sole] if recipe.trains else [sole, around]
        merged: dict[str, LoopSetting] = {}
        for settings in (*found, *(sizes_in_config(path, self._project) for path in paths)):
            merged = {**settings, **merged}
        batch = batch_of(merged) or self._nearest_batch
        return merged if batch is None else {**merged, "batch": batch}

    @cached_property
    def _nearest_batch(self) -> LoopSetting | None:
        return nearest_batch(self._path, self._names, self._project)

    @cached_property
    def _sole_loop(self) -> Mapping[str, LoopSetting]:
        return sole_loop(self._path, self._project)


def _as_name(text: str) -> str:
    """Return a text as a function may be called after it: `DiT_XL_2` for `DiT-XL/2`."""
    return re.sub(r"\W", "_", text)


def _built_by(recipe: Recipe) -> str:
    """Return the part of a headline that names a config, or a test, which is seldom what is trained."""
    if recipe.site is None or recipe.site.where not in (Where.CONFIG, Where.TEST):
        return ""
    path = os.path.relpath(recipe.site.path)
    of_whole = f", a part of {recipe.site.whole}" if recipe.site.whole else ""
    return f"as {path} builds it{of_whole}" if recipe.site.where is Where.CONFIG else f"as the test {path} builds it"


def _completed_arguments(
    site: CallSite,
    taken: Mapping[str, Any],
    sizes: Mapping[str, int],
    config: Callable[[str], Call | None],
    takes_others: bool,
) -> tuple[dict[str, object] | None, dict[str, object]]:
    """Return the arguments of the call; for unknown ones without a default those of `sizes`, a guess, or a `config`.

    None if that fails. With `takes_others` the function takes any others by name as well.
    """
    names = list(taken)
    if site.where is Where.CONFIG and site.arguments and not takes_others and taken.keys().isdisjoint(site.arguments):
        return None, {}  # something else of that name, such as an environment
    arguments: dict[str, object] = {}
    assumed: dict[str, object] = {}
    for key, value in by_name(site.arguments, taken).items():
        if key.isdigit():
            return None, {}
        if key in taken or takes_others or not site.path.endswith((".yaml", ".yml", ".json")):
            arguments[key] = value
    for name, parameter in taken.items():
        without = _without_weights(name, parameter, arguments.get(name, parameter.default))
        if without is not _AS_IT_IS:
            arguments[name] = without
        if name in arguments or parameter.default is not parameter.empty:
            continue
        called = site.unseen.get(name) or site.unseen.get(str(names.index(name)), "")
        if (known := sizes.get(name, sizes.get(called))) is not None:
            arguments[name] = known
            continue
        value = plain_value(parameter, called)
        if value is None and (value := config(name)) is None:
            return None, {}
        arguments[name] = assumed[name] = value
    return arguments, assumed


def _without_weights(name: str, parameter: inspect.Parameter, value: object) -> object:
    """Return what to give in place of a value that has a model load weights, which change no size."""
    if "pretrained" in name and value is True:
        return False
    is_text = name.endswith("weights") and isinstance(value, str)
    return None if is_text and (parameter.default is None or isinstance(parameter.default, str)) else _AS_IT_IS


def typed_call(maker: str, arguments: Mapping[str, object]) -> str:
    """Return the call as a user would type it, shortened if it is very long."""
    text = f"{maker}({shown_arguments(arguments)})"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]}...)"


def sized(maker: str, function: Callable[..., Any], *, guess: bool = False) -> Recipe | None:
    """Return a call with a number for each required argument; None if one of them needs something else.

    With `guess`, parameters about which nothing is known get a number too.
    """
    values = {
        name: _GUESS if guess and _is_open(parameter) else _likely(function, name, parameter)
        for name, parameter in parameters(function).items()
        if parameter.default is parameter.empty
    }
    return None if not values or None in values.values() else Recipe(maker, values, assumed=values)


def _likely(function: Callable[..., Any], name: str, parameter: inspect.Parameter) -> object:
    value = plain_value(parameter)
    if value is None and (part := _part_named(function, name)) is not None:
        needs_none = all(each.default is not each.empty for each in parameters(part).values())
        recipe = Recipe(part.__name__) if needs_none else sized(part.__name__, part)
        return None if recipe is None else Call(Name(part.__name__, ""), recipe.arguments)
    return _sized_config(function, name) if value is None else value


def _part_named(function: Callable[..., Any], name: str) -> type[nn.Module] | None:
    """Return the class of modules, beside a class, that a parameter of its constructor is named after."""
    beside = vars(sys.modules[function.__module__]) if isinstance(function, type) else {}
    kinds = (each for key, each in beside.items() if key.lower() == name.replace("_", "").lower())
    return next((each for each in kinds if isinstance(each, type) and issubclass(each, nn.Module)), None)


def _sized_config(function: Callable[..., Any], name: str) -> Call | None:
    """Return a call of the dataclass that the parameter is annotated with, with a number for each required field."""
    kind = annotation_class(function, name) if isinstance(function, type) else None
    if kind is None or not dataclasses.is_dataclass(kind):
        return None
    needed = {key: plain_value(each) for key, each in parameters(kind).items() if each.default is each.empty}
    return None if not needed or None in needed.values() else Call(Name(kind.__name__, ""), needed)


def _is_open(parameter: inspect.Parameter) -> bool:
    """Return True if nothing tells what the parameter accepts."""
    return parameter.annotation is parameter.empty and plain_value(parameter) is None
