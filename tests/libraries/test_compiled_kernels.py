"""Kernels that a program compiles from CUDA sources, without NVRTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memlint.accelerator import state
from memlint.accelerator.private import COMPILE_KERNEL
from memlint.cuda.session import virtual_device
from memlint.libraries import compiled_kernels
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    import pytest


def test_a_kernel_from_source_takes_nothing_and_may_write_all_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, COMPILE_KERNEL, getattr(torch.cuda, COMPILE_KERNEL))  # put back after the test
    compiled_kernels.install()
    assumed: list[str] = []
    monkeypatch.setattr(state.current, "assume", assumed.append)
    with virtual_device(device_named("h100-80gb")):
        kernel = getattr(torch.cuda, COMPILE_KERNEL)("__global__ void f() {}", "f", compute_capability="90")
        kernel.set_shared_memory_config(100_000)
        x, y = torch.ones(1024, device="cuda"), torch.zeros(1024, device="cuda")
        before = torch.cuda.memory_allocated()
        for _ in range(2):
            kernel((4, 1, 1), (256, 1, 1), (x, y, x.numel()), shared_mem=8)
        after = torch.cuda.memory_allocated()
        assert after == before
        y.sum().item()
    assert any("the CUDA kernel f is not run" in each for each in assumed)
    assert any("read from the device" in each for each in assumed)
