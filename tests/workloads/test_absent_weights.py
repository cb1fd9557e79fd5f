"""Functions of PyTorch that accept weights which are not there."""

import pytest
import torch

from memlint.workloads.absent_weights import replace_loading


def constant(x: torch.Tensor) -> torch.Tensor:
    return x + torch.tensor([1.0]) + torch.as_tensor([2.0])


def test_torchscript_compiles_code_that_calls_what_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.tensor
    replace_loading(monkeypatch.setattr)
    assert torch.tensor is not before
    assert torch.jit.script(constant)(torch.zeros(1)).tolist() == [3.0]
