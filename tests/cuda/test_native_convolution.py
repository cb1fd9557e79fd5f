"""Convolutions without cuDNN: the columns PyTorch lays out, as failures and peaks that others published say them."""

from dataclasses import replace

import pytest
import torch

from memlint.cuda.session import virtual_device
from memlint.cuda.versions import cudnn_text, cudnn_versions
from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program

pytestmark = pytest.mark.usefixtures("checked_torch")

GIB = 2**30
T4, V100, A100 = (device_named(name) for name in ("t4", "v100-16gb", "a100-80gb"))
HALF = torch.float16
SMALL = (4, 32, 20, 20)


class Layer:
    """A layer, with gradients where its input has some; `flags` are those of `torch.backends.cudnn`."""

    def __init__(self, make, x, dtype=torch.float32, *, gradients=True, layout=torch.contiguous_format, **flags):
        self.make, self.shape, self.dtype, self.gradients, self.layout = make, x, dtype, gradients, layout
        self.flags = {"enabled": True, "allow_tf32": False, **flags}

    def setup(self):
        self.layer = self.make().to("cuda", self.dtype)
        x = torch.randn(self.shape, device="cuda", dtype=self.dtype).contiguous(memory_format=self.layout)
        self.x = x.requires_grad_(self.gradients)

    def step(self):
        with torch.backends.cudnn.flags(**self.flags), torch.set_grad_enabled(self.gradients):
            y = self.layer(self.x)
            if self.gradients:
                y.backward(torch.ones_like(y))


def traced(program, device=V100, version=None):
    return trace_program(program, replace(device, torch=version), num_steps=1).trace


def columns(trace):
    """Sizes of what convolutions take beside tensors, in order."""
    return [b.nbytes for b in trace.buffers if b.dtype == "uint8" and b.op.startswith("aten.convolution") and b.nbytes]


@pytest.mark.parametrize(
    ("version", "layer", "x", "dtype", "gib"),
    [
        # github.com/pytorch/pytorch/issues/128947, 136479 and 95024: "Tried to allocate ..."
        ((2, 3), lambda: torch.nn.Conv3d(256, 64, 3), (1, 256, 5, 1090, 1922), torch.float32, "161.37"),
        ((2, 3), lambda: torch.nn.Conv3d(128, 128, 3, padding=1), (1, 128, 256, 256, 256), HALF, "108.00"),
        ((2, 1), lambda: torch.nn.Conv3d(64, 32, 3, padding=1), (1, 64, 362, 370, 251), HALF, "108.21"),
    ],
)
def test_more_elements_than_32_bits_count_take_the_columns_that_published_failures_asked_for(
    version, layer, x, dtype, gib
):
    trace = traced(Layer(layer, x, dtype, gradients=False), A100, version)
    (nbytes,) = columns(trace)
    assert f"{nbytes / GIB:.2f}" == gib
    assert trace.doubts == ()
    (assumption,) = trace.assumptions
    assert "more than 2**31 - 1 elements" in assumption.text
    assert cudnn_text(8902) in assumption.text


def test_the_published_peak_of_a_large_layer_is_met():
    """github.com/pytorch/pytorch/issues/132300, July 2024: "the max memory allocated is ~9.26 GB". The GPU is not named: a Hopper's cuBLAS takes 32 MiB."""
    x = (1, 3, 24, 740, 1316)
    program = Layer(lambda: torch.nn.Conv3d(3, 128, 3, padding=1), x, torch.bfloat16, gradients=False)
    trace = traced(program, device_named("h100-80gb"), (2, 4))
    peak = estimate(Timeline.of(trace), A100, trace.nodes).allocated.estimate
    assert f"{peak / GIB:.2f}" in ("9.25", "9.26")


def test_one_frame_less_is_left_to_cudnn():
    """The same issue 128947: four frames are below the limit and ran."""
    trace = traced(Layer(lambda: torch.nn.Conv3d(256, 64, 3), (1, 256, 4, 1090, 1922), gradients=False), A100, (2, 3))
    assert columns(trace) == []


@pytest.mark.parametrize(
    ("version", "bounds"),
    [((2, 3), None), ((2, 5), None), ((2, 6), "some wheels"), ((2, 7), "none"), ((2, 13), "none")],
)
def test_cudnn_takes_large_convolutions_since_9_3(version, bounds):
    trace = traced(Layer(lambda: torch.nn.Conv3d(256, 64, 3), (1, 256, 5, 1090, 1922), gradients=False), A100, version)
    taken = 256 * 27 * 3 * 1088 * 1920 * 4
    assert columns(trace) == ([] if bounds == "none" else [taken])
    if bounds == "some wheels":
        (doubt,) = trace.doubts
        assert (doubt.low, doubt.high) == (0, taken)


@pytest.mark.parametrize("version", [(2, 8), (2, 9), (2, 10), (2, 11)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, HALF])
def test_three_dimensions_in_half_precision_are_left_to_pytorch_where_cudnn_is_broken(version, dtype):
    """github.com/pytorch/pytorch/issues/166643 and 177406: torch 2.9 takes columns that 2.8 does not."""
    trace = traced(Layer(lambda: torch.nn.Conv3d(96, 96, 3, padding=1), (1, 96, 8, 256, 256), dtype), A100, version)
    taken = 96 * 27 * 8 * 256 * 256 * 2
    assert columns(trace).count(taken) == (2 if version in ((2, 9), (2, 10)) else 0)
    if version == (2, 9):
        assert trace.doubts == ()
    if version == (2, 10):  # the wheel for CUDA 13 has cuDNN 9.15.1
        assert {(doubt.low, doubt.high) for doubt in trace.doubts} == {(0, taken)}


@pytest.mark.parametrize(
    ("layer", "layout", "dtype", "numel"),
    [
        (lambda: torch.nn.Conv3d(8, 8, 1), torch.contiguous_format, HALF, 8 * 6**3),
        (lambda: torch.nn.Conv3d(8, 8, 3), torch.channels_last_3d, HALF, 8 * 27 * 4**3),
        (lambda: torch.nn.Conv3d(8, 8, 3), torch.contiguous_format, torch.float32, 8 * 27 * 4**3),
        (lambda: torch.nn.Conv3d(8, 16, 3, groups=8), torch.contiguous_format, HALF, 8 * 27 * 4**3),
    ],
)
def test_the_others_of_three_dimensions_are_not(layer, layout, dtype, numel):
    trace = traced(Layer(layer, (2, 8, 6, 6, 6), dtype, layout=layout), A100, (2, 9))
    assert numel * dtype.itemsize not in columns(trace)
    assert trace.assumptions == ()


@pytest.mark.parametrize(("device", "expected"), [(T4, [230_400] * 2), (V100, [230_400] * 2), (A100, None)])
def test_bfloat16_is_left_to_pytorch_on_gpus_before_ampere(device, expected):
    """CUDAHooks.cpp, supportsBFloat16ConvolutionWithCuDNNv8: from compute capability 8 on."""
    trace = traced(Layer(lambda: torch.nn.Conv2d(32, 64, 3, padding=1), SMALL, torch.bfloat16), device)
    assert expected is None or columns(trace) == expected == [32 * 9 * 20 * 20 * 2] * 2
    assert (trace.doubts == ()) == (expected is not None)


@pytest.mark.parametrize(("version", "is_native"), [((2, 4), True), ((2, 6), None), ((2, 8), False)])
def test_deterministic_convolutions_with_gaps_were_pytorch_s_own(version, is_native):
    program = Layer(lambda: torch.nn.Conv2d(32, 64, 3, dilation=2), SMALL, deterministic=True)
    taken = 32 * 9 * 16 * 16 * 4
    trace = traced(program, version=version)
    assert (columns(trace) == [taken, taken]) == (is_native is not False)
    if is_native is None:
        assert {(doubt.low, doubt.high) for doubt in trace.doubts} == {(0, taken)}


@pytest.mark.parametrize(
    ("layer", "x", "expected"),
    [
        # one buffer for forward, one for both gradients (ConvolutionMM2d.cu, NaiveDilatedConvolution.cu)
        (lambda: torch.nn.Conv1d(32, 64, 3, padding=1), (4, 32, 20), [32 * 3 * 20] * 2),
        (lambda: torch.nn.Conv2d(32, 64, 3, padding=1), SMALL, [32 * 9 * 400] * 2),
        (lambda: torch.nn.Conv2d(32, 64, 3, padding=2, dilation=2), SMALL, [32 * 9 * 400] * 2),
        (lambda: torch.nn.Conv3d(8, 4, 3), (2, 8, 6, 6, 6), [8 * 27 * 64] * 2),
        (lambda: torch.nn.Conv3d(8, 4, 1), (2, 8, 6, 6, 6), [8 * 216] * 2),
        # of a product of matrices, backward alone makes them
        (lambda: torch.nn.Conv2d(32, 64, 1), SMALL, [32 * 400]),
        # each group has its own
        (lambda: torch.nn.Conv2d(32, 64, 3, padding=1, groups=4), SMALL, [8 * 9 * 400] * 8),
        # transposed: for each gradient, and ones for the bias (NaiveConvolutionTranspose2d.cu and 3d.cu)
        (lambda: torch.nn.ConvTranspose1d(8, 4, 3), (2, 8, 10), [4 * 3 * 10, 12, 4 * 3 * 10, 4 * 3 * 10]),
        (lambda: torch.nn.ConvTranspose2d(32, 64, 2, stride=2, bias=False), SMALL, [64 * 4 * 400] * 3),
        (lambda: torch.nn.ConvTranspose3d(8, 4, 1, bias=False), (2, 8, 6, 6, 6), [4 * 216]),
        # each channel its own kernels: kernels of PyTorch without columns
        (lambda: torch.nn.Conv2d(32, 64, 3, groups=32), SMALL, []),
        (lambda: torch.nn.Conv3d(8, 8, 3, groups=8), (2, 8, 6, 6, 6), []),
    ],
)
def test_without_cudnn_the_columns_of_one_image_are_laid_out(layer, x, expected):
    trace = traced(Layer(layer, x, enabled=False, benchmark=True))
    assert trace.doubts == ()
    assert columns(trace) == [4 * values for values in expected]


def test_without_cudnn_groups_are_copied_and_put_together():
    trace = traced(Layer(lambda: torch.nn.Conv2d(32, 64, 3, padding=1, groups=4, bias=False), SMALL, enabled=False))
    made = [b.shape for b in trace.buffers if b.op.startswith("aten.convolution.") and b.dtype == "float32"]
    assert made == [(4, 8, 20, 20), (4, 16, 20, 20)] * 4 + [(4, 64, 20, 20)]


def test_without_cudnn_results_are_in_rows():
    program = Layer(lambda: torch.nn.Conv2d(8, 8, 3), (2, 8, 9, 9), enabled=False, layout=torch.channels_last)
    with virtual_device(A100), torch.backends.cudnn.flags(enabled=False):
        program.setup()
        assert program.layer(program.x).is_contiguous()


def test_products_without_cudnn_hold_the_workspace_of_cublas():
    trace = traced(Layer(lambda: torch.nn.Conv2d(32, 64, 3), SMALL, enabled=False, gradients=False))
    (held,) = [b.nbytes for b in trace.buffers if b.category == "workspace" and b.died is None]
    assert held == 4096 * 1024 * 2 + 16 * 1024 * 8


@pytest.mark.parametrize(
    ("version", "cudnn", "text"),
    [((2, 1), 8902, "8.9.2"), ((2, 5), 90_100, "9.1.0"), ((2, 9), 91_002, "9.10.2"), ((2, 13), 92_000, "9.20.0")],
)
def test_the_program_is_told_the_cudnn_of_its_pytorch(version, cudnn, text):
    with virtual_device(replace(A100, torch=version)):
        assert torch.backends.cudnn.version() == cudnn == cudnn_versions()[0]
    assert cudnn_text(cudnn) == text
