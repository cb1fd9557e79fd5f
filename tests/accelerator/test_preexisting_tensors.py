"""Tensors that are there before a simulation begins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from memlint.accelerator import preexisting_tensors
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

A100 = device_named("a100-80gb")


@pytest.fixture(autouse=True)
def _nothing_held() -> Iterator[None]:
    yield
    preexisting_tensors.forget()


def made() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    with virtual_device(A100), preexisting_tensors.recording(lambda: "there"):
        weight = torch.zeros(256, 4, device="cuda", requires_grad=True)
        host = torch.zeros(1 << 20)
        torch.empty(1 << 20, device="cuda")  # which nobody keeps
        return weight, torch.tensor([3, 4], device="cuda"), host


def test_every_simulation_begins_with_them() -> None:
    tensors = made()
    for _ in range(2):
        with virtual_device(A100) as ledger:
            assert [ledger.births[number].nbytes for number in ledger.events] == [4096, 16]
            assert list(preexisting_tensors.places().values()) == ["there"] * 2
            assert tensors[0].is_cuda
            assert not tensors[2].is_cuda
            assert (tensors[0] * 2).shape == (256, 4)


def test_none_sees_what_another_does_to_them() -> None:
    weight, numbers, _host = made()
    for _ in range(2):
        with virtual_device(A100) as ledger:
            assert numbers.tolist() == [3, 4]
            numbers.add_(1)
            assert numbers.tolist() == [4, 5]
            weight.sum().backward()
            assert weight.grad is not None
            assert sum(ledger.births[number].nbytes == 4096 for number in ledger.events if number >= 0) == 2


def test_what_is_dropped_is_no_more_there() -> None:
    weight, numbers, _host = made()
    with virtual_device(A100) as ledger:
        del weight
        assert ledger.events[-1] == ~ledger.events[0]
    with virtual_device(A100) as ledger:
        assert [ledger.births[number].nbytes for number in ledger.events] == [16]
    del numbers


def test_what_is_let_go_counts_in_other_simulations() -> None:
    tensors = made()
    with virtual_device(A100) as ledger:
        assert preexisting_tensors.includes(tensors[:1])
        preexisting_tensors.leave_out(tensors[:1])
        assert ledger.events[-1] == ~ledger.events[0]
        assert not preexisting_tensors.includes(tensors[:1])
        assert tensors[0].clone().shape == (256, 4)
    with virtual_device(A100) as ledger:
        assert preexisting_tensors.includes(tensors[:1])
        assert len(ledger.events) == 2
