"""Devices of fakes: the virtual device for C++, which has a guard for it, and the program's device for Python."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Interpreter

from memlint.accelerator import engine, sparse
from memlint.accelerator.device import DEVICE, NAME, real_device_of
from memlint.accelerator.private import FakeTensor, compiled, originals
from memlint.accelerator.private.compilation import (
    CONVOLUTION_FORMAT,
    DECOMPOSE,
    RUN_NODE,
    compile_metrics,
    decompose,
    device_of_fake,
    graph_makers,
    is_functional,
    placing_fakes,
    run_node,
)
from memlint.base.patching import Patch, patched
from memlint.cuda import autocast
from memlint.cuda.facade import placement
from memlint.cuda.kernels import composites
from memlint.cuda.simulated import Simulated

_NO_DISPATCH = torch.Tensor.__torch_dispatch__
_FROM_DATA = (originals.tensor, originals.as_tensor, originals.asarray)
_interpreted = Interpreter.call_function
_is_host = sparse.is_host


def is_stored(tensor: torch.Tensor) -> bool:
    """Return True if a virtual tensor has an entry in the ledger: fakes and functional wrappers have none."""
    is_plain = not isinstance(tensor, FakeTensor) and type(tensor).__torch_dispatch__ is _NO_DISPATCH
    return is_plain and not is_functional(tensor)


def is_host(tensor: torch.Tensor) -> bool:
    """`sparse.is_host` that takes tensors without an entry for the device's."""
    return is_stored(tensor) and _is_host(tensor)


def _convolution_format(x: torch.Tensor, weight: torch.Tensor, _backend: Any) -> torch.memory_format:
    """Layout of a convolution's result: aten/src/ATen/native/ConvUtils.h, `cudnn_conv_suggest_memory_format` and
    `mkldnn_conv_use_channels_last`. C++ asks for the device and keeps to no layout on that of an extension.
    """  # noqa: D205
    formats = [composites.suggested_format(each) for each in (x, weight) if each.dtype is not torch.float64]
    plain = torch.contiguous_format
    return plain if len(formats) < len((x, weight)) else next((each for each in formats if each is not plain), plain)


def _run_node(tracer: Any, node: Any, args: Any, kwargs: Any, *rest: Any) -> Any:
    """Stand in for `run_node`, which runs one node of the outermost graph."""
    with patched(MAKERS):
        return run_node(tracer, node, args, _placed(node.target, kwargs), *rest)


def _call_function(interpreter: Any, target: Any, args: Any, kwargs: Any) -> Any:
    """Stand in for `Interpreter.call_function`, which runs one node of a graph inside another."""
    return _interpreted(interpreter, target, args, _placed(target, kwargs))


def _placed(target: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Let C++ copy data of the host to the virtual device, and not to CUDA."""
    if target in _FROM_DATA and placement.is_gpu(kwargs.get("device")):
        return {**kwargs, "device": DEVICE}
    return kwargs


def _is_virtual_device(value: Any) -> bool:
    return isinstance(value, torch.device) and value.type == NAME


def _tensor(data: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> torch.Tensor:
    """Stand in for `torch.tensor` where PyTorch's own code makes numbers on the GPU: C++ would copy to CUDA."""
    if placement.is_gpu(device):
        if isinstance(data, (int, float, complex)):
            return torch.full((), data, dtype=dtype, device=device)
        device = DEVICE
    return originals.tensor(data, dtype=dtype, device=device, **options)  # type: ignore[no-any-return]


MAKERS: list[Patch] = [(torch, "tensor", _tensor)]
"""Patches while fakes run through PyTorch's code: owner, name, replacement."""


def patches(running: Simulated) -> list[Patch]:
    """Patches while a program that compiles runs: owner, name, replacement."""
    shown = placement.CUDA if running.cuda else placement.CPU

    def on_device(device: torch.device) -> torch.device | None:
        return DEVICE if device.type in (NAME, shown.type) else None

    def device_shown_of_fake(fake: Any) -> torch.device:
        if fake.fake_mode.in_kernel_invocation:
            return torch.device("meta")
        device = device_of_fake(fake)
        return shown if device.type == NAME else device

    def device_shown(tensor: torch.Tensor) -> torch.device:
        device = real_device_of(tensor)
        if device.type != NAME:
            return device
        return placement.device_of(tensor) if is_stored(tensor) else shown

    def decomposed(mode: Any, op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Stand in for `maybe_handle_decomp`: C++ names the virtual device, which no fake is on for decompositions.

        They would take `x.type_as(y)` for a copy from one device to another, which is not computed again in backward.
        """
        named = {name: shown if _is_virtual_device(value) else value for name, value in kwargs.items()}
        return decompose(mode, op, args, named)

    text_of_stored: Callable[..., str] = torch.Tensor.__repr__

    def text(tensor: torch.Tensor, **options: Any) -> str:
        """Describe a fake without its values: PyTorch writes it into its logs."""
        if is_stored(tensor):
            return text_of_stored(tensor, **options)
        return f"{type(tensor).__name__}(size={tuple(tensor.shape)}, dtype={tensor.dtype})"

    return [
        (torch.Tensor, "__repr__", text),
        (compile_metrics, RUN_NODE, _run_node),
        (Interpreter, "call_function", _call_function),
        (graph_makers, DECOMPOSE, decomposed),
        (compiled, CONVOLUTION_FORMAT, _convolution_format),
        *placing_fakes(on_device),
        (FakeTensor, "device", property(device_shown_of_fake)),
        (torch.Tensor, "device", property(device_shown)),
        *((module, "is_host", is_host) for module in (autocast, composites, engine, placement)),
    ]
