"""Floating-point operations by shapes, against PyTorch's own counter on the host."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

import tests.oracles.programs as oracles
from memlint.memory.flops import node_flops, step_flops
from memlint.memory.records import NO_NODE
from memlint.whatif.change import ChangedProgram
from memlint.whatif.changes import CheckpointModules
from tests.whatif.programs import program, traced

ON_THE_HOST = {  # which PyTorch leaves out
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: sdpa_flop_count(*shapes[:3]),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda *shapes, **_: sdpa_backward_flop_count(
        *shapes[:4]
    ),
}


def counted(host: object) -> int:
    with FlopCounterMode(display=False, custom_mapping=ON_THE_HOST) as counter:
        host.step()
    return counter.get_total_flops()


def test_a_kernel_that_never_ended_counts_nothing() -> None:
    assert node_flops(NO_NODE._replace(op="aten.convolution.default")) == 0


@pytest.mark.parametrize(
    "name", ["gpt2", "vit", *(pytest.param(name, marks=pytest.mark.slow) for name in ("llama", "resnet50", "unet"))]
)
def test_a_step_takes_what_pytorch_counts(name: str) -> None:
    make = getattr(oracles, name)
    host = make()
    host.setup()
    assert step_flops(traced(make(device="cuda"))) == counted(host)


def test_transposed_and_grouped_convolutions() -> None:
    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1)
            self.mixed = nn.Conv2d(8, 16, 3, padding=1, bias=False)
            self.up = nn.ConvTranspose2d(16, 16, 2, stride=2)
            self.out = nn.ConvTranspose2d(16, 4, 2, stride=2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.up(self.mixed(self.down(x))))

    trace = traced(program(Images, lambda batch: {"0": torch.zeros(batch, 8, 16, 16)}, batch=2))
    model = Images()
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(2, 8, 16, 16)).mean().backward()
    assert step_flops(trace) == counter.get_total_flops()


def test_a_checkpointed_module_takes_its_forward_again() -> None:
    def stack() -> nn.Module:
        return nn.Sequential(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)), nn.Linear(64, 64))

    def vectors(batch: int) -> dict[str, torch.Tensor]:
        return {"0": torch.zeros(batch, 64)}

    before = step_flops(traced(program(stack, vectors)))
    after = step_flops(traced(ChangedProgram(program(stack, vectors), CheckpointModules(("0",)))))
    # The last product of a block is needed by nobody: recomputation stops once backward has what it asked for.
    assert after - before in {2 * 8 * 64 * 256, 2 * 2 * 8 * 64 * 256}
