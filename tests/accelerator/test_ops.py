"""Results and gradients of PyTorch's operations have the geometry that a real device gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from tests.accelerator.ops import CALLS, Applied, Call, operand

if TYPE_CHECKING:
    from memlint.accelerator.ledger import Ledger

Geometry = tuple[tuple[int, ...], torch.dtype, tuple[int, ...] | None]


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def geometry(tensor: torch.Tensor | None, *, strides: bool) -> Geometry | None:
    if tensor is None:
        return None
    return tuple(tensor.shape), tensor.dtype, _effective(tensor) if strides else None


def _effective(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of dimensions that have more than one element; the others mean nothing."""
    return tuple(s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1) if tensor.numel() else ()


def run(call: Call, device: str) -> dict[str, list[Geometry | None]]:
    operands = [operand(spec, device) for spec in call.operands]
    differentiable = (
        [x for x in operands if isinstance(x, torch.Tensor) and x.is_floating_point()] if call.backward else []
    )
    for x in differentiable:
        x.requires_grad_()
    results = tensors(call.function(*operands))
    grads: list[torch.Tensor | None] = []
    roots = [r.sum() for r in results if r.requires_grad]
    if differentiable and roots:
        grads = list(torch.autograd.grad(sum(roots), differentiable, allow_unused=True))
    return {
        "results": [geometry(t, strides=call.strides) for t in results],
        "require gradients": [r.requires_grad for r in results],
        "gradients": [geometry(t, strides=False) for t in grads],
        "devices": sorted({str(t.device) for t in (*results, *(g for g in grads if g is not None))}),
    }


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_results_and_gradients_are_those_of_a_real_device(call: Call) -> None:
    try:
        expected = run(call, "cpu")
    except RuntimeError as error:
        if "derivative for" not in str(error):
            raise
        pytest.skip(f"not in torch {torch.__version__}: {error}")  # aminmax has one from 2.12 on
    with virtual_device(device_named("a100-80gb")):
        traced = run(call, "cuda")
    assert expected.pop("devices") == ["cpu"]
    assert traced.pop("devices") == ["cuda:0"]
    assert traced == expected


@pytest.mark.parametrize("call", [c for c in CALLS if isinstance(c.function, Applied)], ids=str)
def test_modules_left_on_the_host_train_there(call: Call, gpu: Ledger) -> None:
    function = call.function
    assert isinstance(function, Applied)
    module = function.make()
    output = tensors(module(*(operand(spec, "cpu") for spec in call.operands)))[0]
    if any(True for _ in module.parameters()):
        output.sum().backward()
    assert str(output.device) == "cpu"
    assert all(str(p.grad.device) == "cpu" for p in module.parameters() if p.grad is not None)
    assert not gpu.events


def test_no_two_calls_have_one_name() -> None:
    assert len({call.name for call in CALLS}) == len(CALLS) > 250
