"""Quantized tensors and layers, histograms and solvers that iterate, against real runs on the CPU."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.session.real.cpu import measure_cpu_step
from memlint.tracing.recorder import trace_program

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore")


class Calls:
    """A program that makes something, and in each step calls something with it."""

    def __init__(self, make: Callable[[], Any], call: Callable[[Any], Any]) -> None:
        self.make = make
        self.call = call

    def setup(self) -> None:
        self.made = self.make()

    def step(self) -> None:
        with torch.no_grad():
            self.call(self.made)


def peaks(make: Callable[[], Any], call: Callable[[Any], Any]) -> tuple[int, int]:
    """Of a real step on the CPU, and of the predicted one."""
    trace = trace_program(Calls(make, call), device_named("cpu"), num_steps=1).trace
    sizes = (trace.buffers[e].nbytes if e >= 0 else -trace.buffers[~e].nbytes for e in trace.events)
    return measure_cpu_step(Calls(make, call), num_steps=1).peak_nbytes, max(accumulate(sizes))


def by_channel(x: torch.Tensor) -> torch.Tensor:
    scales, zeros = torch.full((256,), 0.1), torch.zeros(256, dtype=torch.long)
    return torch.quantize_per_channel(x, scales, zeros, 1, torch.quint8)


@pytest.mark.parametrize(
    "call",
    [
        by_channel,
        lambda x: by_channel(x).dequantize(),
        lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.qint8).int_repr(),
        lambda x: torch.histogramdd(x[:, :3], [5, 6, 70]),
        lambda x: torch.histogramdd(x[:, :3], [torch.linspace(0, 1, 6)] * 3),
    ],
)
def test_it_takes_what_it_takes_really(call: Callable[[Any], Any]) -> None:
    real, predicted = peaks(lambda: torch.rand(64, 256), call)
    assert abs(predicted - real) <= 64


def dynamic() -> tuple[nn.Module, torch.Tensor]:
    linear = nn.Linear(256, 512)
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(linear), {nn.Linear}, dtype=torch.qint8)
    return quantized, torch.randn(4096, 256)


def test_a_dynamically_quantized_layer_takes_its_packed_weight_as_well() -> None:
    real, predicted = peaks(dynamic, lambda made: made[0](made[1]))
    assert predicted - real == 256 * 512  # PyTorch's allocator does not see what FBGEMM packs


def test_cuda_has_no_kernel_for_it() -> None:
    with virtual_device(device_named("a100-80gb")):
        model, x = dynamic()
        with pytest.raises(NotImplementedError, match="CUDA"):
            model(x.cuda())
        with pytest.raises(NotImplementedError, match="CUDA"):
            torch.histogram(x.cuda(), 10)


def test_a_solver_that_asks_for_values_comes_to_an_end() -> None:
    real, predicted = peaks(lambda: torch.rand(256, 256), lambda x: torch.lobpcg(x @ x.T, k=2))
    assert real <= predicted <= 1.02 * real


def test_weights_of_four_bits_are_packed_and_their_product_takes_its_result_alone() -> None:
    with virtual_device(device_named("h100-80gb")) as ledger:
        packed = torch.empty(512, 128, dtype=torch.uint8, device="cuda")
        weight = torch._convert_weight_to_int4pack(packed, 8)
        scales = torch.empty(2, 512, 2, dtype=torch.bfloat16, device="cuda")
        x = torch.empty(16, 256, dtype=torch.bfloat16, device="cuda")
        before = len(ledger.events)
        out = torch._weight_int4pack_mm(x, weight, 128, scales)
        assert weight.shape == (64, 2, 32, 4)
        assert weight.nbytes == 512 * 256 // 2
        assert (out.shape, out.dtype) == ((16, 512), torch.bfloat16)
        assert [ledger.births[event].nbytes for event in ledger.events[before:]] == [16 * 512 * 2]
