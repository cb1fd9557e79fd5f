"""pyg_lib's reductions: on the host the values of PyTorch's, on the GPU the bytes that its sources say, by hand."""

from __future__ import annotations

import pytest
import torch
from memlint_libraries.pyg_lib.scatter import fused_scatter_reduce, library, scatter, softmax_csr

from tests.libraries.events import on_gpu, simulated

ops = library.modules["pyg_lib.ops"]
E, K, N = 1000, 16, 100
ROWS, GROUPS, PLACES = 4 * E * K, 4 * N * K, 8 * E * K
"""Bytes of all rows, of all groups, and of an index that is as large as the rows."""
REDUCTIONS = {"sum": "sum", "add": "sum", "mul": "prod", "mean": "mean", "min": "amin", "max": "amax"}


def index(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int64, device="cuda")


def rows() -> torch.Tensor:
    return on_gpu(E, K, dtype=torch.float32)


def backward_peak(seen, out):
    grad = torch.empty_like(out)
    seen.begin()
    out.backward(grad)
    return seen.peak


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_on_the_host_reductions_and_gradients_are_those_of_pytorch(reduce):
    source = torch.rand(7, 3, dtype=torch.double, requires_grad=True)
    of = torch.tensor([0, 0, 1, 1, 1, 3, 3])
    whole = of[:, None].expand(7, 3)
    start = torch.full((4, 3), float(reduce == "mul"), dtype=torch.double)
    expected = start.scatter_reduce(0, whole, source, REDUCTIONS[reduce], include_self=reduce == "mul")
    made = [scatter(source, of, 0, reduce=reduce)]
    if reduce != "mul":
        made.append(ops["segment_coo"](source, of, reduce=reduce))
        made.append(ops["segment_csr"](source, torch.tensor([0, 2, 5, 5, 7]), reduce=reduce))
    gradient = torch.rand(4, 3, dtype=torch.double)
    (true,) = torch.autograd.grad(expected, source, gradient)
    for out in made:
        assert torch.allclose(out, expected)
        assert torch.allclose(torch.autograd.grad(out, source, gradient)[0], true)


def test_on_the_host_what_is_given_is_added_to_and_rows_are_gathered_back():
    source, of = torch.rand(5, 2, dtype=torch.double), torch.tensor([0, 0, 1, 2, 2])
    given = torch.ones(3, 2, dtype=torch.double)
    out = ops["segment_sum_csr"](source, torch.tensor([0, 2, 3, 5]), given)
    assert out is given
    assert torch.allclose(out, torch.ones(3, 2, dtype=torch.double).index_add(0, of, source))
    summed = out.clone().requires_grad_()
    for gathered in (ops["gather_coo"](summed, of), ops["gather_csr"](summed, torch.tensor([0, 2, 3, 5]))):
        assert gathered.equal(out[of])
        assert torch.autograd.grad(gathered.sum(), summed)[0][:, 0].tolist() == [2, 1, 2]


def test_on_the_host_second_derivatives_are_those_of_differences():
    source = torch.rand(6, dtype=torch.double, requires_grad=True)
    of, ends = torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([0, 2, 5, 6])
    assert torch.autograd.gradgradcheck(lambda x: ops["segment_sum_coo"](x, of).pow(2), source)
    assert torch.autograd.gradgradcheck(lambda x: ops["segment_mean_csr"](x, ends).pow(2), source)
    assert torch.autograd.gradgradcheck(lambda x: ops["scatter_mul"](x, of).pow(2), source)


def test_on_the_host_softmaxes_are_those_of_each_group():
    source = torch.rand(5, dtype=torch.double, requires_grad=True)
    of, ends = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([0, 2, 5])
    expected = torch.cat([source[:2].softmax(0), source[2:].softmax(0)])
    assert torch.allclose(ops["scatter_softmax"](source, of), expected)
    assert torch.allclose(ops["scatter_log_softmax"](source, of), expected.log())
    assert torch.allclose(
        ops["scatter_logsumexp"](source, of), torch.stack([p.logsumexp(0) for p in source.split([2, 3])])
    )
    assert torch.allclose(ops["scatter_std"](source, of), torch.stack([p.std(0) for p in source.split([2, 3])]))
    out = softmax_csr(source, ends)
    gradient = torch.rand(5, dtype=torch.double)
    (true,) = torch.autograd.grad(expected, source, gradient)
    assert torch.allclose(out, expected)
    assert torch.allclose(torch.autograd.grad(out, source, gradient)[0], true)


def test_a_sum_copies_the_index_and_saves_a_view_of_it():
    with simulated() as seen:
        source, of = rows(), index(E)
        seen.begin()
        out = ops["scatter_sum"](source, of, 0, dim_size=N)
        assert (out.shape, seen.held, seen.peak) == ((N, K), GROUPS, GROUPS + PLACES)
        assert backward_peak(seen, out) == ROWS == source.grad.nbytes
        assert seen.assumptions == ["kernels of pyg-lib are not run: they take what the sources of version 0.9.0 say"]


def test_a_mean_is_two_sums_and_gathers_its_counts():
    with simulated() as seen:
        source, of = rows(), index(E)
        seen.begin()
        out = ops["scatter_mean"](source, of, 0, dim_size=N)
        counts = 4 * N
        assert (seen.held, seen.peak) == (GROUPS + counts, GROUPS + PLACES)
        assert backward_peak(seen, out) == 2 * ROWS


def test_a_product_makes_zeros_and_a_choice_in_backward():
    with simulated() as seen:
        source, of = rows(), index(E)
        out = ops["scatter_mul"](source, of, 0, dim_size=N)
        # rows of the output times its gradient, where the input is not zero, their quotient, zeros, and the choice
        assert backward_peak(seen, out) == 4 * ROWS + E * K
        assert source.grad.shape == (E, K)


def test_the_largest_saves_positions_alone():
    with simulated() as seen:
        source, of = rows(), index(E)
        seen.begin()
        out, positions = ops["scatter_max"](source, of, 0, dim_size=N)
        assert (positions.shape, positions.dtype) == ((N, K), torch.int64)
        assert seen.held == GROUPS + 2 * GROUPS
        assert seen.peak == seen.held + PLACES + N * K  # where nothing was
        # a row more, and zeros that autograd makes for the gradient of positions
        assert backward_peak(seen, out) == ROWS + 4 * K + 2 * GROUPS


def test_segments_of_a_vector_of_places_copy_nothing():
    with simulated() as seen:
        source, of, ends = rows(), index(E), index(N + 1)
        seen.begin()
        out = ops["segment_sum_coo"](source, of, dim_size=N)
        assert seen.peak == seen.held == GROUPS
        assert backward_peak(seen, out) == ROWS
        source.grad = None
        seen.begin()
        of_ends = ops["segment_sum_csr"](source, ends)
        assert seen.peak == seen.held == GROUPS
        assert backward_peak(seen, of_ends) == ROWS


def test_a_mean_of_segments_counts_them():
    with simulated() as seen:
        source, of, ends = rows(), index(E), index(N + 1)
        seen.begin()
        by_index = ops["segment_mean_coo"](source, of, dim_size=N)
        # counts as int64 while it divides; then ones of each row and the counts that are saved
        assert seen.held == GROUPS + 4 * N
        assert seen.peak == GROUPS + max(8 * N, 4 * E + 4 * N)
        assert backward_peak(seen, by_index) == ROWS + 4 * E
        source.grad = None
        seen.begin()
        by_ends = ops["segment_mean_csr"](source, ends)
        assert seen.held == GROUPS
        assert seen.peak == GROUPS + 8 * N + 4 * N
        assert backward_peak(seen, by_ends) == ROWS + max(8 * N + 4 * N, 4 * N + 4 * E)


@pytest.mark.parametrize("kind", ["coo", "csr"])
def test_the_least_of_segments_has_positions(kind):
    with simulated() as seen:
        source = rows()
        of, size = (index(E), {"dim_size": N}) if kind == "coo" else (index(N + 1), {})
        seen.begin()
        out, positions = ops[f"segment_min_{kind}"](source, of, **size)
        assert positions.shape == (N, K)
        assert (seen.held, seen.peak) == (3 * GROUPS, 3 * GROUPS + N * K)
        assert backward_peak(seen, out) == ROWS + 4 * K + 2 * GROUPS


def test_a_gather_adds_into_zeros_in_backward():
    with simulated() as seen:
        source, of = on_gpu(N, K, dtype=torch.float32), index(E)
        seen.begin()
        out = ops["gather_coo"](source, of)
        assert seen.peak == ROWS
        assert backward_peak(seen, out) == GROUPS
        # of several dimensions, an index that is the same for all is copied
        wide = on_gpu(4, N, dtype=torch.float32)
        seen.begin()
        assert ops["gather_coo"](wide, index(E)[None]).shape == (4, E)
        assert seen.peak == 8 * E + 4 * 4 * E + 4 * 8 * E


def test_softmaxes_on_the_gpu_are_their_parts():
    with simulated() as seen:
        source, of = rows(), index(E)
        seen.begin()
        out = ops["scatter_softmax"](source, of, 0, dim_size=N)
        # exponentials, sums of each row and their quotient; positions of the largest, which `gather` keeps, and the sums
        assert seen.held == 3 * ROWS + 2 * GROUPS + GROUPS + GROUPS
        out.sum().backward()
        assert source.grad.shape == (E, K)
        for name in ("scatter_log_softmax", "scatter_logsumexp", "scatter_std"):
            made = ops[name](rows(), of, 0, dim_size=N)
            made.sum().backward()
            assert made.shape == ((E, K) if name == "scatter_log_softmax" else (N, K))


def test_what_has_no_kernel_for_a_gpu_is_refused():
    with simulated():
        source, ends = rows(), index(N + 1)
        with pytest.raises(NotImplementedError, match=r"Could not run 'pyg::softmax_csr'.*'CUDA'"):
            softmax_csr(source, ends)
        with pytest.raises(RuntimeError, match="same device"):
            ops["scatter_sum"](source, torch.zeros(E, dtype=torch.int64), 0, dim_size=N)
        with pytest.raises(ValueError, match="Unknown reduce: 'median'"):
            scatter(source, index(E), 0, reduce="median")
        with pytest.raises(ValueError, match="floating-point"):
            ops["scatter_softmax"](torch.ones(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))


def test_several_reductions_lie_side_by_side():
    with simulated() as seen:
        source, of = on_gpu(E, K, dtype=torch.float32, grad=False), index(E)
        seen.begin()
        out = fused_scatter_reduce(source, of, N, ["sum", "mean", "max"])
        assert (out.shape, seen.held) == ((N, 3 * K), 3 * GROUPS)
        assert seen.peak == 3 * GROUPS + 4 * N + max(4 * E, N * K)  # degrees of ones, or where nothing was
