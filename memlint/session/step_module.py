"""From a target to the graph of its step, in this process, for `memlint.trace`."""

import contextlib
import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule

from memlint.base.errors import UsageError
from memlint.base.patching import patched
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.session.target import find_requested
from memlint.targets.declare import declared_workloads
from memlint.targets.workload import Workload
from memlint.tracing.recorder import trace_program
from memlint.tracing.workload_errors import workload_errors
from memlint.worker.protocol import Request
from memlint.workloads.construction.construct import build_program

Resolve: TypeAlias = "Callable[[str, Mapping[str, Any]], Iterable[Request]]"

_MODULE, _NAME = "memlint_traced", "target"
"""The module and the name of an object that was handed over, as if it were in an installed module."""


def step_module(target: object, options: Mapping[str, Any], resolve: Resolve) -> GraphModule:
    """Trace two steps of the Workload of `target`, and give the second; the rest is as in `memlint.trace`.

    `resolve` gives the requests of what could be typed.
    """
    options = {name: value for name, value in options.items() if value is not None}
    # While a target is imported and run `torch.compile` does nothing.
    with _importable(target), patched([(torch, "compile", torch.compile)]):
        is_text = isinstance(target, str | Path)
        workload, root = (
            _typed(str(target), resolve(str(target), options)) if is_text else (_handed_over(target, options), Path())
        )
        program = build_program(workload, root)
        with workload_errors():
            allocator = AllocatorSettings.parse(workload.allocator)
            return trace_program(program, workload.device, allocator).step_module()


def _typed(text: str, requests: Iterable[Request]) -> tuple[Workload, Path]:
    """The only Workload of what could be typed after `memlint check`, and the folder of its project."""
    workloads = [(each, Path(request.root)) for request in requests for each in find_requested(request).workloads]
    if len(workloads) != 1:
        names = ", ".join(workload.target for workload, _root in workloads)
        raise UsageError(
            f"{text} has {len(workloads) or 'no'} workloads, and memlint.trace takes one",
            f"Name one of {names}." if names else "Name a class or function in it, as in model.py::build.",
        )
    return workloads[0]


def _handed_over(target: object, options: Mapping[str, Any]) -> Workload:
    """The Workload of an object, with the settings of its decorator."""
    module = getattr(target, "__module__", "")
    name = getattr(target, "__name__", type(target).__name__)
    declared = declared_workloads({name: target}, module, Path(_MODULE))
    workload = declared[0] if declared else Workload(name, name)
    changed = {**options, "dimensions": {**workload.dimensions, **options.get("dimensions", {})}}
    return replace(workload, target=f"{_MODULE}::{_NAME}", path="", qualname=_NAME, **changed)


@contextlib.contextmanager
def _importable(target: object) -> Iterator[None]:
    """Let `target` be found in a module of its own. Each Program builds anew: of what is built there is a copy."""
    module = ModuleType(_MODULE)
    vars(module)[_NAME] = target if callable(target) else lambda: copy.deepcopy(target)
    sys.modules[_MODULE] = module
    try:
        yield
    finally:
        del sys.modules[_MODULE]
