"""pyg_lib: on the host the values of its documentation, on the GPU the bytes that its sources say, by hand."""

from __future__ import annotations

import pytest
import torch
from memlint_libraries.pyg_lib import products as pyg_lib

from tests.libraries.events import on_gpu, simulated

ROWS, WIDTH, COLUMNS, KINDS = 900, 32, 48, 3
ARGUMENTS = 144


def test_on_the_host_products_are_those_of_each_pair():
    inputs = [torch.randn(5, 16, requires_grad=True), torch.randn(3, 32)]
    others = [torch.randn(16, 32), torch.randn(32, 64, requires_grad=True)]
    biases = [torch.randn(32), torch.randn(64)]
    outs = pyg_lib.grouped_matmul(inputs, others, biases)
    for out, x, other, bias in zip(outs, inputs, others, biases, strict=True):
        assert torch.allclose(out, x @ other + bias, atol=1e-5)
    sum(out.sum() for out in outs).backward()
    assert torch.allclose(inputs[0].grad, others[0].sum(1).expand(5, 16), atol=1e-4)
    assert torch.allclose(others[1].grad, inputs[1].sum(0).view(-1, 1).expand(32, 64), atol=1e-4)


def test_on_the_host_segments_have_their_own_matrices():
    x, ptr = torch.randn(8, 16, requires_grad=True), torch.tensor([0, 5, 8])
    other, bias = torch.randn(2, 16, 32, requires_grad=True), torch.randn(2, 32)
    out = pyg_lib.segment_matmul(x, ptr, other, bias)
    assert torch.allclose(out[:5], x[:5] @ other[0] + bias[0], atol=1e-5)
    assert torch.allclose(out[5:], x[5:] @ other[1] + bias[1], atol=1e-5)
    out.sum().backward()
    assert torch.allclose(other.grad[1], x[5:].detach().sum(0).view(-1, 1).expand(16, 32), atol=1e-4)


@pytest.mark.parametrize("function", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("both", [True, False])
def test_on_the_host_chosen_rows_have_gradients_of_their_own(function, both):
    left = torch.rand(4, 2, dtype=torch.double).add_(1).requires_grad_()
    right = torch.rand(3 if both else 5, 2, dtype=torch.double).add_(1).requires_grad_()
    of_left = torch.tensor([0, 3, 3, 1, 2])
    of_right = torch.tensor([2, 2, 0, 1, 1]) if both else None
    sampled = (
        getattr(pyg_lib, f"sampled_{function}", None) or pyg_lib.library.modules["pyg_lib.ops"][f"sampled_{function}"]
    )
    chosen = right if of_right is None else right[of_right]
    expected = pyg_lib._FUNCTIONS[function](left[of_left], chosen)
    assert sampled(left, right, of_left, of_right).equal(expected)
    gradients = torch.autograd.grad(sampled(left, right, of_left, of_right).sum(), (left, right))
    for gradient, true in zip(gradients, torch.autograd.grad(expected.sum(), (left, right)), strict=True):
        if function != "div" or gradient.shape != left.shape:
            assert torch.allclose(gradient, true)


def test_a_group_takes_its_outputs_and_copies_of_what_is_not_contiguous():
    with simulated() as seen:
        inputs = [on_gpu(ROWS, WIDTH, dtype=torch.float32) for _ in range(KINDS)]
        others = [on_gpu(WIDTH, COLUMNS, dtype=torch.float32) for _ in range(KINDS)]
        outputs = 4 * ROWS * COLUMNS * KINDS
        seen.begin()
        outs = pyg_lib.grouped_matmul(inputs, others)
        assert (seen.held, seen.peak) == (outputs, outputs + ARGUMENTS * KINDS)
        grads = [torch.empty_like(out) for out in outs]
        seen.begin()
        torch.autograd.backward(outs, grads)
        of_inputs, of_others = 4 * ROWS * WIDTH * KINDS, 4 * WIDTH * COLUMNS * KINDS
        # copies of the transposed matrices, then of the transposed inputs beside the first gradients
        assert seen.peak == of_inputs + of_others + of_inputs + ARGUMENTS * KINDS
        assert inputs[0].grad.shape == inputs[0].shape
        assert others[0].grad.shape == others[0].shape


def test_segments_take_one_output():
    with simulated() as seen:
        x = on_gpu(ROWS, WIDTH, dtype=torch.float32)
        other = on_gpu(KINDS, WIDTH, COLUMNS, dtype=torch.float32)
        ptr = torch.zeros(KINDS + 1, dtype=torch.int64, device="cuda")
        output = 4 * ROWS * COLUMNS
        seen.begin()
        out = pyg_lib.segment_matmul(x, ptr, other)
        assert (seen.held, seen.peak) == (output, output + ARGUMENTS * KINDS)
        out.sum().backward()
        assert x.grad.shape == x.shape
        assert other.grad.shape == other.shape
