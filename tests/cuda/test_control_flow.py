"""Control flow that PyTorch traces takes what the same in plain Python takes, and differentiates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from memlint.accelerator.lazy_imports import run_eagerly
from memlint.base.patching import patched
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named


def plain_loop(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(3):
        x = x @ w
    return x


def repeated(x: Tensor, w: Tensor) -> Tensor:
    count = torch.tensor(0, device=x.device)
    return while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y @ w), (count, x))[1]


FLOWS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "cond of a known truth": (
        lambda x, w: torch.cond(torch.ones((), device=x.device) > 0, lambda y: (y @ w).exp(), lambda y: y * 2, (x,)),
        lambda x, w: (x @ w).exp(),
    ),
    "cond of an unknown one": (
        lambda x, w: torch.cond(x.sum() > 2, lambda y: y @ w, lambda y: (y * w).exp(), (x,)),
        lambda x, w: (x * w).exp(),
    ),
    "while_loop": (repeated, plain_loop),
}


def saved_nbytes(device: str, flow: Callable[[Tensor, Tensor], Tensor]) -> list[int]:
    with virtual_device(device_named(device)) as ledger:
        x, w = (torch.rand(64, 64, device="cpu" if device == "cpu" else "cuda", requires_grad=True) for _ in range(2))
        y = flow(x, w)
        alive = [e for e in ledger.events if e >= 0 and ~e not in ledger.events]
        sizes = [ledger.births[e].nbytes for e in alive if ledger.births[e].nbytes >= 64 * 64 * 4]
        y.sum().backward()
        assert x.grad is not None
        assert w.grad is not None
    return sizes


@pytest.mark.parametrize("device", ["a100-80gb", "cpu"])
@pytest.mark.parametrize("name", FLOWS)
def test_control_flow_keeps_what_the_same_in_plain_python_keeps(name: str, device: str) -> None:
    flow, plain = FLOWS[name]
    with patched([(torch, "compile", torch.compile)]):
        run_eagerly()
        assert saved_nbytes(device, flow) == saved_nbytes(device, plain)


def test_scan_and_map_run_on_the_device() -> None:
    with patched([(torch, "compile", torch.compile)]), virtual_device(device_named("a100-80gb")):
        run_eagerly()
        x = torch.rand(8, 64, device="cuda", requires_grad=True)
        _, y = scan(lambda carry, row: (carry + row, carry * row), x[0], x, dim=0)
        z = map_rows(lambda row: row * 2, x)
        assert (y.shape, z.shape, str(y.device)) == (x.shape, x.shape, "cuda:0")
        (y.sum() + z.sum()).backward()
        assert x.grad is not None
