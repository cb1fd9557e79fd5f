"""A program's own checkpoints left out, and others put in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import checkpoint as checkpointing
from torch.utils.checkpoint import checkpoint

from memlint.whatif.change import ChangedProgram
from memlint.whatif.changes import CheckpointInstead
from tests.whatif.programs import events, mlp, peak, program


class Stack(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(mlp() for _ in range(4))
        self.how = how

    def run(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.how == "blocks" else block(x)
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how in {"whole", "reentrant"}:
            return checkpoint(self.run, x.requires_grad_(), use_reentrant=self.how == "reentrant")
        return self.run(x.requires_grad_())


def vectors(batch: int) -> dict[str, Any]:
    return {"0": torch.zeros(batch, 256)}


BLOCKS = CheckpointInstead(tuple(f"blocks.{i}" for i in range(4)))


@pytest.mark.parametrize("how", ["whole", "reentrant", "none"])
def test_it_is_the_program_with_only_those_checkpoints(how: str) -> None:
    changed = ChangedProgram(program(lambda: Stack(how), vectors, batch=512), BLOCKS)
    assert events(changed) == events(program(lambda: Stack("blocks"), vectors, batch=512))


def test_afterwards_checkpoints_are_as_before() -> None:
    before = checkpointing._checkpoint_without_reentrant_generator, checkpointing.CheckpointFunction
    peak(ChangedProgram(program(lambda: Stack("whole"), vectors), BLOCKS))
    assert (checkpointing._checkpoint_without_reentrant_generator, checkpointing.CheckpointFunction) == before
