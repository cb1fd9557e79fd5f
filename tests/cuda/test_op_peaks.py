"""Peaks of single ops, forward and backward, against those that others measured on GPUs (fixtures/op_peaks.csv).

They agree to the byte, so each case keeps alive what its benchmark kept, local variables included.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

MIB = 2**20
GPUS = {
    "NVIDIA A100-SXM4-80GB": "a100-80gb",
    "NVIDIA H100 PCIe": "h100-80gb",
    "NVIDIA H100 80GB HBM3": "h100-80gb",
    "NVIDIA GeForce RTX 3090": "rtx3090",
    "NVIDIA B200": "b200",
}


class Measured(NamedTuple):
    op: str
    x: int
    config: dict[str, Any]
    gpu: str
    peak: float
    """MiB."""


def read() -> list[Measured]:
    path = Path(__file__).parents[2] / "fixtures" / "op_peaks.csv"
    with path.open() as file:
        return [
            Measured(r["op"], int(r["x_value"]), json.loads(r["config"]), GPUS[r["gpu"]], float(r["peak_mib"]))
            for r in csv.DictReader(file)
        ]


class RMSNorm(nn.Module):
    """In float32 whatever the input, the weight too, as in Hugging Face's Llama."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class GatedMLP(nn.Module):
    def __init__(self, width: int, hidden: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


def sparsemax(x: Tensor) -> Tensor:
    """The nearest point of the simplex: what is left above a threshold found from the sorted values."""
    ordered, _order = torch.sort(x, dim=-1, descending=True)
    sums = ordered.cumsum(-1)
    ranks = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype).view(1, -1)
    bound = 1 + ranks * ordered
    support = bound > sums
    size = support.sum(-1, keepdim=True).clamp(min=1)
    total = (ordered * support).sum(-1, keepdim=True)
    threshold = (total - 1) / size
    return torch.clamp(x - threshold, min=0)


# Each builds what a benchmark keeps alive and gives it with the call that was measured.
Case = tuple[Callable[[], None], object]


def normalised(module: Callable[[], nn.Module], x: Tensor) -> Case:
    grad = torch.randn_like(x)
    x.requires_grad_()
    norm, other = module().to("cuda"), module().to("cuda")

    def call() -> None:
        y = norm(x)
        y.backward(grad, retain_graph=True)

    return call, other


def cross_entropy(x: int, config: dict[str, Any]) -> Case:
    rows = config["B"] * config["T"]
    logits = torch.randn(rows, x, device="cuda", requires_grad=True)
    target = torch.randint(x, (rows,), device="cuda")
    return lambda: F.cross_entropy(logits, target).backward(), None


def layer_norm(x: int, config: dict[str, Any]) -> Case:
    return normalised(lambda: nn.LayerNorm(x, eps=1e-6), torch.randn(config["M"], x, device="cuda"))


def rms_norm(x: int, config: dict[str, Any]) -> Case:
    return normalised(lambda: RMSNorm(x), torch.randn(config["M"], x, device="cuda", dtype=torch.bfloat16))


def group_norm(x: int, config: dict[str, Any]) -> Case:
    groups = x // config["channels_per_group"]
    return normalised(lambda: nn.GroupNorm(groups, x), torch.randn(config["M"], x, config["H"], device="cuda"))


def softmax(x: int, config: dict[str, Any]) -> Case:
    dtype = getattr(torch, config["dtype"].removeprefix("torch."))
    scores = torch.randn(x, device="cuda", dtype=dtype, requires_grad=True)  # one row, whatever M says

    def call() -> None:
        y = F.softmax(scores, dim=-1)
        y.backward(torch.ones_like(y), retain_graph=True)

    return call, None


def distributions(x: int, config: dict[str, Any], normalise: Callable[[Tensor, int], Tensor]) -> tuple[Tensor, Tensor]:
    rows = config["B"] * config["T"]
    scores = torch.randn(rows, x, device="cuda", requires_grad=True)
    return normalise(scores, -1), torch.randn(rows, x, device="cuda").softmax(-1)


def kl_div(x: int, config: dict[str, Any]) -> Case:
    log_p, q = distributions(x, config, torch.log_softmax)
    return lambda: F.kl_div(log_p, q, reduction="batchmean").backward(retain_graph=True), None


def tvd(x: int, config: dict[str, Any]) -> Case:
    p, q = distributions(x, config, torch.softmax)

    def call() -> None:
        loss = torch.abs(p - q) / 2.0
        loss = torch.sum(loss) / p.shape[0]
        loss.backward(retain_graph=True)

    return call, None


def gated_mlp(x: int, config: dict[str, Any], activation: Callable[[Tensor], Tensor]) -> Case:
    batch = config["B"] if "B" in config else config["bsz"]
    width = config["hidden_size"]
    tokens = torch.randn(batch, x, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    mlp = GatedMLP(width, config["intermediate_size"], activation).to("cuda", torch.bfloat16)

    def call() -> None:
        y = mlp(tokens)
        y.backward(torch.randn_like(y), retain_graph=True)

    return call, None


def swiglu(x: int, config: dict[str, Any]) -> Case:
    return gated_mlp(x, config, F.silu)


def geglu(x: int, config: dict[str, Any]) -> Case:
    return gated_mlp(x, config, lambda y: F.gelu(y, approximate="tanh"))


def embedding(x: int, config: dict[str, Any]) -> Case:
    table, other = (nn.Embedding(x, config["D"]).to("cuda") for _ in range(2))
    tokens = torch.randint(x, (config["B"], config["T"]), device="cuda")

    def call() -> None:
        y = table(tokens)
        y.backward(torch.randn_like(y))

    return call, other


def fused_linear_cross_entropy(x: int, config: dict[str, Any]) -> Case:
    width, vocabulary = config["H"], config["V"]
    head, other = (nn.Linear(width, vocabulary, bias=False, dtype=torch.bfloat16).to("cuda") for _ in range(2))
    tokens = torch.randn(x, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    target = torch.randint(vocabulary, (x,), device="cuda")
    return lambda: F.cross_entropy(head(tokens), target).backward(), other


def sparsemax_rows(x: int, config: dict[str, Any]) -> Case:
    scores = torch.randn(config["B"] * config["T"], x, device="cuda", requires_grad=True)
    grad = torch.randn_like(scores)

    def call() -> None:
        sparsemax(scores).backward(grad, retain_graph=True)

    return call, None


CASES: dict[str, Callable[[int, dict[str, Any]], Case]] = {
    "cross_entropy": cross_entropy,
    "embedding": embedding,
    "fused_linear_cross_entropy": fused_linear_cross_entropy,
    "geglu": geglu,
    "group_norm": group_norm,
    "kl_div": kl_div,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "softmax": softmax,
    "sparsemax": sparsemax_rows,
    "swiglu": swiglu,
    "tvd": tvd,
}


def predicted(measured: Measured) -> float:
    """The peak of the third call, in MiB; every later one is like it."""
    with virtual_device(device_named(measured.gpu)):
        call, kept = CASES[measured.op](measured.x, measured.config)
        for _ in range(3):
            torch.cuda.reset_peak_memory_stats()
            call()
        peak = torch.cuda.max_memory_allocated()
        del call, kept
    return torch.tensor(peak, dtype=torch.float32).item() / MIB  # the benchmark's median is a float32


MEASURED = read()


@pytest.mark.parametrize(
    "measured", [m for m in MEASURED if m.op != "embedding"], ids=lambda m: f"{m.op}-{m.x}-{m.gpu}"
)
def test_peak_of_an_op_is_the_measured_one(measured: Measured) -> None:
    assert predicted(measured) == measured.peak


def test_peaks_of_the_embedding_differ_from_the_measured_ones_by_what_its_process_held_already() -> None:
    """12,240 MiB for one width and 13,769.6 for the other, at every size of the vocabulary."""
    rest = defaultdict(list)
    for measured in MEASURED:
        if measured.op == "embedding":
            rest[measured.config["D"]].append(measured.peak - predicted(measured))
    assert {width: len(values) for width, values in rest.items()} == {768: 8, 4096: 8}
    for values in rest.values():
        assert values == pytest.approx([values[0]] * len(values), abs=0.002)
