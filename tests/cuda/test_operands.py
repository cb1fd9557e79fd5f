"""Copies that CUDA's kernels make of operands which do not lie as they read them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGE, VOLUME, SIGNAL = (2, 8, 10, 12), (2, 3, 6, 8, 10), (2, 8, 20)
NUMEL = {shape: math.prod(shape) for shape in (IMAGE, VOLUME, SIGNAL)}
aten = torch.ops.aten


def taken(run: Callable[..., object], *operands: Callable[[], torch.Tensor]) -> list[int]:
    """Bytes that `run` takes of its `operands`, and gives back before it ends."""
    with virtual_device(device_named("a100-80gb")) as ledger:
        tensors = [make() for make in operands]
        start = len(ledger.events)
        result = run(*tensors)
        events, births = ledger.events[start:], ledger.births
        del result, tensors
    closed = {~event for event in events if event < 0}
    return [births[event].nbytes for event in events if event in closed]


def dense(*shape: int, **options: Any) -> Callable[[], torch.Tensor]:
    return lambda: torch.zeros(shape, device="cuda", **options)


def turned(*shape: int) -> Callable[[], torch.Tensor]:
    """A view whose last two dimensions are swapped, like no layout."""
    return lambda: torch.zeros(*shape[:-2], shape[-1], shape[-2], device="cuda").transpose(-1, -2)


def by_channels(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.zeros(shape, device="cuda").to(memory_format=torch.channels_last)


COPIED = {
    "reflection_pad1d": (lambda x: F.pad(x, (1, 1), "reflect"), turned, SIGNAL),
    "reflection_pad2d": (lambda x: F.pad(x, (1, 1, 1, 1), "reflect"), turned, IMAGE),
    "reflection_pad2d of channels_last": (lambda x: F.pad(x, (1, 1, 1, 1), "reflect"), by_channels, IMAGE),
    "reflection_pad3d": (lambda x: F.pad(x, (1,) * 6, "reflect"), turned, VOLUME),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 3), turned, IMAGE),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 3), turned, VOLUME),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True), turned, IMAGE),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 3, return_indices=True), turned, VOLUME),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), turned, IMAGE),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), turned, VOLUME),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2, return_indices=True), turned, IMAGE),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, return_indices=True), turned, VOLUME),
    "nearest1d": (lambda x: F.interpolate(x, 40), turned, SIGNAL),
    "nearest2d": (lambda x: F.interpolate(x, scale_factor=2), turned, IMAGE),
    "nearest3d": (lambda x: F.interpolate(x, scale_factor=2), turned, VOLUME),
    "median": (lambda x: x.median(1), turned, IMAGE),
    "nanmedian": (lambda x: x.nanmedian(-1), turned, IMAGE),
    "nonzero_static": (lambda x: x.nonzero_static(size=4), turned, IMAGE),
    "roll": (lambda x: x.roll(1, 1), turned, IMAGE),
    "topk": (lambda x: x.topk(2), turned, IMAGE),
    "kthvalue": (lambda x: x.kthvalue(2), turned, IMAGE),
    "mode": (lambda x: x.mode(1), dense, IMAGE),
    "cumsum": (lambda x: x.cumsum(-1), turned, IMAGE),
}


@pytest.mark.parametrize("name", COPIED)
def test_an_operand_like_no_layout_is_copied(name: str) -> None:
    run, made, shape = COPIED[name]
    assert taken(run, made(*shape)) == [4 * NUMEL[shape]]


@pytest.mark.parametrize("name", sorted(set(COPIED) - {"mode"}))
def test_a_contiguous_operand_is_not(name: str) -> None:
    run, _, shape = COPIED[name]
    assert taken(run, dense(*shape)) == []


def test_a_random_relu_copies_its_input_and_its_noise() -> None:
    def run(training: bool) -> Callable[..., object]:
        return lambda x, noise: aten.rrelu_with_noise(x, noise, 0.1, 0.3, training)

    assert taken(run(True), turned(*IMAGE), turned(*IMAGE)) == [4 * NUMEL[IMAGE]] * 2
    assert taken(run(True), dense(*IMAGE), dense(*IMAGE)) == []
    assert taken(run(False), turned(*IMAGE), turned(*IMAGE)) == []


def test_nearest_neighbours_of_a_volume_like_channels_last_are_rearranged_before_and_after() -> None:
    volume = lambda: torch.zeros(VOLUME, device="cuda").to(memory_format=torch.channels_last_3d)  # noqa: E731
    run = lambda x: F.interpolate(x, scale_factor=2)  # noqa: E731
    assert taken(run, volume) == [8 * 4 * NUMEL[VOLUME], 4 * NUMEL[VOLUME]]


def test_unique_rows_are_laid_out_one_after_the_other() -> None:
    unique = lambda dim: lambda x: aten.unique_dim(x, dim)  # noqa: E731
    assert 4 * 60 * 40 in taken(unique(1), dense(60, 40))
    assert 4 * 60 * 40 not in taken(unique(0), dense(60, 40))


def test_backward_of_margins_copies_what_is_not_contiguous() -> None:
    target = dense(40, dtype=torch.int64)
    run = lambda grad, x, y: aten.multi_margin_loss_backward(grad, x, y, 1, 1)  # noqa: E731
    assert taken(run, dense(), turned(40, 60), target) == [4 * 40 * 60]
    assert taken(run, dense(), dense(40, 60), target) == []
    several = lambda grad, x, y, marks: aten.multilabel_margin_loss_backward(grad, x, y, 1, marks)  # noqa: E731
    targets = dense(40, 60, dtype=torch.int64)
    assert taken(several, dense(), turned(40, 60), targets, turned(40, 60)) == [4 * 40 * 60] * 2


def test_gradient_of_a_softmax_begins_with_a_product() -> None:
    product = 4 * NUMEL[IMAGE]
    run = lambda grad, y: aten._softmax_backward_data(grad, y, -1, torch.float32)  # noqa: E731
    assert taken(run, dense(*IMAGE), dense(*IMAGE)) == [product]
    assert taken(run, lambda: torch.zeros((), device="cuda").expand(IMAGE), dense(*IMAGE)) == [product]
    assert taken(run, turned(*IMAGE), dense(*IMAGE)) == [product] * 2
    log = lambda grad, y: aten._log_softmax_backward_data(grad, y, -1, torch.float32)  # noqa: E731
    assert taken(log, dense(*IMAGE), dense(*IMAGE)) == []


def test_peak_of_a_softmax_is_five_times_its_input() -> None:
    """Published for a GPU, with bfloat16 [5120, 2, 384, 384]: github.com/pytorch/pytorch/issues/72450."""
    with virtual_device(device_named("a100-80gb")):
        x = torch.zeros(5120, 2, 384, 384, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        y = F.softmax(x, dim=-1)
        torch.mean(y).backward()
        peak = torch.cuda.max_memory_allocated()
        del y
    assert peak == pytest.approx(15_099_495_424, abs=2048)


def test_a_masked_softmax_that_is_no_single_kernel_fills_its_input() -> None:
    run = lambda x, mask: aten._masked_softmax(x, mask, 3, 2)  # noqa: E731
    short, long = (2, 2, 8, 8), (2, 2, 8, 2048)
    assert taken(run, dense(*short), dense(*short, dtype=torch.bool)) == []
    assert taken(run, dense(*long), dense(*long, dtype=torch.bool)) == [4 * math.prod(long)] * 2
    shared = lambda x, mask: aten._masked_softmax(x, mask, 3, 0)  # noqa: E731
    assert taken(shared, dense(*short), dense(8, 8, dtype=torch.bool)) == [4 * math.prod(short)] * 2
    back = lambda grad, y, mask: aten._masked_softmax_backward(grad, y, mask, 3)  # noqa: E731
    grown = dense(*short), dense(*short), dense(*short, dtype=torch.bool)
    assert taken(back, *grown) == [4 * math.prod(short)]


def test_gradient_of_bags_is_copied_where_it_is_expanded() -> None:
    def run(grad: torch.Tensor, weight: torch.Tensor, tokens: torch.Tensor) -> None:
        F.embedding_bag(tokens, weight, mode="max").backward(grad)

    weight = lambda: torch.zeros(50, 64, device="cuda", requires_grad=True)  # noqa: E731
    spread = lambda: torch.ones((), device="cuda").expand(30, 64)  # noqa: E731
    tokens = dense(30, 4, dtype=torch.int64)
    copied, not_copied = (taken(run, grad, weight, tokens).count(4 * 30 * 64) for grad in (spread, dense(30, 64)))
    assert copied == not_copied + 1


def test_unfolding_begins_with_a_result_as_large_as_its_input():
    image = 4 * NUMEL[IMAGE]
    assert taken(lambda x: F.unfold(x, 3), dense(*IMAGE)) == [image]
    assert taken(lambda x: F.unfold(x, 3), turned(*IMAGE)) == [image, image]


@pytest.mark.parametrize(
    "run",
    [
        lambda x: F.adaptive_avg_pool2d(x, 3),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    ],
)
def test_kernels_that_know_channels_last_copy_nothing(run: Callable[..., object]) -> None:
    assert taken(run, by_channels(*IMAGE)) == []


def test_the_recorded_padding_of_a_view() -> None:
    """Recorded on a GPU: an output of 7,266,816 bytes, then 7,180,800 for its input."""
    with virtual_device(device_named("a100-80gb")) as ledger:
        x = torch.zeros(1, 85, 160, 132, device="cuda").permute(0, 1, 3, 2)
        start = len(ledger.events)
        padded = F.pad(x, (0, 0, 1, 1), "reflect")
        births = [ledger.births[event].nbytes for event in ledger.events[start:] if event >= 0]
        del padded
    assert births == [4 * 85 * 134 * 160, 4 * 85 * 132 * 160]


def test_few_channels_of_channels_last_are_rearranged_before_and_after() -> None:
    few = (2, 3, 10, 12)
    run = lambda x: F.interpolate(x, scale_factor=2)  # noqa: E731
    assert taken(run, by_channels(*few)) == [4 * 2 * 3 * 20 * 24, 4 * 2 * 3 * 10 * 12]


def test_backward_of_pools_copies_what_differs_from_the_input() -> None:
    def backward(x: torch.Tensor, grad: torch.Tensor) -> object:
        _, indices = aten.max_pool2d_with_indices(x, [2, 2])
        return aten.max_pool2d_with_indices_backward(grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)

    assert taken(backward, dense(*IMAGE), turned(2, 8, 5, 6))[-1:] == [4 * 2 * 8 * 5 * 6]
    average = lambda grad, x: aten._adaptive_avg_pool2d_backward(grad, x)  # noqa: E731
    expanded = lambda: torch.zeros(2, 8, 1, 1, device="cuda").expand(2, 8, 3, 3)  # noqa: E731
    assert taken(average, expanded, dense(*IMAGE)) == [4 * 2 * 8 * 9]
    assert taken(average, expanded, by_channels(*IMAGE)) == []


def test_losses_of_an_image_copy_what_they_reduce() -> None:
    target = dense(2, 10, 12, dtype=torch.int64)

    def loss(reduction: int) -> Callable[..., object]:
        return lambda x, y: aten.nll_loss2d_forward(x, y, None, reduction, -100)

    assert taken(loss(1), turned(*IMAGE), target) == [4 * NUMEL[IMAGE]]
    assert taken(loss(0), turned(*IMAGE), target) == []


def test_a_masked_scatter_counts_true_elements() -> None:
    run = lambda x, m, v: x.masked_scatter_(m, v)  # noqa: E731
    mask = dense(1, 1000, dtype=torch.bool)
    counted, expanded, _scan = taken(run, dense(1000, 1000), mask, dense(1000, 1000))
    assert (counted, expanded) == (8_000_000, 1_000_000)


@pytest.mark.parametrize(("numel", "range_"), [(60, 480), (4096, 32_768)])
def test_the_median_of_all_elements_sorts_them(numel: int, range_: int) -> None:
    """`median_impl` of Sorting.cpp: the dense input, what is sorted and its order, and what sorting takes."""
    size = 4 * numel
    assert taken(torch.median, dense(numel)) == [size, 8 * numel, range_]
    assert taken(torch.median, turned(2, numel // 2)) == [size, size, 8 * numel, range_]
    more, cast = [numel, 8 * numel], [size, 8 * numel, range_]
    assert taken(torch.nanmedian, dense(numel))[:5] == cast + more


def test_a_scaled_product_copies_operands_and_has_the_workspace_of_cublaslt() -> None:
    def workspace_of(gpu: str, scale: tuple[int, int]) -> list[int]:
        with virtual_device(device_named(gpu)) as ledger:
            x = torch.zeros(64, 32, device="cuda").to(torch.float8_e4m3fn)
            y = torch.zeros(48, 32, device="cuda").to(torch.float8_e4m3fn).t()
            a, b = torch.zeros(scale, device="cuda"), torch.zeros(scale[::-1], device="cuda")
            b = b if scale == (1, 1) else torch.zeros(1, 48, device="cuda")
            start = len(ledger.events)
            out = torch._scaled_mm(x, y, a, b, out_dtype=torch.bfloat16)
            made = [ledger.births[event].nbytes for event in ledger.events[start:] if event >= 0]
            assert made.pop(0) == out.nbytes
            return made

    assert workspace_of("h100-80gb", (1, 1))[0] == 32 << 20
    assert workspace_of("h100-80gb", (64, 1))[0] == 32 << 20
    assert workspace_of("rtx4090", (1, 1))[0] == 4096 * 1024 * 2 + 16 * 1024 * 8
    assert workspace_of("rtx4090", (64, 1)) == []  # CUTLASS scales rows


@pytest.mark.parametrize(("gpu", "takes"), [("h100-80gb", False), ("a100-80gb", True)])
def test_grouped_products_take_the_workspace_of_cublas_where_cutlass_has_none(gpu: str, takes: bool) -> None:
    with virtual_device(device_named(gpu)) as ledger:
        x = torch.zeros(64, 32, device="cuda", dtype=torch.bfloat16)
        weights = torch.zeros(2, 32, 48, device="cuda", dtype=torch.bfloat16)
        ends = torch.tensor([32, 64], device="cuda", dtype=torch.int32)
        start = len(ledger.events)
        out = torch._grouped_mm(x, weights[..., :46], ends)
        made = [ledger.births[event].nbytes for event in ledger.events[start:] if event >= 0]
    assert out.shape == (64, 46)
    assert out.stride() == (48, 1)
    assert made[0] == 2 * (63 * 48 + 46)
    assert bool(made[1:]) == takes


def test_gradients_of_grouped_products_have_the_shapes_of_their_operands() -> None:
    with virtual_device(device_named("h100-80gb")):
        x = torch.zeros(64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        weights = torch.zeros(2, 32, 48, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        ends = torch.tensor([32, 64], device="cuda", dtype=torch.int32)
        torch._grouped_mm(x, weights, ends).sum().backward()
        assert x.grad is not None
        assert weights.grad is not None
        assert (x.grad.shape, weights.grad.shape) == (x.shape, weights.shape)


def test_results_are_written_into_what_the_program_gives() -> None:
    """A row of the table is not told of `out`."""
    with virtual_device(device_named("a100-80gb")) as ledger:
        x, indices = torch.zeros(4, 8, device="cuda"), torch.zeros(4, 8, device="cuda", dtype=torch.int64)
        start = len(ledger.births)
        torch.softmax(x, -1, out=x)
        torch.cumsum(x, 0, out=x)
        torch.sort(x, out=(x, indices))
        assert x.nbytes not in [birth.nbytes for birth in ledger.births[start:]]
