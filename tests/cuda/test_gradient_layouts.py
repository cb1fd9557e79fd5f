"""Gradients of normalisation layers are laid out as PyTorch's kernels do it, not as its meta kernels say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memlint.accelerator import state
from memlint.cuda.session import virtual_device
from memlint.cuda.versions import torch_version
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from memlint.accelerator.kernel import Kernel

aten = torch.ops.aten
SHAPE, CONTIGUOUS, CHANNELS_LAST = (2, 8, 4, 6), (192, 24, 6, 1), (192, 1, 48, 8)
EVERYTHING = [True, True, True]


def gradient_stride(norm: str, grad_stride: tuple[int, ...], x_stride: tuple[int, ...], device: str) -> tuple[int, ...]:
    grad = torch.empty_strided(SHAPE, grad_stride, device=device).zero_()
    x = torch.empty_strided(SHAPE, x_stride, device=device).zero_()
    channels, columns = torch.zeros(8, device=device), torch.zeros(6, device=device)
    rows, groups = torch.zeros(2, 8, 4, 1, device=device), torch.zeros(2, 2, device=device)
    if norm == "layer":
        return aten.native_layer_norm_backward(grad, x, [6], rows, rows, columns, columns, EVERYTHING)[0].stride()
    if norm == "group":
        return aten.native_group_norm_backward(grad, x, groups, groups, channels, 2, 8, 24, 2, EVERYTHING)[0].stride()
    statistics = [channels] * 4
    return aten.native_batch_norm_backward(grad, x, channels, *statistics, True, 1e-5, EVERYTHING)[0].stride()


@pytest.mark.parametrize("x_stride", [CONTIGUOUS, CHANNELS_LAST])
@pytest.mark.parametrize("grad_stride", [CONTIGUOUS, CHANNELS_LAST])
@pytest.mark.parametrize("norm", ["layer", "group", "batch"])
def test_the_hosts_layout_is_that_of_the_real_kernel(
    norm: str, grad_stride: tuple[int, ...], x_stride: tuple[int, ...]
) -> None:
    real = gradient_stride(norm, grad_stride, x_stride, "cpu")
    with virtual_device(device_named("cpu")):
        assert gradient_stride(norm, grad_stride, x_stride, "cpu") == real


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_cudas_layer_and_group_norms_give_contiguous_gradients(norm: str) -> None:
    with virtual_device(device_named("a100-80gb")):
        assert gradient_stride(norm, CHANNELS_LAST, CONTIGUOUS, "cuda") == CONTIGUOUS


class _OnMeta(TorchDispatchMode):
    """The kernels PyTorch calls on a device that is neither the host nor an extension's."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(function._schema.name.split("::")[-1])
        return function(*args, **(kwargs or {}))


class _OnVirtual(state.Observer):
    def __init__(self) -> None:
        self.called: list[str] = []

    def started(self, kernel: Kernel) -> None:
        self.called.append(kernel.packet)


def norm_step(x: torch.Tensor, weight: torch.Tensor) -> None:
    torch.nn.functional.group_norm(x * 2, 2, weight, weight).exp().sum().backward()


@pytest.mark.skipif(torch_version() > (2, 13), reason="later versions have a kernel for channels_last")
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_group_norm_copies_on_cuda_where_pytorch_does(layout: torch.memory_format) -> None:
    def operands(device: str) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.zeros(SHAPE, device=device).to(memory_format=layout).requires_grad_()
        return x, torch.ones(8, device=device, requires_grad=True)

    meta, virtual = _OnMeta(), _OnVirtual()
    x, weight = operands("meta")
    with meta:
        norm_step(x, weight)
    with virtual_device(device_named("a100-80gb")):
        x, weight = operands("cuda")
        state.current.observers.append(virtual)
        try:
            norm_step(x, weight)
        finally:
            state.current.observers.remove(virtual)
    wanted = ("clone", "native_group_norm", "native_group_norm_backward")
    copies = [[name for name in each.called if name in wanted] for each in (meta, virtual)]
    assert copies[0] == copies[1] == ["clone"] * (layout is torch.channels_last) + list(wanted[1:])
