"""Nested tensors of layout torch.jagged cost what their parts do; of the strided layout they are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from memlint.accelerator import state
from memlint.base.errors import TraceError
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from tests.accelerator.bytes import live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memlint.accelerator.ledger import Ledger


@pytest.fixture(params=["a100-80gb", "cpu"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with virtual_device(device_named(request.param)):
        yield "cuda:0" if state.current.cuda else "cpu"


def jagged(device: str) -> torch.Tensor:
    x = torch.rand(8, 64, device=device, requires_grad=True)
    return torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 3, 8], device=device))


def test_a_nested_tensor_is_where_its_parts_are(device: str) -> None:
    nested = jagged(device)
    assert str(nested.device) == str(nested.values().device) == device
    assert nested.is_cuda is (device == "cuda:0")
    assert [tuple(part.shape) for part in nested.unbind()] == [(3, 64), (5, 64)]


MAKERS: list[Callable[[list[torch.Tensor]], torch.Tensor]] = [
    lambda parts: torch.nested.nested_tensor(parts, layout=torch.jagged),
    lambda parts: torch.nested.as_nested_tensor(parts, layout=torch.jagged),
    lambda parts: torch.nested.nested_tensor_from_jagged(
        torch.cat(parts), lengths=torch.tensor([3, 5]).to(parts[0].device)
    ),
]


@pytest.mark.parametrize("make", MAKERS)
def test_layers_take_nested_tensors_forward_and_backward(
    device: str, make: Callable[[list[torch.Tensor]], torch.Tensor]
) -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 16)).to(device)
    x = torch.rand(8, 64, device=device)
    y = model(make([x[:3], x[3:]]))
    assert y.values().shape == (8, 16)
    y.values().mean().backward()
    assert all(p.grad is not None and str(p.grad.device) == device for p in model.parameters())


def test_a_layer_of_a_nested_tensor_takes_what_it_takes_of_the_values(gpu: Ledger) -> None:
    layer = nn.Linear(64, 32).to("cuda")
    nested = jagged("cuda")
    layer(nested.values())  # takes the workspace
    before = live(gpu)
    of_values = layer(nested.values())
    taken = live(gpu) - before
    of_nested = layer(nested)
    assert of_values.nbytes == taken == live(gpu) - before - taken == of_nested.values().nbytes


def test_nested_tensors_move_between_host_and_gpu(gpu: Ledger) -> None:
    nested = torch.nested.nested_tensor([torch.rand(3, 64), torch.rand(5, 64)], layout=torch.jagged)
    assert str(nested.device) == "cpu"
    assert live(gpu) == 0
    moved = nested.to("cuda")
    assert str(moved.device) == "cuda:0"
    assert live(gpu) == 4 * 8 * 64 + 8 * 3
    back = moved.cpu()
    assert str(back.values().device) == "cpu"
    assert live(gpu) == 4 * 8 * 64 + 8 * 3


def test_nested_tensors_are_padded(device: str) -> None:
    x = torch.rand(8, 64, device=device, requires_grad=True)
    nested = torch.nested.as_nested_tensor([x[:3], x[3:]], layout=torch.jagged)
    padded = torch.nested.to_padded_tensor(nested, 0.0)
    assert padded.shape == (2, 5, 64)
    padded.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


STRIDED: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: torch.nested.nested_tensor([x[:3], x[3:]]),
    lambda x: torch.nested.as_nested_tensor([x[:3], x[3:]]),
    lambda x: torch._nested_tensor_from_mask(x[None], torch.ones(1, 8, dtype=torch.bool, device=x.device)),
    lambda x: F.scaled_dot_product_attention(*[jagged(str(x.device)).unflatten(-1, (4, 16)).transpose(1, 2)] * 3),
]


@pytest.mark.parametrize("make", STRIDED)
def test_strided_nested_tensors_and_what_makes_them_are_refused(
    device: str, make: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    x = torch.rand(8, 64, device=device, requires_grad=True)
    with pytest.raises(TraceError, match=r"layout torch\.strided cannot be traced"):
        make(x)
