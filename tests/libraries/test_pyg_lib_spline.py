"""pyg_lib's splines: on the host their values and derivatives, on the GPU the bytes that its sources say, by hand."""

from __future__ import annotations

import itertools

import pytest
import torch
from memlint_libraries.pyg_lib.spline import spline_basis, spline_weighting

from tests.libraries.events import on_gpu, simulated

E, D, WIDTH, COLUMNS, S, MATRICES = 500, 3, 16, 24, 8, 125


def sizes(*, device: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    kernel = torch.tensor([5, 5, 5], device=device)
    return kernel, torch.tensor([1, 0, 1], dtype=torch.uint8, device=device)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_on_the_host_splines_add_up_to_one_and_choose_matrices(degree):
    pseudo = torch.rand(6, D, dtype=torch.double, requires_grad=True)
    basis, chosen = spline_basis(pseudo, *sizes(), degree)
    assert basis.shape == chosen.shape == (6, (degree + 1) ** D)
    assert torch.allclose(basis.sum(1), torch.ones(6, dtype=torch.double))
    assert torch.autograd.gradcheck(lambda x: spline_basis(x, *sizes(), degree)[0], pseudo)
    knots = (pseudo.detach() * torch.tensor([5 - degree, 5, 5 - degree])).long()
    for spline, kinds in enumerate(itertools.product(range(degree + 1), repeat=D)):
        expected = sum((knots[:, d] + kinds[D - 1 - d]) % 5 * 5**d for d in range(D))
        assert chosen[:, spline].equal(expected)


def test_on_the_host_rows_are_multiplied_by_their_matrices():
    x, weight = torch.rand(6, 4, dtype=torch.double), torch.rand(9, 4, 3, dtype=torch.double)
    basis, chosen = torch.rand(6, 2, dtype=torch.double), torch.randint(0, 9, (6, 2))
    out = spline_weighting(x, weight, basis, chosen)
    assert torch.allclose(out, torch.einsum("ei,esio,es->eo", x, weight[chosen], basis))


def test_splines_are_a_number_and_a_matrix_of_each():
    with simulated() as seen:
        pseudo = on_gpu(E, D, dtype=torch.float32)
        kernel, is_open = sizes(device="cuda")
        seen.begin()
        basis, chosen = spline_basis(pseudo, kernel, is_open)
        assert basis.shape == chosen.shape == (E, S)
        assert seen.peak == seen.held == 4 * E * S + 8 * E * S
        grad = torch.empty_like(basis)
        seen.begin()
        basis.backward(grad)
        assert seen.held == 4 * E * D
        assert seen.peak == 4 * E * D + 8 * E * S  # zeros that autograd makes for what has no gradient


def test_products_save_their_operands_and_turn_matrices_around():
    with simulated() as seen:
        x, weight = on_gpu(E, WIDTH, dtype=torch.float32), on_gpu(MATRICES, WIDTH, COLUMNS, dtype=torch.float32)
        basis, chosen = on_gpu(E, S, dtype=torch.float32), torch.zeros(E, S, dtype=torch.int64, device="cuda")
        seen.begin()
        out = spline_weighting(x, weight, basis, chosen)
        assert seen.peak == seen.held == 4 * E * COLUMNS
        grad = torch.empty_like(out)
        seen.begin()
        out.backward(grad)
        of_x, of_weight, of_basis = x.nbytes, weight.nbytes, basis.nbytes
        assert seen.held == of_x + of_weight + of_basis
        assert seen.peak == max(of_x + of_weight, of_x + of_weight + of_basis)
        assert (x.grad.shape, weight.grad.shape, basis.grad.shape) == (x.shape, weight.shape, basis.shape)


def test_other_dtypes_and_sizes_are_refused():
    with simulated():
        half = on_gpu(E, D)
        with pytest.raises(NotImplementedError, match="\"spline_basis_fw_cuda\" not implemented for 'BFloat16'"):
            spline_basis(half, *sizes(device="cuda"))
        with pytest.raises(RuntimeError, match=r"must equal kernel_size\.numel"):
            spline_basis(half[:, :2], *sizes(device="cuda"))
