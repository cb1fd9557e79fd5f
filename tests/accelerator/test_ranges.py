"""Sizes that come out of values nobody knows: the largest they can be, counts that add up, masks that select some."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from tests.libraries.events import simulated

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
        (4999, lambda x: x.float().max()),
        (2500, lambda x: torch.ceil(x.float() / 2).max()),
        (2500, lambda x: (x.float() - 2499.5).max()),
        (1666, lambda x: (x // 3).max()),
        (16, lambda x: (x % 17).max()),
        (9, lambda x: (torch.randn(64, device="cuda") * 10).long().clamp(0, 9).max()),
        (64 * 128, lambda x: torch.bincount(x.view(-1)).max()),
        (64 * 128, lambda x: torch.histc(x.float(), 10).max()),
        (64 * 128 - 1, lambda x: torch.randn(64, 128, device="cuda").argmax()),
        (127, lambda x: torch.randn(64, 128, device="cuda").argmin(1)[3]),
        (128, lambda x: (torch.randn(64, 128, device="cuda").topk(2).indices + 1)[0, 0]),
        (127, lambda x: (x.float() > torch.rand((), device="cuda")).nonzero().max()),
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
    first_end = (indices() == 2).int().argmax(1)
    assert torch.zeros(max(first_end.tolist()) + 1, device="cuda").shape == (128,)
    counts = torch.randint(0, 4, (8,), device="cuda")
    assert torch.repeat_interleave(torch.randn(8, device="cuda"), counts).shape == (24,)


@pytest.mark.usefixtures("gpu")
def test_what_is_written_over_a_range_is_not_within_it():
    x = indices()
    x.copy_(torch.empty_like(x))
    assert x.max().item() == 0


@pytest.mark.usefixtures("gpu")
def test_what_a_part_is_written_over_with_leaves_the_rest_as_it_was():
    x = indices()
    x[:10].copy_(indices(50)[:10])
    assert x.max().item() == 4999
    y = torch.zeros(1 << 20, dtype=torch.int64, device="cuda")
    y[:64].copy_(indices(50)[:, 0])
    assert y.max().item() == 49


@pytest.mark.usefixtures("gpu")
def test_a_list_of_unknown_values_holds_the_largest_of_each():
    lengths = torch.randint(1, 50, (6,), device="cuda")
    assert lengths.tolist() == lengths.cpu().numpy().tolist() == [int(n) for n in lengths] == [49] * 6
    parts = torch.randn(400, 8, device="cuda")[: int(lengths.sum())].split(lengths.tolist())
    assert [part.shape for part in parts] == [(49, 8)] * 6


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "pick", [lambda x: x.topk(5).indices, lambda x: x.sort().indices[:, :5].clone(), lambda x: x[:, :5].argsort()]
)
def test_indices_that_are_picked_in_a_row_differ(pick):
    for row in pick(torch.randn(8, 400, device="cuda")):
        assert row.tolist() == [int(index) for index in row]
        assert len(set(row.tolist())) == 5


@pytest.mark.usefixtures("gpu")
def test_a_mask_adds_up_to_what_it_selects():
    x = torch.randn(1000, 8, device="cuda")
    mask = x[:, 0] > 0
    for count in (mask.sum(), mask.float().sum(), mask.long().sum(), mask.count_nonzero(), mask.cumsum(0)[-1]):
        assert count.item() == 1000
    assert x[mask].view(int(mask.sum()), -1).shape == (1000, 8)
    assert len(x[mask].split(mask.view(10, 100).sum(1).tolist())) == 10
    picked = torch.randn(64, 8, device="cuda").argmax(1) == 3
    assert int(picked.sum()) == len(torch.randn(64, device="cuda")[picked]) == 8


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("num_classes", "pick"),
    [
        (11, lambda x: x.argmax(1)),
        (11, lambda x: x.topk(2, 1).indices),
        (11, lambda x: x.softmax(1).multinomial(2)),
        (12, lambda x: torch.bucketize(x, torch.linspace(-1, 1, 11, device="cuda"))),
        (11, lambda x: torch.searchsorted(torch.linspace(-1, 1, 10, device="cuda"), x)),
        (7, lambda x: torch.randperm(x.shape[0], device="cuda")),
        (4, lambda x: torch.unique(torch.randint(0, 4, (50,), device="cuda"), return_inverse=True)[1]),
    ],
)
def test_one_hot_has_a_class_for_each_index_there_can_be(num_classes, pick):
    assert F.one_hot(pick(torch.randn(7, 11, device="cuda"))).shape[-1] == num_classes


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


def test_a_backward_of_pytorchs_own_that_counts_zeros_finds_none():
    with simulated() as seen:
        x = torch.randn(64, 128, device="cuda", requires_grad=True)
        products = x.prod(1)
        gradient = torch.ones_like(products)
        seen.begin()
        products.backward(gradient)
        assert seen.peak < 2.5 * x.nbytes  # a quotient and the gradient; with zeros there would be products of the rest
