"""A known index outside of what it indexes fails where PyTorch on the host does; everything inside passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlint.accelerator.ledger import Ledger

OUTSIDE: list[Callable[[str], torch.Tensor]] = [
    lambda d: F.embedding(torch.arange(9, device=d), torch.zeros(8, 4, device=d)),
    lambda d: F.embedding(torch.full((3,), -1, device=d), torch.zeros(8, 4, device=d)),
    lambda d: torch.zeros(8, 4, device=d)[torch.arange(9, device=d)],
    lambda d: torch.zeros(8, 4, device=d)[:, torch.tensor([-5], device=d)],
    lambda d: torch.zeros(8, 4, device=d).index_select(1, torch.tensor([4], device=d)),
    lambda d: torch.zeros(8, 4, device=d).gather(1, torch.full((8, 2), 4, device=d)),
]
INSIDE: list[Callable[[str], torch.Tensor]] = [
    lambda d: F.embedding(torch.arange(8, device=d), torch.zeros(8, 4, device=d)),
    lambda d: torch.zeros(8, 4, device=d)[torch.tensor([-8, 7], device=d)],
    lambda d: torch.zeros(8, 4, device=d)[torch.ones(8, dtype=torch.bool, device=d), torch.tensor(3, device=d)],
    lambda d: torch.zeros(8, 4, device=d)[:, torch.zeros(0, dtype=torch.int64, device=d)],
    lambda d: torch.zeros(8, 4, device=d).gather(0, torch.full((2, 4), 7, device=d)),
    lambda d: torch.tensor(3.0, device=d).gather(0, torch.tensor(0, device=d)),
    lambda d: torch.zeros(8, 4, device=d).index_select(-1, torch.tensor([3], device=d)),
]


@pytest.mark.parametrize("program", OUTSIDE)
def test_outside(program: Callable[[str], torch.Tensor], gpu: Ledger) -> None:
    assert gpu is not None
    with pytest.raises((IndexError, RuntimeError)):
        program("cpu")
    with pytest.raises(IndexError, match=r"is out of bounds for dimension [01] with size [48]"):
        program("cuda")


@pytest.mark.parametrize("program", INSIDE)
def test_inside(program: Callable[[str], torch.Tensor], gpu: Ledger) -> None:
    assert gpu is not None
    assert program("cuda").shape == program("cpu").shape


def test_what_is_not_known_is_not_refused(gpu: Ledger) -> None:
    assert gpu is not None
    unknown = torch.randn(4, device="cuda").long() + 100
    assert F.embedding(unknown, torch.zeros(8, 4, device="cuda")).shape == (4, 4)
