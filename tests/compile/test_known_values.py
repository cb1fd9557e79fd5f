"""Values that a program reads of what compiled code made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from memlint.base.patching import patched
from memlint.compile import known_values
from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program
from tests.compile.programs import Compiled

if TYPE_CHECKING:
    from memlint.memory.records import Trace

GPU = device_named("a100-80gb")


def counts(x: Tensor, ids: Tensor, grid: Tensor) -> tuple[Tensor, ...]:
    """Return a sum, and what a model computes of its integers: a mask, its count, bounds of windows, positions."""
    mask = ids == 7
    number = mask.sum()
    bounds = torch.nn.functional.pad((grid[:, 1] * grid[:, 2]).repeat_interleave(2).cumsum(0), (1, 0))
    healthy = (x @ x).amax().isnan().sum() == 0
    return x.square().sum(), mask, number, bounds, healthy, torch.arange(4, device=x.device) + number


class Counting(Compiled):
    """A program that computes integers beside its loss, and reads none."""

    def setup(self) -> None:
        super().setup()
        self.called = torch.compile(counts)
        self.inputs |= {"ids": torch.tensor([7, 3], device=self.device), "grid": torch.ones(1, 3, device=self.device)}

    def step(self) -> None:
        hidden = self.model(self.inputs["x"])
        loss, *self.others = self.called(hidden @ hidden.T, self.inputs["ids"], self.inputs["grid"].long())
        loss.backward()


def called(function: Callable[..., Any], device: str) -> list[Any]:
    """Call it twice on a matrix, and on known integers; return its last results but the first, as lists."""
    x = torch.ones(512, 512, device=device, requires_grad=True)
    ids = torch.tensor([7, 7, 3, 7], device=device)
    grid = torch.tensor([[1, 4, 6]], device=device)
    for _ in range(2):
        loss, *results = function(x, ids, grid)
        loss.backward()
    return [each.tolist() for each in results]


def test_integers_that_compiled_code_computes_of_known_ones_are_known() -> None:
    expected = called(counts, "cpu")
    with virtual_device(GPU, compiles=True):
        found = called(torch.compile(counts, fullgraph=True), "cuda")
        assert simulated().compilation is not None
    assert found == expected


def test_finding_them_takes_no_memory_and_runs_no_kernel() -> None:
    def traced() -> Trace:
        return trace_program(Counting("cuda"), GPU).trace

    with patched([(known_values, "followed", lambda _graph: lambda code: code)]):
        without = traced()
    found = traced()
    assert (found.events, found.nodes, found.assumptions) == (without.events, without.nodes, without.assumptions)


def test_an_array_from_a_line_that_is_left_to_python_is_compiled_as_a_tensor() -> None:
    @torch.compiler.disable
    def chosen() -> Any:
        return np.array([[True, False], [False, True]])

    def masked(x: Tensor) -> Tensor:
        mask = chosen()
        return x * torch.tensor(mask, device=x.device, dtype=torch.bool)

    with virtual_device(GPU, compiles=True):
        result = torch.compile(masked)(torch.ones(2, 2, device="cuda"))
        assert result.shape == (2, 2)
        assert simulated().compilation is not None
