"""How a user declares a Workload in a Python file.

The shortest declaration is a function named `memlint_workload` that gives a model, alone or with its inputs:

    def memlint_workload(batch):
        return GPT(Config()), torch.randint(0, 50257, (batch, 1024))

The decorator names it, sets what differs from the defaults, and can stand on a function or a model class:

    @memlint.workload(batch=8, dtype="bf16-amp")
    def gpt_small(batch):
        return GPT(Config()), {"idx": ..., "targets": ...}

A function gives a model, `(model, inputs)`, `(model, inputs, loss)` or a `Declaration`. Inputs are a tensor, a
sequence of positional or a mapping of named ones; the loss is called as `loss(output, inputs)`. Among its
parameters, `batch` receives the batch size. Any other that has a whole number as default is a dimension of that size:

    def memlint_workload(batch, seq=1024):
        return GPT(Config()), torch.randint(0, 50257, (batch, seq))

A loop that is not forward, loss, backward, optimizer step gives its own body as `step`:

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
"""A callable of this name in a file declares a Workload without a decorator."""

_MARK = "__memlint_workload__"
_DECORATOR_KEYS = tuple(key for key in KEYS if key != "target")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A model with what is needed to take a step of it, for functions that say more than model, inputs and loss.

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
    """Called as `loss(output, inputs)`; None: the model's own."""
    optimizer: Callable[[Any], Any] | None = None
    """Called with the parameters; None: the Workload's."""
    step: Callable[[Any, Mapping[str, Any], Any], object] | None = None
    """The body of the user's own loop, called as `step(model, inputs, optimizer)` in place of the ordinary step.

    The model and the inputs are on the device in the Workload's dtype; positional inputs are named `0`, `1`, and the
    optimizer is None where there is none. Autocast, loss scaling, `no_grad` and zeroing gradients are its own business.
    """


@overload
def workload(target: Target, /) -> Target: ...
@overload
def workload(**settings: Any) -> Callable[[Target], Target]: ...
def workload(target: Target | None = None, /, **settings: Any) -> Target | Callable[[Target], Target]:
    """Declare the decorated function or model class as a Workload.

    Settings are the keys of a `[[tool.memlint.workload]]` table but `target`: name, mode, batch, dimensions, dtype,
    optimizer, gpu, torch, inputs, loss, arguments, allocator, strategy, world_size, rank. The function itself is
    returned unchanged.

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
    """Workloads declared in an imported file, in the order they stand there.

    `namespace` is the module's, `module` its name (what it imports from elsewhere is not its own), `path` its file.
    Raises UsageError for settings that make no sense.
    """
    workloads = []
    for name, value in namespace.items():
        # A subclass of a decorated class inherits the mark: only the object's own counts.
        settings = getattr(value, "__dict__", {}).get(_MARK)
        is_own = _is_own(value, name, module)
        if settings is None and name == FUNCTION and callable(value):
            settings, is_own = {}, is_own or getattr(value, "__name__", name) != name  # the file gives it this name
        if settings is None or not is_own:
            continue
        settings = {key: _reference(key, setting) for key, setting in settings.items()}
        table = {"name": path.stem if name == FUNCTION else name, **settings, "target": f"{path}::{name}"}
        workloads.append(workload_from_table(table, path.parent, f"{path}::{name}", origin="declared"))
    return tuple(workloads)


def _is_own(value: object, name: str, module: str) -> bool:
    """Whether the module itself defines `value` under that name; a `functools.partial` cannot say."""
    if isinstance(value, partial):
        return True
    return getattr(value, "__module__", module) == module and getattr(value, "__name__", name) == name


def _reference(key: str, setting: object) -> object:
    """Name the place a function given as loss or optimizer can be imported from."""
    if key not in {"loss", "optimizer"} or not callable(setting):
        return setting
    name = getattr(setting, "__qualname__", "")
    file = getattr(sys.modules.get(getattr(setting, "__module__", "")), "__file__", None)
    if not name or "<" in name or file is None:
        raise UsageError(
            f"memlint.workload: {key} is {setting!r}", "Give a function or class defined at a module's top level."
        )
    return f"{file}::{name}"
