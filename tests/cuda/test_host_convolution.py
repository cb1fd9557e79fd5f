"""Memory of a convolution and its backward on the host, against real ones under the profiler."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from memlint.memory.devices import device_named
from memlint.memory.estimate import Interval, estimate
from memlint.memory.timeline import Timeline
from memlint.session.real.cpu import measure_cpu_step
from memlint.tracing.recorder import trace_program

HOST = device_named("cpu")
CONTIGUOUS, CHANNELS_LAST = torch.contiguous_format, torch.channels_last
LAYERS = {
    "downsampling": (nn.Conv2d(96, 192, 2, stride=2), (2, 96, 16, 16)),
    "depthwise": (nn.Conv2d(96, 96, 7, padding=3, groups=96), (2, 96, 16, 16)),
    "groups": (nn.Conv2d(96, 96, 3, padding=1, groups=4), (2, 96, 16, 16)),
    "square": (nn.Conv2d(64, 128, 3, padding=1), (2, 64, 16, 16)),
    "stem": (nn.Conv2d(3, 64, 4, stride=4), (2, 3, 32, 32)),
    "small": (nn.Conv2d(16, 16, 3, padding=1), (1, 16, 16, 16)),
    "large": (nn.Conv2d(64, 64, 3, padding=1), (1, 64, 32, 32)),
    "points": (nn.Conv2d(64, 128, 1), (16, 64, 16, 16)),
    "transposed": (nn.ConvTranspose2d(64, 32, 2, stride=2), (2, 64, 16, 16)),
    "signal": (nn.Conv1d(64, 32, 3, padding=1), (2, 64, 100)),
    "volume": (nn.Conv3d(16, 32, 3, padding=1), (2, 16, 8, 8, 8)),
    "small-volume": (nn.Conv3d(16, 32, 3, padding=1), (1, 16, 4, 4, 4)),
    "double": (nn.Conv2d(16, 16, 3, padding=1, dtype=torch.float64), (2, 16, 16, 16)),
}
LAST = ("downsampling", "depthwise", "square", "stem", "points")
"""Layers that are tried where channels come last, too."""
CERTAIN = {"downsampling", "square", "points"}
"""Layers whose peak is in the gradient of the weight where channels come last: copies that PyTorch makes."""


@dataclass
class Layer:
    """A step of one layer, whose input wants a gradient too."""

    name: str
    layout: torch.memory_format
    device: str = "cpu"
    generates: bool = field(default=False, init=False)

    def setup(self) -> None:
        layer, shape = LAYERS[self.name]
        dtype = next(layer.parameters()).dtype
        self.layer = type(layer)(**_options(layer), dtype=dtype).to(memory_format=self.layout)
        x = torch.randn(shape, dtype=dtype).to(memory_format=self.layout)
        self.x = x.requires_grad_()
        self.inputs = {"x": self.x}

    def step(self) -> None:
        out = self.layer(self.x)
        out.backward(out.detach())


def _options(layer: nn.Module) -> dict[str, object]:
    names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "groups")
    return {name: getattr(layer, name) for name in names}


def predicted(layer: Layer) -> Interval:
    trace = trace_program(layer, HOST).trace
    return estimate(Timeline.of(trace), HOST, trace.nodes).requested


@pytest.mark.parametrize(
    ("name", "layout"), [*((name, CONTIGUOUS) for name in LAYERS), *((name, CHANNELS_LAST) for name in LAST)], ids=str
)
def test_a_convolution_takes_no_more_than_its_bound_and_no_less_than_the_copies_that_pytorch_makes(
    name: str, layout: torch.memory_format
) -> None:
    interval = predicted(Layer(name, layout))
    real = measure_cpu_step(Layer(name, layout)).peak_nbytes
    assert interval.low <= real <= interval.high
    if layout is CHANNELS_LAST and name in CERTAIN:
        assert interval.low == real
