"""Programs for tests of Changes: Workloads without a file."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from memlint.memory.devices import device_named
from memlint.memory.timeline import Timeline, live
from memlint.targets.workload import Workload
from memlint.tracing.recorder import trace_program
from memlint.workloads.construction.program import Construction, Program

A100 = device_named("a100-80gb")


def program(make_model: Any, make_inputs: Any, *, batch: int = 8, **options: Any) -> Program:
    """A Program whose inputs are `make_inputs(batch)`; options are those of Workload and Construction."""
    parts = {name: options.pop(name) for name in ("loss", "optimizer", "step") if name in options}
    parts.setdefault("loss", None)
    parts.setdefault("optimizer", torch.optim.AdamW)

    def construct(workload: Workload) -> Construction:
        return Construction(make_model(), make_inputs(workload.batch), **parts)

    return Program(Workload("test", "test", batch=batch, **options), construct)


def traced(program: Any) -> Any:
    return trace_program(program, A100).trace


def peak(program: Any) -> int:
    """Requested bytes."""
    return max(live(Timeline.of(traced(program))))


def events(program: Any) -> list[tuple[str, int]]:
    """Every opening and closing, with the bytes."""
    trace = traced(program)
    return [("+", trace.buffers[e].nbytes) if e >= 0 else ("-", trace.buffers[~e].nbytes) for e in trace.events]


def steps(program: Any) -> list[tuple[str, int]]:
    """The events of the steps alone."""
    trace = traced(program)
    first = trace.nodes[trace.step_nodes[0]].event
    return [("+", trace.buffers[e].nbytes) if e >= 0 else ("-", trace.buffers[~e].nbytes) for e in trace.events[first:]]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))


def vectors(batch: int) -> dict[str, torch.Tensor]:
    return {"0": torch.zeros(batch, 256)}
