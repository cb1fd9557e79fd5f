"""Creation of the objects that calls in a project's text describe."""

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from memlint.base.errors import MemlintError, WorkloadError
from memlint.source.scripts import training_at_import
from memlint.source.text import source_at
from memlint.source.values import Call, Configured, Name, Settings, Unseen
from memlint.workloads.constructor_values import by_name, parameters, plain_value
from memlint.workloads.hydra_configs import instantiated
from memlint.workloads.loading import load_file

_KNOWN = (
    "torch", "torchvision", "timm", "einops", "numpy", "argparse", "collections", "copy", "functools", "itertools",
    "math", "multiprocessing", "operator", "os", "pathlib",
)  # fmt: skip
"""Packages that arguments are taken from."""
_NAMESPACE = "Namespace"
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
"""Classes that are something else without the layers that they are given."""


class _Settings(argparse.Namespace):
    """Settings as attributes, and as the items of a mapping."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"no setting {name!r} was found in the project's files")

    def __getitem__(self, name: str) -> object:
        return vars(self)[name]

    def __setitem__(self, name: str, value: object) -> None:
        vars(self)[name] = value

    def keys(self) -> Iterator[str]:
        return iter(vars(self))

    def get(self, name: str, default: object = None) -> object:
        return vars(self).get(name, default)


def object_of(value: object, namespace: Mapping[str, object], guessed: dict[str, object]) -> object:
    """Return the object that `value` describes in the model's module, whose globals are `namespace`.

    Guessed sizes in a call are added to `guessed`. Raises WorkloadError for an unknown name, and passes on
    exceptions of calls.
    """
    match value:
        case Name():
            return _named(value, namespace)
        case Call():
            arguments = {name: object_of(each, namespace, guessed) for name, each in value.arguments.items()}
            if value.function.text == _NAMESPACE:
                return _Settings(**arguments)
            function = _named(value.function, namespace)
            if value.unseen and function in _CONTAINERS:
                raise WorkloadError(f"the layers of a {value.function.text.rpartition('.')[2]} are not known")
            result = _called(function, arguments, guessed)
            _set(result, value.attributes, namespace, guessed)
            return result
        case Settings():
            return _settings({name: object_of(each, namespace, guessed) for name, each in value.values.items()})
        case Configured():
            return instantiated(value)
        case Unseen():
            return _guessed_size(value.name, guessed)
        case list() | tuple():
            return type(value)(object_of(each, namespace, guessed) for each in value)
        case dict():
            return {name: object_of(each, namespace, guessed) for name, each in value.items()}
    return value


def _guessed_size(name: str, guessed: dict[str, object]) -> object:
    size = plain_value(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD))
    if size is not None:
        guessed[name] = size
    return size


def _set(
    result: object, attributes: Mapping[str, object], namespace: Mapping[str, object], guessed: dict[str, object]
) -> None:
    """Set attributes of the result; an unknown one only if the object holds None there."""
    for name, each in attributes.items():
        if not isinstance(each, Unseen) or getattr(result, name, each) is None:
            setattr(result, name, object_of(each, namespace, guessed))


def _called(function: Any, arguments: Mapping[str, object], guessed: dict[str, object]) -> object:
    """Return the result of the call; a required argument that is unknown becomes a guessed size."""
    taken = parameters(function)
    named = by_name(arguments, taken)
    for name, parameter in taken.items():
        if name not in named and parameter.default is parameter.empty and (size := plain_value(parameter)) is not None:
            named[name] = guessed[name] = size
    if any(name.isdigit() for name in named) or any(each.kind is each.POSITIONAL_ONLY for each in taken.values()):
        positional = [value for name, value in arguments.items() if name.isdigit()]
        return function(*positional, **{name: each for name, each in arguments.items() if not name.isdigit()})
    return function(**named)


def _settings(values: Mapping[str, object]) -> _Settings:
    nested = {str(k): _settings(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    return _Settings(**nested)


def _named(name: Name, namespace: Mapping[str, object]) -> object:
    text = name.text.lstrip(".")
    parts = text.split(".")
    for dotted in (".".join(parts[start:]) for start in range(len(parts))):
        found, value = _member(namespace, dotted)
        if found:
            return value
    module, _, last = text.rpartition(".")
    if module.partition(".")[0] in _KNOWN:
        place: object = importlib.import_module(module.partition(".")[0])
        for part in text.split(".")[1:]:
            place = getattr(place, part) if hasattr(place, part) else importlib.import_module(module)
        return place
    failure: MemlintError | None = None
    for path in _places(name, module) if module else filter(Path.is_file, map(Path, filter(None, [name.path]))):
        if _is_harmless(path):
            try:
                loaded = load_file(path)
            except MemlintError as error:
                failure = error
                continue
            if hasattr(loaded, last):
                return getattr(loaded, last)
    if failure is not None:
        raise WorkloadError(f"{text} is needed, and {failure.message}", failure.hint) from failure
    raise WorkloadError(f"{text} is neither in the file nor among the imports of {Path(name.path).name}")


def _member(namespace: Mapping[str, object], dotted: str) -> tuple[bool, object]:
    first, *rest = dotted.split(".")
    if first not in namespace:
        return False, None
    value = namespace[first]
    for part in rest:
        if not hasattr(value, part):
            return False, None
        value = getattr(value, part)
    return True, value


def _places(name: Name, module: str) -> Iterator[Path]:
    """Yield files of the project that may define what `name` imports."""
    if not name.path or not module:
        return
    level = len(name.text) - len(name.text.lstrip("."))
    folders = Path(name.path).parents
    for folder in (folders[level - 1],) if level else folders:
        stem = folder.joinpath(*module.split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                yield path
        if (folder / ".git").exists() or str(folder) in sys.path[:1]:
            return


def _is_harmless(path: Path) -> bool:
    """Return True if importing the file starts no training."""
    source = source_at(path)
    return source is not None and training_at_import(source) is None
