"""cuDNN's workspaces: sizes that were recorded, and how they reach the estimate as intervals.

Whole recorded runs are in tests/oracles/test_recorded_steps.py.
"""

import json
from pathlib import Path

import pytest
import torch

from fixtures.scripts.resnet18 import ResNet18Training
from memlint.base.patching import patched
from memlint.cuda.kernels import convolution
from memlint.cuda.kernels.convolution import most_tried, workspace
from memlint.cuda.kernels.cudnn_problem import Problem
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate, most_device
from memlint.memory.records import Category
from memlint.memory.timeline import Timeline, alive_at, peak_event
from memlint.tracing.recorder import trace_program

pytestmark = pytest.mark.usefixtures("checked_torch")

V100, A100 = device_named("v100-16gb"), device_named("a100-80gb")


def problem(batch, channels, size, dtype=torch.float32, channels_last=False):
    """A 3 x 3 layer of a ResNet that keeps channels and size."""
    image = (batch, channels, size, size)
    return Problem(image, (channels, channels, 3, 3), image, (1, 1), (1, 1), 1, dtype, channels_last)


@pytest.mark.parametrize(
    ("batch", "channels", "size", "recorded"),
    [
        (8, 64, 56, 29_491_200),  # ResNet-18, allocation history
        (8, 128, 28, 16_809_984),
        (8, 256, 14, 18_874_368),
        (8, 512, 7, 42_467_328),
        (32, 64, 56, 116_195_328),  # ResNet-50 on a V100
        (32, 256, 14, 47_185_920),
        (32, 512, 7, 56_623_104),
    ],
)
def test_the_gradient_of_a_weight_takes_what_was_recorded(batch, channels, size, recorded):
    with virtual_device(V100):
        assert workspace(problem(batch, channels, size), "weight").estimate == recorded


@pytest.mark.parametrize(
    ("channels_in", "channels_out", "size", "forward", "data"),
    [
        (30, 16, 256, 82_880, 50_168),  # CNN regressor on a Turing GPU, allocation history
        (16, 32, 128, 51_328, 84_032),
        (32, 64, 64, 205_056, 204_928),
        (64, 64, 56, 409_856, 409_856),  # ResNet-50 on a V100
    ],
)
def test_forward_and_the_gradient_of_the_input_take_what_was_recorded(channels_in, channels_out, size, forward, data):
    layer = problem(1, channels_in, size)._replace(
        weight=(channels_out, channels_in, 3, 3), out=(1, channels_out, size, size)
    )
    with virtual_device(V100):
        assert workspace(layer, "forward").estimate == forward
        assert workspace(layer, "data").estimate == data


@pytest.mark.parametrize("device", [V100, A100])
def test_a_pointwise_layer_in_float32_multiplies_matrices_without_a_workspace(device):
    layer = problem(1, 32, 128)._replace(weight=(32, 32, 1, 1))
    strided = layer._replace(out=(1, 32, 64, 64), stride=(2, 2))
    with virtual_device(device):
        assert workspace(layer, "forward").estimate == 0
        assert workspace(strided, "forward").estimate > 0


@pytest.mark.parametrize("device", [V100, A100, device_named("h100-80gb")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("direction", ["forward", "data", "weight"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_guess_lies_in_its_interval(device, dtype, direction, channels_last):
    with virtual_device(device):
        for channels in (3, 64, 67):
            taken = workspace(problem(4, channels, 14, dtype, channels_last), direction)
            assert 0 == taken.low <= taken.estimate <= taken.high


def test_the_recorded_peak_lies_in_the_interval_whatever_the_gpu(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:1")
    for device in (V100, A100):
        trace = trace_program(ResNet18Training(), device, num_steps=1).trace
        requested = estimate(Timeline.of(trace), device, trace.nodes).requested
        assert requested.low < 303_624_744 <= requested.high


def test_a_workspace_at_the_peak_is_a_workspace():
    trace = trace_program(ResNet18Training(), V100, num_steps=1).trace
    timeline = Timeline.of(trace)
    kinds = {b.category for b in alive_at(timeline, peak_event(timeline)) if b.nbytes == 42_467_328}
    assert kinds == {Category.WORKSPACE}


def test_without_convolutions_nothing_is_in_doubt():
    class Program:
        def setup(self):
            self.model = torch.nn.Linear(64, 64).to("cuda")

        def step(self):
            self.model(torch.randn(8, 64, device="cuda")).sum().backward()

    trace = trace_program(Program(), A100).trace
    predicted = estimate(Timeline.of(trace), A100, trace.nodes)
    assert trace.doubts == ()
    assert predicted.requested.low == predicted.requested.estimate == predicted.requested.high


class Convolution:
    """A layer of 3 x 3 and its gradients; `settings` are those of `torch.backends.cudnn`."""

    def __init__(self, **settings):
        self.settings = settings

    def setup(self):
        self.layer = torch.nn.Conv2d(32, 64, 3, padding=1, bias=False).to("cuda")
        self.x = torch.randn(4, 32, 20, 20, device="cuda", requires_grad=True)

    def step(self):
        with torch.backends.cudnn.flags(**{"allow_tf32": False, **self.settings}):
            self.layer(self.x).sum().backward()


def trials(trace, device=V100):
    """The doubts of searches, of what is counted."""
    total = device.total_nbytes
    return [d for d in trace.doubts if total <= d.high < 2 * total and trace.buffers[d.buffer].nbytes]


def benchmarked(layer, x, device=A100):
    """Give what a layer and its gradients take with `cudnn.benchmark`."""

    class Program(Convolution):
        def setup(self):
            self.layer = layer.to("cuda")
            self.x = torch.randn(x, device="cuda", requires_grad=True)

    trace = trace_program(Program(enabled=True, benchmark=True, allow_tf32=True), device, num_steps=2).trace
    return trace, estimate(Timeline.of(trace), device, trace.nodes)


def test_the_search_for_the_fastest_algorithm_takes_the_largest_workspace_once():
    trace = trace_program(Convolution(enabled=True, benchmark=True), V100, num_steps=2).trace
    assert [trace.buffers[doubt.buffer].step for doubt in trials(trace)] == [0, 0, 0]
    x, y = (4, 32, 20, 20), (4, 64, 20, 20)
    layer = Problem(x, (64, 32, 3, 3), y, (1, 1), (1, 1), 1, torch.float32, channels_last=False)
    with virtual_device(V100), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        largest = [workspace(layer, direction).high for direction in ("forward", "data", "weight")]
    transforms = int(0.45 * 2 * 8 * (4 * (32 + 64) + 32 * 64) * 64 * 33)
    assert [trace.buffers[doubt.buffer].nbytes for doubt in trials(trace)] == [max(transforms, n) for n in largest]
    (assumption,) = trace.assumptions
    assert "cudnn.benchmark" in assumption.text
    assert assumption.frame.path == __file__


def test_the_search_takes_what_an_algorithm_can_ask_for_and_no_more_than_is_free():
    trace = trace_program(Convolution(enabled=True, benchmark=True), V100).trace
    searched = estimate(Timeline.of(trace), V100, trace.nodes)
    without = trace_program(Convolution(enabled=True), V100).trace
    assert not trials(without)
    expected = estimate(Timeline.of(without), V100, without.nodes)
    assert searched.requested.low < searched.requested.estimate < searched.requested.high
    assert 128 * 2**20 < searched.requested.high < expected.requested.high + 128 * 2**20
    assert expected.requested.estimate <= searched.requested.estimate

    class Large(Convolution):
        def setup(self):
            super().setup()
            self.x = torch.randn(70, 32, 400, 400, device="cuda", requires_grad=True)

    trace = trace_program(Large(enabled=True, benchmark=True), V100, num_steps=1).trace
    searched = estimate(Timeline.of(trace), V100, trace.nodes)
    assert searched.requested.high == V100.total_nbytes - V100.context_low
    assert searched.device.high >= V100.total_nbytes


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (lambda: torch.nn.Conv2d(728, 728, 1, bias=False), (16, 728, 38, 38)),
        (lambda: torch.nn.Conv2d(64, 64, 1, stride=2, bias=False), (16, 64, 56, 56)),
        (lambda: torch.nn.Conv2d(64, 64, 3, padding=1, groups=2, bias=False), (16, 64, 56, 56)),
    ],
)
def test_a_search_for_layers_of_one_element_or_of_groups_counts_with_nothing_and_is_bounded(layer, x):
    trace, searched = benchmarked(layer(), x)
    assert trials(trace, A100) == []
    (bound,) = {d.high - A100.total_nbytes for d in trace.doubts if d.high >= A100.total_nbytes}
    assert bound >= 128 * 2**20
    assert searched.requested.high >= searched.requested.estimate + bound // 2


def test_the_transforms_of_a_layer_of_one_element_are_what_was_measured():
    """itu-rad/GPUMemNet, fake_tensor.xlsx: xception65p trained with 16 images takes 22,339 MiB of an A100, with 32
    images 25,621, with 8 5,575; its largest layers are these. mobilevitv2_125 takes 30,137 MiB with 8 images, with 16
    8,535."""
    layer = problem(16, 728, 38)._replace(weight=(728, 728, 1, 1))
    assert 22_339 - 5_575 < most_tried(layer) / 2**20 < 22_339
    patches = Problem((8, 160, 4, 256), (321, 160, 1, 1), (8, 321, 4, 256), (1, 1), (1, 1), 1, torch.float32, False)
    assert 30_137 - 8_535 < most_tried(patches) / 2**20 < 30_137


def test_transforms_are_of_layers_without_steps_and_gaps_up_to_256_rows():
    layer = problem(1, 64, 100)._replace(weight=(64, 64, 5, 5), out=(1, 64, 96, 96))
    transforms = 2 * 8 * (64 + 64 + 64 * 64) * 128 * 65
    assert most_tried(layer) == transforms
    assert most_tried(layer._replace(stride=(2, 2), out=(1, 64, 48, 48))) < transforms
    assert most_tried(layer._replace(dilation=(2, 2), out=(1, 64, 92, 92))) < transforms
    assert most_tried(layer._replace(x=(1, 64, 260, 260), out=(1, 64, 256, 256))) < transforms


def test_the_fastest_algorithm_may_take_the_columns_of_the_batch():
    """itu-rad/GPUMemNet: of resnetblur18 and vgg13_bn what the rest leaves grows with the batch by about one layer's."""
    columns = 16 * 9 * 128 * 56 * 56 * 4
    trace, taken = benchmarked(torch.nn.Conv2d(128, 128, 3, padding=1, bias=False), (16, 128, 56, 56))
    last = [d for d in trace.doubts if trace.buffers[d.buffer].step == 1]
    assert {d.high - 2 * A100.total_nbytes for d in last} == {columns}
    assert taken.requested.high >= taken.requested.low + columns


def test_a_search_leaves_no_cache():
    """PyTorch empties it after each: what two searches take in turn is not reserved twice."""

    class Program(Convolution):
        def setup(self):
            self.layers = [torch.nn.Conv2d(n, n, 1, bias=False).to("cuda") for n in (512, 728)]
            self.x = [torch.randn(4, n, 38, 38, device="cuda") for n in (512, 728)]

        def step(self):
            with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, benchmark=True):
                for layer, x in zip(self.layers, self.x, strict=True):
                    layer(x)

    trace = trace_program(Program(), A100, num_steps=1).trace
    taken = estimate(Timeline.of(trace), A100, trace.nodes)
    larger = max(d.high for d in trace.doubts) - A100.total_nbytes
    assert larger < taken.reserved.high < 1.1 * larger


@pytest.mark.parametrize(
    ("x", "weight", "out", "nbytes"),
    [
        # Theano/Theano pull request 6348: forward by FFT
        ((12, 4, 256, 256), (5, 4, 32, 64), (12, 5, 225, 193), 37_502_976),
        # recorded: ResNet-50 of 32 images, V100
        ((32, 64, 56, 56), (64, 64, 3, 3), (32, 64, 56, 56), 116_195_328),
        ((32, 512, 7, 7), (512, 512, 3, 3), (32, 512, 7, 7), 56_623_104),
        ((32, 64, 56, 56), (256, 64, 1, 1), (32, 256, 56, 56), 102_913_024),
    ],
)
def test_no_published_workspace_is_beyond_what_algorithms_can_ask_for(x, weight, out, nbytes):
    problem = Problem(x, weight, out, (1, 1), (1, 1), 1, torch.float32, channels_last=False)
    with patched([(convolution, "TRIED_ANYWAY", 0)]):
        assert nbytes <= most_tried(problem)


def test_what_fits_does_not_depend_on_the_search():
    trace = trace_program(Convolution(enabled=True, benchmark=True), V100).trace
    sizes = [buffer.nbytes for buffer in trace.buffers]
    assert most_device(sizes, trace.events, trace.doubts, V100) < 2**31


def test_tf32_and_deterministic_are_read_from_the_program():
    def most(**settings):
        trace = trace_program(Convolution(enabled=True, **settings), A100, num_steps=1).trace
        return max(trace.buffers[doubt.buffer].nbytes for doubt in trace.doubts)

    assert most(allow_tf32=True) != most(allow_tf32=False)
    assert most(deterministic=True) == most(deterministic=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_backward_of_a_pointwise_layer_on_tensor_cores_takes_as_much_as_the_gradient_of_the_input(dtype):
    layer = problem(4, 64, 56, dtype)._replace(weight=(256, 64, 1, 1), out=(4, 256, 56, 56))
    with virtual_device(A100):
        assert workspace(layer, "data").estimate == 4 * 64 * 56 * 56 * dtype.itemsize
        assert workspace(layer, "weight").estimate == 0
        assert workspace(layer, "weight").high >= sum(layer.nbytes())


@pytest.mark.parametrize("direction", ["forward", "data"])
def test_cudnn_fills_channels_of_half_precision_for_tensor_cores(direction):
    layer = Problem(
        (4, 3, 20, 20), (30, 3, 3, 3), (4, 30, 10, 10), (2, 2), (1, 1), 1, torch.float16, channels_last=False
    )
    read = 2 * (4 * 8 * 20 * 20 + 32 * 8 * 3 * 3)
    with virtual_device(device_named("t4")):
        assert workspace(layer, direction).estimate == read + 2 * 4 * 32 * 10 * 10 + 16
        assert workspace(layer._replace(channels_last=True), direction).estimate == read + 16
        grouped = layer._replace(groups=3, weight=(30, 1, 3, 3))
        assert workspace(grouped, direction).estimate == sum(grouped.nbytes()) + 16
        unfilled = layer._replace(dtype=torch.float32)
        assert unfilled.filled_nbytes() == unfilled.nbytes()


def recorded_on_h200():
    """Workspaces of whole models on an H200, by problem and direction: see fixtures/convolutions/README.md."""
    file = Path(__file__).parents[2] / "fixtures" / "convolutions" / "h200-torch-2.11.jsonl"
    for line in file.read_text().splitlines():
        direction, dtype, channels_last, nbytes, groups, *shapes = json.loads(line)
        yield Problem(*map(tuple, shapes), groups, getattr(torch, dtype), channels_last), direction, nbytes


@pytest.mark.parametrize(
    ("x", "weight", "out", "nbytes"),
    [  # dcgan of pytorch/examples, 64 images, the gradient of the input
        ((64, 256, 8, 8), (512, 256, 4, 4), (64, 512, 4, 4), 2_734_686_224),
        ((64, 64, 32, 32), (128, 64, 4, 4), (64, 128, 16, 16), 275_906_576),
    ],
)
def test_a_search_tries_what_an_h200_was_seen_to_try(x, weight, out, nbytes):
    layer = Problem(x, weight, out, (2, 2), (1, 1), 1, torch.float32, channels_last=False)
    with virtual_device(device_named("h200")):
        likely = convolution.likely_tried(layer, workspace(layer, "data").high)
    assert 0.99 * nbytes <= likely <= most_tried(layer)


def test_a_search_for_kernels_that_do_not_overlap_tries_about_the_operands():
    """ConvNeXt, convnext-b32-benchmark of the suite: 77,101,359 bytes on the H200."""
    layer = Problem(
        (32, 96, 56, 56), (192, 96, 2, 2), (32, 192, 28, 28), (2, 2), (1, 1), 1, torch.float32, channels_last=False
    )
    with virtual_device(device_named("h200")):
        assert 0.95 * 77_101_359 <= convolution.likely_tried(layer, workspace(layer, "forward").high) <= 85e6


def test_workspaces_on_tensor_cores_are_those_of_an_h200():
    with virtual_device(device_named("h200")):
        taken = [(workspace(layer, direction), nbytes) for layer, direction, nbytes in recorded_on_h200()]
    assert len(taken) == 425
    assert all(each.low <= nbytes <= each.high for each, nbytes in taken)
    assert sum(abs(each.estimate - nbytes) <= 64 << 10 for each, nbytes in taken) >= 0.69 * len(taken)
    assert sum(abs(each.estimate - nbytes) <= 9e6 for each, nbytes in taken) >= 0.93 * len(taken)


@pytest.mark.parametrize(
    ("direction", "dtype", "last", "x", "weight", "out", "stride", "groups", "nbytes"),
    [  # single layers, on the H200
        ("forward", torch.float32, False, (16, 3, 224, 224), (64, 3, 7, 7), (16, 64, 112, 112), 2, 1, 61_051_664),
        ("forward", torch.bfloat16, False, (16, 3, 224, 224), (64, 3, 7, 7), (16, 64, 112, 112), 2, 1, 38_585_360),
        ("weight", torch.float16, False, (16, 64, 56, 56), (256, 64, 1, 1), (16, 256, 56, 56), 1, 1, 1_048_576),
        ("weight", torch.float16, True, (16, 96, 56, 56), (96, 1, 7, 7), (16, 96, 56, 56), 1, 96, 2_408_448),
        ("weight", torch.bfloat16, True, (8, 32, 112, 112), (32, 1, 3, 3), (8, 32, 112, 112), 1, 32, 73_728),
        ("forward", torch.float16, False, (16, 128, 28, 28), (128, 4, 3, 3), (16, 128, 28, 28), 1, 32, 6_431_760),
        ("data", torch.bfloat16, False, (16, 64, 56, 56), (256, 64, 1, 1), (16, 256, 56, 56), 1, 1, 0),
        ("weight", torch.float32, False, (32, 256, 14, 14), (256, 256, 3, 3), (32, 256, 14, 14), 1, 1, 22_282_847),
    ],
)
def test_workspaces_of_single_layers_on_tensor_cores(direction, dtype, last, x, weight, out, stride, groups, nbytes):
    layer = Problem(x, weight, out, (stride, stride), (1, 1), groups, dtype, last)
    with virtual_device(device_named("h200")):
        taken = workspace(layer, direction)
    assert abs(taken.estimate - nbytes) <= 1024
    assert taken.low <= nbytes <= taken.high
