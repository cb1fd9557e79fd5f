"""When more steps are worth a trace."""

from __future__ import annotations

import torch

from memlint.memory.devices import device_named
from memlint.memory.retention import may_grow
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program


class Steps:
    def __init__(self, *, keeps: bool) -> None:
        self.kept: list[torch.Tensor] = []
        self.keeps = keeps

    def setup(self) -> None:
        self.x = torch.rand(1, 2, 64, 32, device="cuda", requires_grad=True)

    def step(self) -> None:
        # Its random seed is a tensor of the host, which lives in no event.
        out = torch.nn.functional.scaled_dot_product_attention(self.x, self.x, self.x, is_causal=True)
        out.sum().backward()
        self.x.grad = None
        if self.keeps:
            self.kept.append(out)


def test_one_step_does_not_say_what_every_step_leaves_behind() -> None:
    assert not may_grow(Timeline.of(trace_program(Steps(keeps=True), device_named("a100-80gb"), num_steps=1).trace))


def test_tensors_of_the_host_are_not_what_a_step_leaves_behind() -> None:
    def timeline(*, keeps: bool) -> Timeline:
        return Timeline.of(trace_program(Steps(keeps=keeps), device_named("a100-80gb")).trace)

    assert not may_grow(timeline(keeps=False))
    assert may_grow(timeline(keeps=True))
