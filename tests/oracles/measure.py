"""What real steps on the CPU allocate inside single kernels, and what PyTorch's MemTracker says of the same steps.

Both take a Program: anything with `setup()` and `step()`. All sizes are bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from memlint.session.real.cpu import CpuMeasurement, MemoryEvent, measure_cpu_step
from memlint.tracing.recorder import Program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

__all__ = [
    "CpuMeasurement",
    "MemoryEvent",
    "kernel_temporaries",
    "measure_cpu_step",
    "measure_memtracker",
    "measure_memtracker_without_computing",
]


class TrainingProgram(Program, Protocol):
    model: nn.Module
    optimizer: torch.optim.Optimizer
    inputs: Mapping[str, Tensor]


class Temporary(NamedTuple):
    """Memory a kernel took for itself: taken and given back within one operator that is a kernel of its own."""

    nbytes: int
    operators: tuple[str, ...]
    """From that operator inwards."""


def kernel_temporaries(events: Sequence[MemoryEvent]) -> list[Temporary]:
    """Those of `events` that no tracer of operators' outputs can see, in the order they were taken.

    An operator counts as a kernel of its own unless PyTorch composes it of other differentiable operators.
    """
    taken: dict[int, tuple[int, MemoryEvent]] = {}
    found: list[tuple[int, Temporary]] = []
    for position, event in enumerate(events):
        if event.nbytes > 0:
            taken[event.address] = (position, event)
            continue
        start, birth = taken.pop(event.address, (position, None))
        kernel = None if birth is None else _kernel(birth.operators)
        if birth is None or kernel is None:
            continue
        inside = all(e.operators[: kernel + 1] == birth.operators[: kernel + 1] for e in events[start : position + 1])
        if inside:
            found.append((start, Temporary(birth.nbytes, birth.operators[kernel:])))
    return [temporary for _, temporary in sorted(found, key=lambda pair: pair[0])]


def _kernel(operators: tuple[str, ...]) -> int | None:
    """Position of the outermost operator that runs a kernel of its own."""
    for position, name in enumerate(operators):
        if name.startswith("aten::") and not torch._C._dispatch_has_kernel_for_dispatch_key(
            name if "." in name else _any_overload(name), "CompositeImplicitAutograd"
        ):
            return position
    return None


def _any_overload(name: str) -> str:
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
    overload = packet.overloads()[0]
    return name if overload == "default" else f"{name}.{overload}"


def measure_memtracker(program: TrainingProgram, num_steps: int = 2) -> int:
    """Peak that `torch.distributed._tools.mem_tracker.MemTracker` gives for the same steps on the CPU, run for real.

    `setup()` must leave what lives across steps in `program.model`, `program.optimizer` and the mapping
    `program.inputs`, because MemTracker has to be told of it.
    """
    program.setup()
    tracker = MemTracker()
    tracker.track_external(program.model, program.optimizer, *program.inputs.values())
    with tracker:
        for _ in range(num_steps):
            tracker.reset_mod_stats()
            program.step()
    return int(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


def measure_memtracker_without_computing(program: TrainingProgram, num_steps: int = 2) -> int:
    """The same under FakeTensorMode, as MemTracker is meant to be used.

    Two things that mode cannot do are left out: `trunc_normal_` reads a value, and `.to` swaps parameters. Neither
    allocates anything that is alive during a step.
    """
    with (
        FakeTensorMode(),
        patch("torch.nn.init.trunc_normal_", lambda tensor, *_, **__: tensor),
        patch("torch.nn.Module.to", lambda module, *_: module),
    ):
        return measure_memtracker(program, num_steps)
