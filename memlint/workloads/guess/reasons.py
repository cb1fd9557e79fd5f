"""Reasons in the model itself why no inputs make it run."""

from __future__ import annotations

import ast
import inspect
import re
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from memlint.base.frames import text_of
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.trial_forward import Trial
from memlint.workloads.receiving_layers import code_of

_OPEN = (torch.Tensor, tuple, list, dict, str)
_KNOWN = ("builtins", "typing", "collections", "torch", "tensordict", "jaxtyping", "numpy")
_LIST = re.compile(r"(?i)\blist\[(torch\.)?Tensor\]")
_CALLED = re.compile(r"\bself\.(\w+)\(")


def own_reason(model: nn.Module, trials: Iterable[Trial]) -> str:
    """Say why the model itself failed in `trials`, as a text that follows its name; empty if no reason is found.

    It is only called after every trial failed: other inputs might have avoided each single reason.
    """
    tried = list(trials)
    found = (
        *map(_left_out, tried),
        *(_object(model), _dictionary(model, tried)),
        *map(_widths, tried),
        _lists(model),
    )
    return next(filter(None, found), "")


def _left_out(trial: Trial) -> str:
    """Report a part that the code calls and that is None: the constructor creates it only with other arguments."""
    if not isinstance(trial.error, TypeError) or "'NoneType' object is not callable" not in text_of(trial.error):
        return ""
    frame, _ = list(traceback.walk_tb(trial.error.__traceback__))[-1]
    owner = frame.f_locals.get("self")
    line = traceback.extract_tb(trial.error.__traceback__)[-1].line or ""
    called = [name for name in _CALLED.findall(line) if getattr(owner, name, 0) is None]
    if not called or not isinstance(owner, nn.Module):
        return ""
    switches = ", ".join(f"{name}={value!r}" for name, value in _switches(owner, called[0]))
    return f"calls its {called[0]}, but is built without it{f', because of {switches}' if switches else ''}"


def _switches(owner: nn.Module, part: str) -> Iterator[tuple[str, Any]]:
    """Yield the constructor's parameters that decide whether `self.part` is created, with their defaults."""
    constructor = inspect.unwrap(type(owner).__init__)
    tree = code_of(constructor)
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test, body=[*body]) if any(_sets(each, part) for each in body):
                pass
            case ast.Assign(value=ast.IfExp(test=test)) if _sets(node, part):
                pass
            case _:
                continue
        names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
        yield from ((k, each.default) for k, each in parameters(constructor).items() if k in names)


def _sets(node: ast.AST, part: str) -> bool:
    """Return True if a statement assigns to `self.part`."""
    return isinstance(node, ast.Assign) and any(ast.unparse(target) == f"self.{part}" for target in node.targets)


def _object(model: nn.Module) -> str:
    """Report a required parameter for an object of the library or the project, which users create by hand."""
    for name, parameter in parameters(model.forward).items():
        kind = parameter.annotation
        if isinstance(kind, str):
            kind = getattr(inspect.unwrap(type(model).forward), "__globals__", {}).get(kind)
        if parameter.default is parameter.empty and isinstance(kind, type) and _is_own(kind):
            return f"takes {name}, a {kind.__name__}, which is not a tensor"
    return ""


def _is_own(kind: type) -> bool:
    """Return True for a class of the library or the project that neither is nor plainly holds tensors."""
    return not (kind is inspect.Parameter.empty or issubclass(kind, _OPEN) or kind.__module__.startswith(_KNOWN))


def _dictionary(model: nn.Module, trials: Iterable[Trial]) -> str:
    """Report an optional dictionary of which the code reads an entry that nothing describes."""
    annotated = {name: str(each.annotation).lower() for name, each in parameters(model.forward).items()}
    owner = next((name for name, kind in annotated.items() if "dict" in kind and "kwargs" not in name), None)
    for trial in trials:
        if owner is not None and isinstance(trial.error, KeyError) and trial.error.args:
            return f"reads {trial.error.args[0]!r} of its {owner}, a dictionary whose entries nothing describes"
    return ""


def _lists(model: nn.Module) -> str:
    """Report required lists of tensors, whose meaning differs by model: one per item, per frame or per part."""
    needed = (each for each in parameters(model.forward).values() if each.default is each.empty)
    names = [each.name for each in needed if _LIST.search(str(each.annotation))]
    return f"takes lists of tensors of unknown number and size: {', '.join(names)}" if names else ""


def _widths(trial: Trial) -> str:
    """Report a layer that gets another number of features than it accepts: sizes of the model contradict each other."""
    layer, given = trial.layer, trial.received[-1] if trial.received else 0
    if not isinstance(layer, nn.Linear) or given == layer.in_features or trial.fed is None:
        return ""
    return (
        f"is built with sizes that contradict each other: {trial.fed} gives {given} features "
        f"to a layer that takes {layer.in_features}"
    )
