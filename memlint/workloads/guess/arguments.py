"""Arguments for a constructor or function that has required parameters."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn

from memlint.base.errors import WorkloadError
from memlint.targets.workload import BATCH, Workload
from memlint.targets.workload_tables import toml
from memlint.workloads.constructor_values import by_name, parameters, plain_value
from memlint.workloads.huggingface.configs import is_config
from memlint.workloads.model_sizes import CONFIG_NAMES, annotation_class
from memlint.workloads.objects_from_text import object_of
from memlint.workloads.user_errors import describe, reported

_CONFIG_ENDINGS = ("config", "cfg", "conf", "args", "arguments", "hparams", "params", "hyperparameters", "settings")
_MOST = 12
"""Maximum number of combinations of configs to try."""


class Arguments(NamedTuple):
    """Keyword arguments, the assumptions made for them, and sizes within them that nothing states."""

    values: dict[str, object]
    assumptions: tuple[str, ...]
    guessed: Mapping[str, object]


class MissingArgumentsError(WorkloadError):
    """No value was found for some arguments."""

    def __init__(self, message: str, hint: str, names: tuple[str, ...]) -> None:
        super().__init__(message, hint)
        self.names = names


class _Choice(NamedTuple):
    """A value for a parameter, created only when tried."""

    make: Callable[[], object]
    text: str


def arguments_for(
    function: Callable[..., Any], workload: Workload, namespace: Mapping[str, object]
) -> Iterator[Arguments]:
    """Yield ways to call `function`, the likeliest first.

    Parameters get the Workload's arguments and the sizes of its dimensions, a function's `batch` the batch size;
    configs come from the file's `namespace`. Raises WorkloadError naming the parameters for which nothing is found.
    """
    guessed: dict[str, object] = {}
    with reported(f"{workload.name}: its arguments cannot be made"):
        own = {
            name: object_of(value, namespace, guessed)
            for name, value in by_name(workload.arguments, parameters(function)).items()
        }
    fixed = {**own, **_sizes(function, workload)}
    open_choices = {}
    for name, parameter in parameters(function).items():
        if name not in fixed and parameter.default is parameter.empty:
            open_choices[name] = list(_configs(function, name, namespace))
    called = getattr(function, "__name__", "it")
    if missing := [name for name, choices in open_choices.items() if not choices]:
        taken = parameters(function)
        likely = ", ".join(f"{name} = {_likely(taken[name])}" for name in missing)
        raise MissingArgumentsError(
            f"{called} needs {', '.join(missing)}",
            f"Write a function memlint_workload() in the file that returns {called}(...), or give "
            f"arguments = {{ {likely} }} in [[tool.memlint.workload]]: memlint check with --init writes it out.",
            tuple(missing),
        )
    for combination in itertools.islice(itertools.product(*open_choices.values()), _MOST):
        try:
            chosen = {name: choice.make() for name, choice in zip(open_choices, combination, strict=True)}
        except Exception as error:
            if len(open_choices) == 1 and len(next(iter(open_choices.values()))) == 1:
                raise WorkloadError(f"{combination[0].text} cannot be made: {describe(error)}") from error
            continue
        texts = tuple(f"{called} is built with {choice.text}" for choice in combination)
        yield Arguments(fixed | chosen, texts, guessed)


def _likely(parameter: inspect.Parameter) -> str:
    value = plain_value(parameter)
    return "..." if value is None else toml(value)


def _sizes(function: Callable[..., Any], workload: Workload) -> dict[str, int]:
    """Return the batch size and the sizes of dimensions to pass to `function`."""
    batch = {} if isinstance(function, type) else {BATCH: workload.batch}
    sizes = {name: size for name, size in {**workload.dimensions, **batch}.items() if name not in workload.arguments}
    # A default is not passed again: a wrapper may show parameters of the wrapped function and not accept them.
    return {
        name: sizes[name]
        for name, parameter in parameters(function).items()
        if name in sizes and (name == BATCH or type(parameter.default) is not int or parameter.default != sizes[name])
    }


def _configs(function: Callable[..., Any], name: str, namespace: Mapping[str, object]) -> Iterator[_Choice]:
    """Yield values for a parameter that takes a config: the defaults of its annotation, then configs in the file."""
    annotated = annotation_class(function, name) if isinstance(function, type) else None
    if name == "device" or annotated is torch.device:
        yield _Choice(lambda: torch.device("cpu"), f"{name} cpu, from where it is moved")
        return
    if annotated is not None and _is_config_class(annotated):
        yield _Choice(annotated, f"{annotated.__name__}() and its defaults")
        return
    if name.lower() not in CONFIG_NAMES and not name.lower().endswith(_CONFIG_ENDINGS):
        return
    own = getattr(function, "__name__", "").lower()
    classes = [
        (key, value)
        for key, value in namespace.items()
        if isinstance(value, type) and key.lower().endswith(_CONFIG_ENDINGS) and _is_config_class(value)
    ]
    for key, kind in sorted(classes, key=lambda item: not item[0].lower().startswith(own)):
        yield _Choice(kind, f"{key}() and its defaults")
    for key, value in namespace.items():
        if _named_like_config(key, name) and _holds_values(value):
            yield _Choice(lambda value=value: value, key)  # type: ignore[misc]


def _is_config_class(kind: type) -> bool:
    """Return True if `kind` may hold settings and needs no arguments."""
    if kind.__module__ in {"builtins", "typing"} or kind.__module__.startswith("torch.") or issubclass(kind, nn.Module):
        return False
    if is_config(kind):
        return True
    return all(parameter.default is not parameter.empty for parameter in parameters(kind).values())


def _named_like_config(key: str, parameter: str) -> bool:
    return key.lower() == parameter.lower() or any(part.startswith(_CONFIG_ENDINGS) for part in key.lower().split("_"))


def _holds_values(value: object) -> bool:
    plain = hasattr(value, "__dict__") and not (isinstance(value, nn.Module | ModuleType) or callable(value))
    return plain or isinstance(value, Mapping | SimpleNamespace)
