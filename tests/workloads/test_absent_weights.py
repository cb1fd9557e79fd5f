"""Functions of PyTorch that accept weights which are not there."""

import pytest
import torch

from memlint.workloads import absent_weights
from memlint.workloads.absent_weights import Absent, replace_loading


def constant(x: torch.Tensor) -> torch.Tensor:
    return x + torch.tensor([1.0]) + torch.as_tensor([2.0])


def test_torchscript_compiles_code_that_calls_what_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.tensor
    replace_loading(monkeypatch.setattr)
    assert torch.tensor is not before
    assert torch.jit.script(constant)(torch.zeros(1)).tolist() == [3.0]


def test_a_weight_has_the_shape_of_the_only_one_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absent_weights, "_made", [None])  # modules are not watched here
    weights = Absent(OSError(2, "not there", "vit.pth"))["model"]
    model = torch.nn.Module()
    model.only_here = torch.nn.Parameter(torch.zeros(1, 17, 8))
    weight = weights["encoder.only_here"]
    assert (weight.shape[-1], weight.size(1), int((weight.shape[-2] - 1) ** 0.5)) == (8, 17, 4)
    with pytest.raises(OSError, match="not there"):
        int(weights["nowhere"].shape[-1])
