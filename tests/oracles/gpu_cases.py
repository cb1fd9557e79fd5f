"""Ops as lines of Python that make their operands and call, to run on memlint's GPU: `fixtures/ops/cases.json`.

In a line `r` gives floats that need a gradient, `n` floats that need none, `i` integers below its first argument.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.oracles.single_ops import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Tensor = torch.Tensor
MEASURED = Path(__file__).parents[2] / "fixtures" / "ops" / "cases.json"
D = "cuda"


def measured() -> dict[str, tuple[int, int]]:
    """Each line, and the bytes that it took on an H200 in its first and second step."""
    return {text: (first, second) for text, (first, second) in json.loads(MEASURED.read_text()).items()}


def r(*shape: int, dt: torch.dtype = torch.float32, last: bool = False) -> Tensor:
    """Floats that need a gradient; with `last` in channels_last."""
    x = torch.randn(*shape, device=D, dtype=dt)
    return (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()


def n(*shape: int, dt: torch.dtype = torch.float32) -> Tensor:
    """Floats that need no gradient."""
    return torch.randn(*shape, device=D, dtype=dt)


def i(high: int, *shape: int) -> Tensor:
    """Integers below `high`."""
    return torch.randint(0, high, shape, device=D)


def benchmark(function: Callable[[], Tensor]) -> Tensor:
    """Call with cuDNN's search for the fastest algorithm."""
    torch.backends.cudnn.benchmark = True
    try:
        return function()
    finally:
        torch.backends.cudnn.benchmark = False


def rnn(layer: nn.Module, dt: torch.dtype, x: Tensor) -> Any:
    """Call a recurrent layer."""
    return layer.to(D, dt)(x)[0]


def packed(layer: nn.Module, x: Tensor) -> Any:
    """Call a recurrent layer with sequences of 100 steps and fewer."""
    lengths = torch.arange(100, 84, -1)
    return layer.to(D)(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[0].data


def sdpa(backend: str, *operands: Tensor, **options: Any) -> Tensor:
    """Call attention with the backend of this name."""
    with sdpa_kernel(getattr(SDPBackend, backend)):
        return F.scaled_dot_product_attention(*operands, **options)


def scaled_mm(m: int, k: int, columns: int) -> Tensor:
    """Multiply matrices of eight bits."""
    a = torch.randn(m, k, device=D).to(torch.float8_e4m3fn)
    b = torch.randn(columns, k, device=D).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=D)
    return torch._scaled_mm(a, b, one, torch.ones((), device=D), out_dtype=torch.bfloat16)


def with_grads(parameters: Iterable[Tensor]) -> None:
    """Give each parameter a gradient."""
    for each in parameters:
        each.grad = torch.ones_like(each)


def clip_grads(parameters: list[Tensor], **options: Any) -> Tensor:
    """Clip the norm of gradients."""
    with_grads(parameters)
    return nn.utils.clip_grad_norm_(parameters, 1.0, **options)


def scaler_step(parameters: list[Tensor]) -> None:
    """Make a step of SGD with scaled gradients."""
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(parameters, 0.1)
    scaler.scale(sum(p.sum() for p in parameters)).backward()  # type: ignore[union-attr]
    scaler.step(optimizer)
    scaler.update()


def optimize(name: str, parameters: list[Tensor], **options: Any) -> None:
    """Make two steps of an optimizer."""
    with_grads(parameters)
    optimizer = getattr(torch.optim, name)(parameters, **options)
    optimizer.step()
    optimizer.step()


def module(layer: nn.Module, *operands: Tensor) -> Any:
    """Call a module."""
    out = layer.to(D)(*operands)
    return out[0] if isinstance(out, tuple) else out


def nograd(layer: nn.Module, *operands: Tensor) -> Any:
    """Call a module without gradients."""
    with torch.no_grad():
        return module(layer, *operands)


def conv2d(*operands: Any) -> Tensor:
    """Convolve images."""
    return F.conv2d(*operands)


class Line:
    """A program of one line: each step evaluates it, and goes back from results that need a gradient."""

    def __init__(self, text: str) -> None:
        self.code = compile(text, text, "eval")

    def setup(self) -> None:
        """Nothing lives across steps."""

    def step(self) -> None:
        """Evaluate the line and go back."""
        made = tensors_in(eval(self.code))
        out = [t for t in made if t.grad_fn is not None and t.layout is torch.strided]
        if out:
            torch.autograd.backward(out, [torch.ones_like(t) for t in out])
