"""Reductions of torch_scatter on a simulated GPU: shapes as PyTorch's own give them, and bytes worked out by hand."""

from __future__ import annotations

import pytest
import torch
from memlint_libraries.torch_scatter import library

from tests.libraries.events import on_gpu, simulated

torch_scatter = library.modules["torch_scatter"]
E, K, N = 1000, 16, 100
ROWS, GROUPS = 4 * E * K, 4 * N * K


def index(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int64, device="cuda")


def test_the_largest_of_each_group_remembers_where_it_was():
    with simulated() as seen:
        source, groups = on_gpu(E, K, dtype=torch.float32), index(E)
        seen.begin()
        out, positions = torch_scatter["scatter_max"](source, groups, dim=0, dim_size=N)
        assert (out.shape, positions.shape, positions.dtype) == ((N, K), (N, K), torch.int64)
        assert seen.held == GROUPS + 2 * GROUPS
        assert seen.peak == seen.held + N * K  # where nothing was reduced
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        assert source.grad.shape == (E, K)
        assert seen.held == ROWS + 4 * K  # a row more, for groups of nothing
        assert seen.peak == seen.held + 2 * GROUPS  # autograd makes a gradient of zeros for the positions
        assert any("torch-scatter" in text for text in seen.assumptions)


def test_a_product_saves_its_input_and_output():
    with simulated() as seen:
        source, groups = on_gpu(E, K, dtype=torch.float32), index(E)
        seen.begin()
        out = torch_scatter["scatter"](source, groups, dim=0, dim_size=N, reduce="mul")
        assert seen.peak == seen.held == GROUPS
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        assert seen.held == ROWS
        assert seen.peak == ROWS + max(GROUPS, E * K)  # its gradient times the output, then where it is not a number


def test_sums_and_means_are_those_of_pytorch():
    with simulated() as seen:
        source, groups = on_gpu(E, K, dtype=torch.float32), index(E)
        seen.begin()
        out = torch_scatter["scatter_add"](source, groups, dim=0, dim_size=N)
        assert (out.shape, seen.peak) == ((N, K), GROUPS)
        assert torch_scatter["scatter_mean"](source, groups, dim=0, dim_size=N).shape == (N, K)
        assert torch_scatter["scatter_softmax"](source, groups, dim=0, dim_size=N).shape == (E, K)


@pytest.mark.parametrize("kind", ["scatter", "segment_coo", "segment_csr"])
def test_means_of_whole_numbers_are_whole(kind):
    with simulated():
        source = torch.zeros(E, K, dtype=torch.int64, device="cuda")
        arguments = {"scatter": {"dim": 0, "dim_size": N}, "segment_coo": {"dim_size": N}, "segment_csr": {}}[kind]
        groups = index(N + 1 if kind == "segment_csr" else E)
        out = torch_scatter[kind](source, groups, reduce="mean", **arguments)
        assert (out.shape, out.dtype) == ((N, K), torch.int64)


def test_the_mean_of_segments_counts_again_in_backward():
    with simulated() as seen:
        source, ends = on_gpu(E, K, dtype=torch.float32), index(N + 1)
        seen.begin()
        out = torch_scatter["segment_csr"](source, ends, reduce="mean")
        assert (out.shape, seen.peak) == ((N, K), GROUPS)
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        counts, of_rows = 4 * N, 4 * E
        assert seen.held == ROWS
        assert seen.peak == ROWS + counts + of_rows


@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max"])
def test_segments_by_index_are_those_of_scatter(reduce):
    with simulated():
        source, groups = on_gpu(E, K, dtype=torch.float32), index(E)
        out = torch_scatter["segment_coo"](source, groups, dim_size=N, reduce=reduce)
        assert out.shape == (N, K)
        out.sum().backward()
        assert source.grad.shape == (E, K)
        rows = torch_scatter["gather_coo"](out, groups)
        assert rows.shape == (E, K)
