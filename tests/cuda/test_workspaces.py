"""cuBLAS's workspaces: how large, how many, and what CUBLAS_WORKSPACE_CONFIG makes of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch

from memlint.cuda.workspaces import configured_workspace, default_workspace
from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"


class Product:
    """A matrix product, and another in its backward where `backward`; `configure` runs as the script's first line."""

    def __init__(self, configure: Callable[[], object] = lambda: None, *, backward: bool = True) -> None:
        self.configure = configure
        self.backward = backward

    def setup(self) -> None:
        self.configure()
        self.weight = torch.ones(8, 8, device="cuda", requires_grad=True)

    def step(self) -> None:
        y = (self.weight @ self.weight).sum()
        if self.backward:
            y.backward()


def workspaces(program: Product, gpu: str = "a100-80gb") -> list[int]:
    trace = trace_program(program, device_named(gpu)).trace
    return [buffer.nbytes for buffer in trace.buffers if buffer.op == "cublas"]


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")  # so that what a program sets is undone
    monkeypatch.delenv(VARIABLE)


@pytest.mark.parametrize(
    ("configuration", "nbytes"),
    [
        (":4096:2:16:8", 8_519_680),
        (":4096:8", 33_554_432),
        (":16:8", 131_072),
        (":0:0", 0),
        (":1:1:2:2:3:3", (1 + 4 + 9) * 1024),
        ("", None),
        ("4096", None),
        ("none", None),
        ("4096:2:16:8", 2 * 16 * 1024),  # as PyTorch reads it, from the first colon on
    ],
)
def test_a_configuration_is_pairs_of_kibibytes_and_counts_added_up(configuration: str, nbytes: int | None) -> None:
    assert configured_workspace(configuration) == nbytes


@pytest.mark.parametrize(("gpu", "nbytes"), [("a100-80gb", 8_519_680), ("t4", 8_519_680), ("h100-80gb", 33_554_432)])
def test_each_thread_that_multiplies_keeps_one_workspace(gpu: str, nbytes: int) -> None:
    assert default_workspace(device_named(gpu)) == nbytes
    assert workspaces(Product(backward=False), gpu) == [nbytes]
    assert workspaces(Product(), gpu) == [nbytes, nbytes]


@pytest.mark.parametrize("gpu", ["a100-80gb", "h100-80gb"])
def test_the_environment_overrides_the_default_of_every_gpu(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, ":16:8")
    assert workspaces(Product(), gpu) == [131_072, 131_072]


def test_no_workspace_where_the_program_turns_it_off() -> None:
    assert workspaces(Product(lambda: os.environ.update({VARIABLE: ":0:0"}))) == []


def test_a_configuration_pytorch_cannot_read_leaves_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "large")
    assert workspaces(Product()) == [8_519_680, 8_519_680]


def test_a_change_after_the_first_product_comes_too_late() -> None:
    class ChangesItsMind(Product):
        def step(self) -> None:
            super().step()
            os.environ[VARIABLE] = ":16:8"

    program = ChangesItsMind(backward=False)
    assert workspaces(program) == [8_519_680]
    os.environ.pop(VARIABLE)

    class ChangesBetweenThreads(Product):
        def step(self) -> None:
            y = (self.weight @ self.weight).sum()
            os.environ[VARIABLE] = ":16:8"
            y.backward()

    assert workspaces(ChangesBetweenThreads()) == [8_519_680, 8_519_680]
