"""Declarations of Workloads in a user's Python file.

The shortest declaration is a function named `memlint_workload` that returns a model, alone or with its inputs:

    def memlint_workload(batch):
        return GPT(Config()), torch.randint(0, 50257, (batch, 1024))

The decorator names the Workload, sets whatever differs from the defaults, and works on a function or a model class:

    @memlint.workload(batch=8, dtype="bf16-amp")
    def gpt_small(batch):
        return GPT(Config()), {"idx": ..., "targets": ...}

A function returns a model, `(model, inputs)`, `(model, inputs, loss)` or a `Declaration`. Inputs are a tensor, a
sequence (positional inputs) or a mapping (named inputs); the loss is called as `loss(output, inputs)`. The function's
parameter `batch` receives the batch size. Any other parameter with a whole number as default is a dimension of that
size:

    def memlint_workload(batch, seq=1024):
        return GPT(Config()), torch.randint(0, 50257, (batch, seq))

A training loop that differs from forward, loss, backward, optimizer step passes its own body as `step`:

    def memlint_workload(batch):
        def step(model, inputs, optimizer):
            for tokens in inputs["tokens"].chunk(4):
                model(tokens).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        return memlint.Declaration(GPT(Config()), {"tokens": torch.zeros(batch, 512, dtype=torch.int64)}, step=step)
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

from memlint.base.errors import UsageError
from memlint.targets.workload import Workload
from memlint.targets.workload_tables import KEYS, workload_from_table

Target = TypeVar("Target", bound=Callable[..., Any])

FUNCTION = "memlint_workload"
"""A callable of this name declares a Workload without a decorator."""

_MARK = "__memlint_workload__"
_DECORATOR_KEYS = tuple(key for key in KEYS if key != "target")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A model with everything that a step of it needs, for functions that declare more than model, inputs and loss.

    >>> def accumulating(batch):
    ...     def step(model, inputs, optimizer):
    ...         for x in inputs["x"].chunk(4):
    ...             model(x).mean().backward()
    ...         optimizer.step()
    ...         optimizer.zero_grad()
    ...
    ...     return memlint.Declaration(torch.nn.Linear(64, 8), {"x": torch.zeros(batch, 64)}, step=step)
    >>> step = memlint.trace(accumulating, batch=32)
    >>> len(step.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default))
    4
    """

    model: Any
    inputs: Any = None
    """A tensor, a sequence, a mapping, or None to infer them."""
    loss: Callable[[Any, Mapping[str, Any]], Any] | None = None
    """Called as `loss(output, inputs)`; None: the model's own loss."""
    optimizer: Callable[[Any], Any] | None = None
    """Called with the parameters; None: the Workload's optimizer."""
    step: Callable[[Any, Mapping[str, Any], Any], object] | None = None
    """The body of the user's training loop, called as `step(model, inputs, optimizer)` in place of the ordinary step.

    The model and the inputs are on the device in the Workload's dtype; positional inputs are named `0`, `1`, and
    `optimizer` is None if the Workload has none. The body itself takes care of autocast, loss scaling, `no_grad` and
    zeroing gradients.
    """


@overload
def workload(target: Target, /) -> Target: ...
@overload
def workload(**settings: Any) -> Callable[[Target], Target]: ...
def workload(target: Target | None = None, /, **settings: Any) -> Target | Callable[[Target], Target]:
    """Declare the decorated function or model class as a Workload.

    The settings are the keys of a `[[tool.memlint.workload]]` table except `target`: name, mode, batch, dimensions,
    dtype, optimizer, gpu, torch, inputs, loss, arguments, allocator, strategy, world_size, rank. The decorated object
    is returned unchanged.

    >>> @memlint.workload(batch=16, dtype="bf16-amp", optimizer="sgd")
    ... def classifier(batch):
    ...     return torch.nn.Linear(64, 8), torch.zeros(batch, 64)
    >>> memlint.trace(classifier).graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)[0].meta[
    ...     "memlint"
    ... ].outputs[0]
    Geometry(buffer=..., shape=(16, 8), stride=(8, 1), dtype='bfloat16')
    """
    unknown = sorted(set(settings) - set(_DECORATOR_KEYS))
    if unknown:
        raise UsageError(
            f"memlint.workload has no setting {', '.join(unknown)}", f"It takes {', '.join(_DECORATOR_KEYS)}."
        )

    def mark(function: Target) -> Target:
        setattr(function, _MARK, dict(settings))
        return function

    return mark if target is None else mark(target)


def declared_workloads(namespace: Mapping[str, object], module: str, path: Path) -> tuple[Workload, ...]:
    """Return the Workloads declared in an imported file, in source order.

    `namespace` is the namespace of the module, `module` its name (declarations that it imports from elsewhere are not
    its own), `path` its file. Raises UsageError for settings that make no sense.
    """
    workloads = []
    for name, value in namespace.items():
        # A subclass of a decorated class inherits the mark: only a mark on the object itself counts.
        settings = getattr(value, "__dict__", {}).get(_MARK)
        is_own = _is_own(value, name, module)
        if settings is None and name == FUNCTION and callable(value):
            settings, is_own = {}, is_own or getattr(value, "__name__", name) != name  # named by this file
        if settings is None or not is_own:
            continue
        settings = {key: _reference(key, setting) for key, setting in settings.items()}
        table = {"name": path.stem if name == FUNCTION else name, **settings, "target": f"{path}::{name}"}
        workloads.append(workload_from_table(table, path.parent, f"{path}::{name}", origin="declared"))
    return tuple(workloads)


def _is_own(value: object, name: str, module: str) -> bool:
    """Return True if the module itself defines `value` under that name; for a `functools.partial` this is unknown."""
    if isinstance(value, partial):
        return True
    return getattr(value, "__module__", module) == module and getattr(value, "__name__", name) == name


def _reference(key: str, setting: object) -> object:
    """Return the import path of a function given as loss or optimizer."""
    if key not in {"loss", "optimizer"} or not callable(setting):
        return setting
    name = getattr(setting, "__qualname__", "")
    file = getattr(sys.modules.get(getattr(setting, "__module__", "")), "__file__", None)
    if not name or "<" in name or file is None:
        raise UsageError(
            f"memlint.workload: {key} is {setting!r}", "Give a function or class defined at a module's top level."
        )
    return f"{file}::{name}"
