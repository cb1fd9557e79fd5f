"""From a target to the graph of its step, in this process, for `memlint.trace`."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule

from memlint.base.errors import UsageError
from memlint.base.patching import patched
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.session.handed_over import importable, workload_of
from memlint.session.process_setup import ProcessSetup
from memlint.session.target import find_requested
from memlint.targets.workload import Workload
from memlint.tracing.recorder import trace_program
from memlint.tracing.workload_errors import workload_errors
from memlint.worker.protocol import Request
from memlint.workloads.construction.construct import build_program

Resolve: TypeAlias = "Callable[[str, Mapping[str, Any]], Iterable[Request]]"


def step_module(target: object, options: Mapping[str, Any], resolve: Resolve) -> GraphModule:
    """Trace two steps of the Workload of `target`, and give the second; the rest is as in `memlint.trace`.

    `resolve` gives the requests of what could be typed.
    """
    options = {name: value for name, value in options.items() if value is not None}
    # While a target is imported and run `torch.compile` does nothing.
    with importable(target), patched([(torch, "compile", torch.compile)]):
        is_text = isinstance(target, str | Path)
        workload, root = (
            _typed(str(target), resolve(str(target), options)) if is_text else (workload_of(target, options), Path())
        )
        program = build_program(workload, root)
        with workload_errors():
            allocator = AllocatorSettings.parse(workload.allocator)
            return trace_program(program, workload.device, allocator).step_module()


def _typed(text: str, requests: Iterable[Request]) -> tuple[Workload, Path]:
    """The only Workload of what could be typed after `memlint check`, and the folder of its project."""
    workloads = []
    for request in requests:
        ProcessSetup.of_target(request).arm()
        workloads += [(each, Path(request.root)) for each in find_requested(request).workloads]
    if len(workloads) != 1:
        names = ", ".join(workload.target for workload, _root in workloads)
        raise UsageError(
            f"{text} has {len(workloads) or 'no'} workloads, and memlint.trace takes one",
            f"Name one of {names}." if names else "Name a class or function in it, as in model.py::build.",
        )
    return workloads[0]
