"""Functions of libraries that memlint models, within compiled code."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from memlint.libraries import flash_attn, flash_attn_3
from memlint.memory.devices import device_named
from memlint.tracing.recorder import Recorded, trace_program


class Attention(nn.Module):
    """Attention of a library between two products."""

    def __init__(self, library: ModuleType, size: int) -> None:
        super().__init__()
        self.library, self.size = library, size
        self.qkv, self.out = nn.Linear(64, 3 * 4 * size), nn.Linear(4 * size, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend."""
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, self.size)).unbind(2)
        attended: torch.Tensor = self.out(self.library.flash_attn_func(q, k, v, causal=True).flatten(2))
        return attended


class Attending:
    """A training step whose model is compiled without a break, or is not compiled."""

    name = "attending"
    device = "cuda"
    generates = False
    compiles = True

    def __init__(self, library: ModuleType, size: int, *, compiles_model: bool, **options: Any) -> None:
        self.library, self.size, self.compiles_model, self.options = library, size, compiles_model, options

    def setup(self) -> None:
        """Build it in bfloat16."""
        self.model = Attention(self.library, self.size).to("cuda", torch.bfloat16)
        if self.compiles_model:
            self.model.compile(fullgraph=True, **self.options)

    def step(self) -> None:
        """Take the gradients."""
        self.model(torch.randn(2, 100, 64, device="cuda", dtype=torch.bfloat16)).sum().backward()
        self.model.zero_grad()


def traced(*args: Any, **options: Any) -> Recorded:
    return trace_program(Attending(*args, **options), device_named("h100"))


def kernels_of(recorded: Recorded) -> list[tuple[str, str]]:
    """Kernels of libraries: name and phase."""
    return [(node.op, node.phase.value) for node in recorded.trace.nodes if node.op.startswith("memlint_flash")]


@pytest.mark.parametrize("library", [flash_attn, flash_attn_3], ids=["2", "3"])
@pytest.mark.parametrize("size", [16, 12])
def test_attention_of_a_library_is_part_of_the_graph(library: ModuleType, size: int) -> None:
    if library is flash_attn_3 and size % 8:
        pytest.skip("heads are padded in version 2 alone")
    compiled, eager = (traced(library, size, compiles_model=compiles) for compiles in (True, False))
    assert kernels_of(compiled) == kernels_of(eager) != []
    assert any(node.op.startswith("inductor.") for node in compiled.trace.nodes)


def test_kernels_of_a_library_in_generated_code_are_said_not_to_run_with_the_line_of_the_program() -> None:
    recorded = traced(flash_attn, 16, compiles_model=True)
    [frame] = [each.frame for each in recorded.trace.assumptions if "kernels of flash-attn are not run" in each.text]
    assert frame is not None
    assert (frame.path, frame.function) == (__file__, "forward")


def test_attention_of_a_library_is_compiled_for_sizes_that_may_change() -> None:
    recorded = traced(flash_attn, 16, compiles_model=True, dynamic=True)
    assert [phase for _, phase in kernels_of(recorded)] == ["forward", "backward"] * 2
