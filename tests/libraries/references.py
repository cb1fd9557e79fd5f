"""Peaks of steps with libraries on the host, for real or as predicted: `python references.py LIBRARY real|predicted`."""

from __future__ import annotations

import functools
import json
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F

from memlint.libraries import installation
from memlint.memory.devices import device_named
from memlint.memory.estimate import peaks
from memlint.session.real.cpu import measure_cpu_step
from memlint.tracing.recorder import trace_program

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, WORDS, ROWS = 256, 4096, 256


class Step:
    """A module called with tensors, and its backward; with an optimizer, its step."""

    def __init__(self, make: Callable[[], tuple[nn.Module, list[Any]]], optimizer: Any = None) -> None:
        self.make, self.make_optimizer = make, optimizer

    def setup(self) -> None:
        self.module, self.inputs = self.make()
        self.optimizer = self.make_optimizer(self.module.parameters()) if self.make_optimizer else None

    def step(self) -> None:
        self.module(*self.inputs).sum().backward()
        if self.optimizer is not None:
            self.optimizer.step()
        self.module.zero_grad()
        for each in self.inputs:
            each.grad = None


def _x(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=grad)


class _Of(nn.Module):
    """A function as a module, with weights."""

    def __init__(self, function: Callable[..., Any], **weights: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, weight in weights.items():
            setattr(self, name, weight)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def _rms_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _gated(activation: Callable[..., Any], self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.down(activation(self.gate(x)) * self.up(x))


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def _divergence(_self: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    student, teacher = a.log_softmax(-1), b.log_softmax(-1)
    mean = torch.lerp(teacher.exp(), student.exp(), 0.5).log()
    return sum(0.5 * F.kl_div(mean, each, reduction="none", log_target=True) for each in (student, teacher))


def _gate_weights() -> dict[str, nn.Module]:
    sizes = {"gate": (WIDTH, 3 * WIDTH), "up": (WIDTH, 3 * WIDTH), "down": (3 * WIDTH, WIDTH)}
    return {name: nn.Linear(*size, bias=False) for name, size in sizes.items()}


def _preference(kind: str, *, reference: bool) -> tuple[nn.Module, list[Any]]:
    from liger_kernel import chunked_loss

    loss = getattr(chunked_loss, f"LigerFusedLinear{kind}Loss")(
        compiled=False, **({"use_ref_model": True} if reference else {})
    )
    head, other = (nn.Linear(128, 1024, bias=False) for _ in range(2))

    def call(self: Any, hidden: torch.Tensor, words: torch.Tensor, of_reference: torch.Tensor) -> Any:
        more = (None, of_reference, self.other.weight) if reference else ()
        return loss(self.head.weight, hidden, words, *more)[0]

    inputs = [_x(8, 64, 128), torch.randint(1024, (8, 64)), _x(8, 64, 128, grad=False)]
    return _Of(call, head=head, other=other.requires_grad_(False)), inputs


def _liger() -> dict[str, Step]:
    """What Liger's kernels are compared with in its tests, and its losses in chunks, which are PyTorch's ops."""
    logits = lambda: [_x(ROWS, WORDS), _x(ROWS, WORDS, grad=False)]  # noqa: E731
    words = lambda: torch.randint(WORDS, (ROWS,))  # noqa: E731
    halves = lambda: [_x(1, 1, 128, 32, grad=False) for _ in range(2)]  # noqa: E731
    rotary = _Of(lambda _self, q, k, *angles: _rotated(q, *angles) + _rotated(k, *angles))
    made = {
        "RMSNorm": lambda: (_Of(_rms_norm, weight=nn.Parameter(torch.ones(WIDTH))), [_x(4, 128, WIDTH)]),
        "layer norm": lambda: (nn.LayerNorm(WIDTH), [_x(4, 128, WIDTH)]),
        "SwiGLU": lambda: (_Of(functools.partial(_gated, F.silu), **_gate_weights()), [_x(4, 128, WIDTH)]),
        "GeGLU": lambda: (_Of(functools.partial(_gated, functools.partial(F.gelu, approximate="tanh")),
                              **_gate_weights()), [_x(4, 128, WIDTH)]),
        "RoPE": lambda: (rotary, [_x(2, 8, 128, 32), _x(2, 8, 128, 32), *halves()]),
        "cross entropy": lambda: (nn.CrossEntropyLoss(), [_x(ROWS, WORDS), words()]),
        "linear cross entropy": lambda: (
            _Of(lambda self, x, y: F.cross_entropy(self.head(x).float(), y), head=nn.Linear(WIDTH, WORDS, bias=False)),
            [_x(ROWS, WIDTH), words()],
        ),
        "KL divergence": lambda: (
            _Of(lambda _self, a, b: F.kl_div(a.log_softmax(-1), b.softmax(-1), reduction="batchmean")), logits()
        ),
        "JSD": lambda: (_Of(_divergence), logits()),
        **{kind: functools.partial(_preference, kind, reference=kind == "DPO")
           for kind in ("DPO", "ORPO", "CPO", "SimPO")},
    }  # fmt: skip
    return {name: Step(make) for name, make in made.items()}


def _bitsandbytes() -> dict[str, Step]:
    import bitsandbytes

    def four_bits(kind: str) -> tuple[nn.Module, list[Any]]:
        layer = bitsandbytes.nn.Linear4bit(WIDTH, 512, bias=False, quant_type=kind, compute_dtype=torch.float32)
        return layer.to("cpu"), [_x(128, WIDTH)]

    def plain() -> tuple[nn.Module, list[Any]]:
        return nn.Linear(512, 512), [_x(16, 512)]

    optimizers = {name: getattr(bitsandbytes.optim, name) for name in ("Adam", "Adam8bit", "Lion8bit")}
    steps = {name: Step(plain, optimizer) for name, optimizer in optimizers.items()}
    return {kind: Step(functools.partial(four_bits, kind)) for kind in ("nf4", "fp4")} | steps


def _torchao() -> dict[str, Step]:
    import torchao.optim
    from torchao import quantization

    torch.compile = lambda function=None, **_: function or (lambda f: f)  # a GPU's steps are compared eagerly as well

    def plain() -> tuple[nn.Module, list[Any]]:
        return nn.Linear(512, 512), [_x(16, 512)]

    def quantized(config: str) -> tuple[nn.Module, list[Any]]:
        model = nn.Sequential(nn.Linear(512, 512, bias=False))
        quantization.quantize_(model, getattr(quantization, config)())
        return model, [_x(16, 512)]

    optimizers = {name: getattr(torchao.optim, name) for name in ("AdamW8bit", "AdamW4bit", "AdamWFp8")}
    configs = {name: Step(functools.partial(quantized, name)) for name in ("Int8WeightOnlyConfig",)}
    return {name: Step(plain, optimizer) for name, optimizer in optimizers.items()} | configs


def _real(step: Step) -> list[int]:
    step.setup()
    step.step()  # what is taken once for a process belongs to no step
    return [measure_cpu_step(step, num_steps=1).peak_nbytes] * 2


def _predicted(step: Step) -> list[int]:
    trace = trace_program(step, device_named("cpu"), num_steps=1).trace
    sizes = [buffer.nbytes for buffer in trace.buffers]
    interval = peaks(sizes, trace.events, trace.doubts, device_named("cpu")).requested
    return [interval.low, interval.high]


if __name__ == "__main__":
    library, how = sys.argv[1:]
    if how == "predicted":
        installation.install()
    steps = {"liger_kernel": _liger, "bitsandbytes": _bitsandbytes, "torchao": _torchao}[library]()
    found = {name: (_predicted if how == "predicted" else _real)(step) for name, step in steps.items()}
    sys.stderr.write(json.dumps(found) + "\n")
