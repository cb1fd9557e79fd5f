"""Sizes that come out of values nobody knows: the largest they can be, counts that add up, masks that select some."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

from memlint.cuda.devices import device_named
from memlint.cuda.session import virtual_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.accelerator.ledger import Ledger


@pytest.fixture
def gpu() -> Iterator[Ledger]:
    with virtual_device(device_named("a100-80gb")) as ledger:
        yield ledger


def indices(high: int = 5000) -> torch.Tensor:
    return torch.randint(0, high, (64, 128), device="cuda")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("largest", "read"),
    [
        (4999, lambda x: x.max()),
        (5000, lambda x: (x + 1).max()),
        (4999, lambda x: x.int().max()),
        (4999, lambda x: x.view(-1)[3:9].clone().max()),
        (9998, lambda x: torch.cat([x, x * 2]).max()),
        (99, lambda x: x.clamp(max=99).max()),
        (64 * 128, lambda x: torch.bincount(x.view(-1)).max()),
    ],
)
def test_a_value_that_is_read_is_the_largest_that_it_can_be(largest, read):
    assert read(indices()).item() == largest


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_without_a_size_bound_nothing(number):
    x = torch.rand(64, 128, device="cuda")
    assert x.masked_fill(x > 0.5, number).max().item() == 0


@pytest.mark.usefixtures("gpu")
def test_sizes_follow_from_the_largest_value():
    assert F.one_hot(indices()).shape == (64, 128, 5000)
    assert torch.bincount(indices().view(-1)).shape == (5000,)
    assert torch.arange(int(indices().max()) + 1, device="cuda").shape == (5000,)
    counts = torch.randint(0, 4, (8,), device="cuda")
    assert torch.repeat_interleave(torch.randn(8, device="cuda"), counts).shape == (24,)


@pytest.mark.usefixtures("gpu")
def test_what_is_written_over_a_range_is_not_within_it():
    x = indices()
    x.copy_(torch.empty_like(x))
    assert x.max().item() == 0


@pytest.mark.usefixtures("gpu")
def test_counts_of_tokens_for_each_expert_add_up():
    picked = torch.randn(41, 8, device="cuda").topk(2, dim=1).indices
    gates = torch.zeros(41, 8, device="cuda").scatter(1, picked, 1)
    sizes = gates.long().sum(0).tolist()
    assert sum(sizes) == 82
    assert max(sizes) - min(sizes) <= 1
    assert len(torch.randn(82, 4, device="cuda").split(sizes)) == 8
    assert sum(torch.bincount(picked.flatten(), minlength=8).tolist()) == 82


@pytest.mark.usefixtures("gpu")
def test_adaptive_softmax_takes_targets_spread_over_its_clusters():
    loss = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 100, [10, 50], device="cuda")
    result = loss(torch.randn(32, 16, device="cuda"), torch.randint(0, 100, (32,), device="cuda"))
    result.loss.backward()
    assert result.output.shape == (32,)


@pytest.mark.parametrize("select", [lambda x: x[x > 0], lambda x: x.masked_select(x > 0) * 2], ids=["index", "select"])
def test_what_a_mask_selects_is_between_nothing_and_everything(gpu, select):
    x = torch.randn(1000, device="cuda")
    made = select(x)
    assert made.shape == (1000,)
    assert gpu.size(made.untyped_storage().entry.number) == (2000, 0, 4000)


def test_sums_of_a_selection_are_certain(gpu):
    x = torch.randn(1000, device="cuda")
    total = x[x > 0].sum()
    assert gpu.size(total.untyped_storage().entry.number) == (4, 4, 4)


@pytest.mark.usefixtures("gpu")
def test_formulas_of_derivatives_add_out_of_place_where_autograd_adds_in_place():
    x = torch.randn(256, 256, device="cuda", requires_grad=True)
    variance, mean = torch.var_mean(x)
    before = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    (variance * mean).backward()
    nbytes = x.numel() * 4
    assert (
        torch.cuda.max_memory_allocated() >= before + 3 * nbytes
    )  # x - mean times a number, the mean's part, their sum
