"""Small programs whose model is compiled, on a device given by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(self.norm(x))
        inner = nn.functional.gelu(inner)
        return x + self.down(inner)


class Net(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Compiled:
    """A training step of a model whose activations are most of the peak, compiled if `compiles`."""

    def __init__(self, device: str, *, compiles: bool = True, **options: Any) -> None:
        self.device = device
        self.compiles = compiles
        self.options = options

    def setup(self) -> None:
        self.model = Net(64, 2).to(self.device)
        self.called = torch.compile(self.model, **self.options) if self.compiles else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.inputs = {"x": torch.zeros(512, 64, device=self.device)}

    def step(self) -> None:
        loss = self.called(self.inputs["x"]).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
