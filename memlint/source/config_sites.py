"""Classes that YAML and JSON files name with their arguments.

`_target_` as hydra has it, `class_path` and `init_args` as LightningCLI, `type` or `name` with the name of a class, or
the class's own name as a key, as registries have it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from memlint.source.project_files import ProjectFiles
from memlint.source.values import Call, Configured, Name

_CLASS_KEYS = ("_target_", "target", "type", "name", "class_path", "class_name", "arch")
_ARGUMENT_KEYS = ("params", "init_args", "args", "kwargs")
_HYDRA = "_target_"


class ConfigCall(NamedTuple):
    """A class that a config names, and its arguments; positional ones have digits as names."""

    name: str
    arguments: Mapping[str, object]
    path: Path
    line: int
    whole: str
    """The class of the project that the config names around several of the project's, this one among them."""


def config_calls(names: Collection[str], files: ProjectFiles) -> Iterator[ConfigCall]:
    """Yield the calls of `names` in the project's configs, with objects that these describe among the arguments.

    Code that reads its own config may make such objects itself: the same call follows without objects.
    """
    for path, values in files.configs_naming(names):
        reader = _Reader(values, path, files)
        for each, around in _mappings(values):
            for name, plain, is_hydras in _named(each, names):
                whole = _whole(around, files)
                line = files.place_of(path, name)[1]
                given = {str(key): value for key, value in plain.items() if not str(key).startswith("_")}
                made = reader.of_hydra(plain, given) if is_hydras else {k: reader.made(v) for k, v in given.items()}
                yield ConfigCall(name, made, path, line, whole)
                if not is_hydras and made != given:
                    yield ConfigCall(name, given, path, line, whole)


def _whole(around: Sequence[Mapping[str, object]], files: ProjectFiles) -> str:
    """Return the outermost class of the project among the mappings around one, if it has several of its classes."""
    for each in around:
        name = _class_of(each)
        inside = {_class_of(inner) for inner, _ in _mappings(each)} - {name, ""}
        if name and files.defining(name) and sum(files.defining(part) is not None for part in inside) > 1:
            return name
    return ""


def _class_of(mapping: Mapping[str, object]) -> str:
    """Return the class that a mapping names with its module; empty without one."""
    named = (str(value) for key in _CLASS_KEYS if isinstance(value := mapping.get(key), str) and "." in value)
    return next(named, "").rpartition(".")[2]


def _named(each: Mapping[str, object], names: Collection[str]) -> Iterator[tuple[str, Mapping[str, object], bool]]:
    """Yield the names that a mapping has under a key for classes, or as a key, with the arguments."""
    key = next((k for k in _CLASS_KEYS if isinstance(each.get(k), str)), None)
    name = str(each[key]).rpartition(".")[2] if key is not None else ""
    if name in names:
        inner = (value for k in _ARGUMENT_KEYS if isinstance(value := each.get(k), Mapping))
        yield name, {k: v for k, v in next(inner, each).items() if k != key}, key == _HYDRA
    yield from ((key, value, False) for key, value in each.items() if key in names and isinstance(value, Mapping))


class _Reader:
    """Reads the values in one config."""

    def __init__(self, values: Mapping[str, object], path: Path, files: ProjectFiles) -> None:
        self._values, self._path, self._files = values, path, files

    def of_hydra(self, plain: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
        """Return arguments as hydra passes them."""
        recursive, positional = plain.get("_recursive_") is not False, plain.get("_args_")
        arguments = dict(enumerate(positional)) if isinstance(positional, list) else {}
        return {
            str(key): Configured(value, str(self._path), recursive) if is_for_hydra(value) else value
            for key, value in (*arguments.items(), *given.items())
        }

    def made(self, value: object) -> object:
        """Return the call that a mapping, or the name of an entry of the config, stands for; else the value."""
        if isinstance(value, list):
            return [self.made(each) for each in value]
        if isinstance(value, str) and isinstance(settings := self._values.get(value), Mapping):
            return self._call(value, settings) or value
        if not isinstance(value, Mapping):
            return value
        if isinstance(kind := value.get("class_path"), str):
            inner = value.get("init_args")
            return Call(Name(kind, str(self._path)), self._arguments(inner if isinstance(inner, Mapping) else {}))
        if isinstance(kind := value.get("type"), str):
            defaults = self._values.get(kind)
            settings = {**(defaults if isinstance(defaults, Mapping) else {}), **value}
            del settings["type"]
            return self._call(kind, settings) or value
        return value

    def _call(self, name: str, settings: Mapping[str, object]) -> Call | None:
        """Return the call of a class of the project; None if it has none of this name."""
        file = self._files.defining(name)
        return None if file is None else Call(Name(name, str(file)), self._arguments(settings))

    def _arguments(self, settings: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of an object; weights are not downloaded, as they change no size."""
        given = {name: False if "pretrained" in name and value is True else value for name, value in settings.items()}
        return {name: self.made(value) for name, value in given.items()}


def is_for_hydra(value: object) -> bool:
    """Return True if hydra makes something else of a value: an object, an interpolation, or attributes of a mapping."""
    if isinstance(value, list):
        return any(map(is_for_hydra, value))
    return isinstance(value, Mapping) or (isinstance(value, str) and "${" in value)


def _mappings(
    value: object, around: tuple[Mapping[str, object], ...] = ()
) -> Iterator[tuple[Mapping[str, object], tuple[Mapping[str, object], ...]]]:
    """Yield the mappings within a config, outer before inner, each with those around it."""
    if isinstance(value, Mapping):
        yield value, around
        around = (*around, value)
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _mappings(each, around)
