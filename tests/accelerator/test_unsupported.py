"""An operation that cannot be traced ends in an error that names it and its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from memlint.base.errors import MemlintError
from memlint.base.frames import user_lines
from memlint.commands.analyse.description import described
from memlint.workloads.discover import find_workloads
from tests.in_process import analysed

if TYPE_CHECKING:
    from pathlib import Path

    from memlint.accelerator.ledger import Ledger

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor):
        y = self.layer(x)
        return {call}
"""


def error_of(call: str, folder: Path) -> MemlintError:
    path = folder / "model.py"
    path.write_text(MODEL.format(call=call))
    (workload,) = find_workloads(f"{path}::Model", folder, [], {}).workloads
    with pytest.raises(MemlintError) as caught:
        analysed(workload, folder)
    return caught.value


def test_an_op_without_shape_inference_is_named_with_its_line(tmp_path: Path) -> None:
    error = error_of("torch._aminmax(y)[0]", tmp_path)
    text = f"{error.message} {error.hint}"
    assert "_aminmax" in text
    assert "model.py:12" in user_lines(error)[-1]
    assert "register_fake" in text
    assert "vgpu" not in text


def test_an_own_op_without_a_fake_implementation_is_named(tmp_path: Path) -> None:
    with torch.library._scoped_library("memlint_tests", "DEF") as library:
        library.define("own(Tensor x) -> Tensor")
        library.impl("own", lambda x: x.clone(), "CPU")
        error = error_of("torch.ops.memlint_tests.own(y)", tmp_path)
    text = f"{error.message} {error.hint}"
    assert "memlint_tests" in text
    assert "own" in text
    assert "model.py:12" in user_lines(error)[-1]


def test_an_own_op_with_a_fake_implementation_works(gpu: Ledger) -> None:
    @torch.library.custom_op("memlint_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x])

    @doubled.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(2 * x.shape[0], *x.shape[1:])

    doubled.register_autograd(lambda ctx, grad: grad[: grad.shape[0] // 2])
    x = torch.rand(3, 4, device="cuda", requires_grad=True)
    y = doubled(x)
    assert (y.shape, str(y.device)) == ((6, 4), "cuda:0")
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (3, 4)


def test_errors_of_the_program_are_its_own(tmp_path: Path) -> None:
    error = error_of("y @ torch.rand(7, 7, device=y.device)", tmp_path)
    assert "mat1 and mat2" in error.message
    assert "vgpu" not in error.message


@pytest.mark.parametrize(
    ("gpu", "call"),
    [
        ("cpu", "nn.functional.conv1d(y[:, :, None], torch.zeros(8, 8, 1))"),
        ("cpu", "nn.LSTM(8, 8)(y)[0]"),
        ("cpu", "nn.GRU(8, 8)(y)[0]"),
        ("a100-80gb", "nn.LSTM(8, 8, device='cuda')(y)[0]"),
    ],
)
def test_nothing_that_layers_of_libraries_take_for_themselves_is_left_out(gpu: str, call: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL.format(call=call))
    (workload,) = find_workloads(f"{path}::Model", tmp_path, [], {"gpu": gpu}).workloads
    texts = [each.text for each in described(analysed(workload, tmp_path), None).assumptions]
    assert [text for text in texts if "not counted" in text] == []
