"""Operands of dtypes that no kernel of CUDA takes fail where the GPU would; those that it takes pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlint.accelerator.ledger import Ledger

REFUSED_EVERYWHERE: list[Callable[[str], torch.Tensor]] = [
    lambda d: torch.zeros(4, 4, dtype=torch.float16, device=d) @ torch.zeros(4, 4, device=d),
    lambda d: torch.zeros(4, 4, dtype=torch.int64, device=d) @ torch.zeros(4, 4, device=d),
    lambda d: F.linear(torch.zeros(2, 4, 4, device=d), torch.zeros(4, 4, dtype=torch.bfloat16, device=d)),
    lambda d: F.conv1d(torch.zeros(2, 4, 8, device=d), torch.zeros(4, 4, 1, dtype=torch.float16, device=d)),
    lambda d: F.conv1d(torch.zeros(2, 4, 8, dtype=torch.int64, device=d), torch.zeros(4, 4, 1, device=d)),
    lambda d: F.layer_norm(torch.zeros(2, 4, device=d), (4,), torch.ones(4, dtype=torch.float16, device=d)),
    lambda d: F.scaled_dot_product_attention(
        torch.zeros(1, 1, 4, 8, device=d), *[torch.zeros(1, 1, 4, 8, dtype=torch.float16, device=d)] * 2
    ),
    lambda d: torch.zeros(4, device=d).index_put_(
        (torch.tensor([1], device=d),), torch.ones(1, dtype=torch.float16, device=d)
    ),
    lambda d: torch.zeros(2, 4, dtype=torch.int64, device=d).softmax(-1),
    lambda d: F.gelu(torch.zeros(4, dtype=torch.int64, device=d)),
]
"""Operands that PyTorch's kernels on the host refuse as well: the host is the oracle."""
TAKEN: list[Callable[[str], torch.Tensor]] = [
    lambda d: torch.zeros(4, 4, dtype=torch.float16, device=d) @ torch.zeros(4, 4, dtype=torch.float16, device=d),
    lambda d: torch.zeros(4, 4, dtype=torch.complex64, device=d) @ torch.ones(4, 4, dtype=torch.complex64, device=d),
    lambda d: F.cross_entropy(torch.zeros(4, 4, device=d), torch.zeros(4, dtype=torch.int64, device=d)),
    lambda d: F.layer_norm(torch.zeros(2, 4, dtype=torch.float16, device=d), (4,)),
    lambda d: torch.where(torch.ones(4, device=d) > 0, torch.zeros(4, device=d), torch.zeros(4, device=d).half()),
]
OF_CUDA_ALONE: list[Callable[[str], torch.Tensor]] = [
    lambda d: torch.ones(4, 4, dtype=torch.int64, device=d) @ torch.ones(4, 4, dtype=torch.int64, device=d),
    lambda d: torch.baddbmm(*[torch.ones(1, 4, 4, dtype=torch.int32, device=d)] * 3),
    lambda d: F.layer_norm(torch.zeros(2, 4, device=d).half(), (4,), torch.ones(4, device=d), torch.ones(4, device=d)),
    lambda d: F.group_norm(torch.zeros(2, 4, 8, device=d).half(), 2, torch.ones(4, device=d), torch.ones(4, device=d)),
]


@pytest.mark.parametrize("program", REFUSED_EVERYWHERE)
def test_refused(program: Callable[[str], torch.Tensor], gpu: Ledger) -> None:
    assert gpu is not None
    with pytest.raises((RuntimeError, IndexError)):
        program("cpu")
    with pytest.raises((RuntimeError, IndexError), match=r"dtype|not implemented for 'Long'"):
        program("cuda")


@pytest.mark.parametrize("program", TAKEN)
def test_taken(program: Callable[[str], torch.Tensor], gpu: Ledger) -> None:
    assert gpu is not None
    assert program("cuda").shape == program("cpu").shape


@pytest.mark.parametrize("program", OF_CUDA_ALONE)
def test_refused_by_cuda_alone(program: Callable[[str], torch.Tensor], gpu: Ledger) -> None:
    assert gpu is not None
    program("cpu")
    with pytest.raises(RuntimeError, match=r"same dtype|not implemented for '(Long|Int)'"):
        program("cuda")
