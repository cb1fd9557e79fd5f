"""Functions of PyTorch that accept weights which are not there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from memlint.workloads import absent_weights
from memlint.workloads.absent_weights import Absent, replace_loading
from memlint.workloads.missing_checkpoints import replace_loads


def constant(x: torch.Tensor) -> torch.Tensor:
    return x + torch.tensor([1.0]) + torch.as_tensor([2.0])


def test_torchscript_compiles_code_that_calls_what_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.tensor
    replace_loading(monkeypatch.setattr)
    assert torch.tensor is not before
    assert torch.jit.script(constant)(torch.zeros(1)).tolist() == [3.0]


@pytest.mark.parametrize(("stem", "millions"), [("ViT-B-32", 151), ("ViT-B-16", 149), ("ViT-L-14", 427)])
def test_the_weights_of_clip_have_their_shapes_where_its_file_is_not_there(stem: str, millions: int) -> None:
    """Numbers of parameters as the paper's table of models has them; a copy of its loader builds the model by them."""
    absent = Absent(FileNotFoundError(2, "No such file", f"/models/{stem}.pt"))
    weights = {name: value for name, value in absent.items() if isinstance(value, torch.Tensor)}
    assert sum(each.numel() for each in weights.values()) // 1_000_000 == millions
    assert "visual.proj" in absent.state_dict()
    assert len({name.split(".")[2] for name in weights if name.startswith("transformer.resblocks")}) == 12
    assert not dict(Absent(FileNotFoundError(2, "No such file", "/models/other.pt")))


def test_a_model_of_torchscript_that_is_not_there_is_absent(tmp_path: Path) -> None:
    put: dict[str, Callable[..., Any]] = {}
    replace_loads(lambda owner, name, value: put.update({f"{owner.__name__}.{name}": value}), lambda _note: None)
    broken = tmp_path / "model.pt"
    broken.write_bytes(b"nothing of TorchScript")
    with pytest.raises(RuntimeError):
        put["torch.jit.load"](str(broken))


def test_a_weight_has_the_shape_of_the_only_one_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absent_weights, "_made", [None])  # modules are not watched here
    weights = Absent(OSError(2, "not there", "vit.pth"))["model"]
    model = torch.nn.Module()
    model.only_here = torch.nn.Parameter(torch.zeros(1, 17, 8))
    weight = weights["encoder.only_here"]
    assert (weight.shape[-1], weight.size(1), int((weight.shape[-2] - 1) ** 0.5)) == (8, 17, 4)
    with pytest.raises(OSError, match="not there"):
        int(weights["nowhere"].shape[-1])
