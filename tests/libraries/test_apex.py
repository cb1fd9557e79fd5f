"""apex takes the bytes that its sources say: worked out here by hand."""

from __future__ import annotations

import pytest
import torch

from memlint.base.errors import TraceError
from memlint.libraries import apex
from tests.libraries.events import on_gpu, simulated

ROWS, SIZE = 512, 1024


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adam_has_two_float32_states(dtype):
    with simulated() as seen:
        weight = torch.nn.Parameter(on_gpu(ROWS, SIZE, dtype=dtype, grad=False))
        weight.grad = torch.empty_like(weight)
        optimizer = apex.FusedAdam([weight])
        seen.begin()
        optimizer.step()
        optimizer.step()
        assert seen.held == 2 * 4 * ROWS * SIZE
        half = 2 * ROWS * SIZE if dtype is torch.bfloat16 else 0  # zeros of the parameter's dtype, made float32
        assert seen.peak == seen.held + half
        with pytest.raises(TraceError, match="capturable"):
            apex.FusedAdam([weight], capturable=True)


@pytest.mark.parametrize(("optimizer", "number"), [(apex.FusedSGD, 1), (apex.FusedAdagrad, 1), (apex.FusedLAMB, 2)])
def test_others_have_states_of_the_parameters_dtype(optimizer, number):
    with simulated() as seen:
        weight = torch.nn.Parameter(on_gpu(ROWS, SIZE, grad=False))
        weight.grad = torch.empty_like(weight)
        made = optimizer([weight], lr=0.1)
        seen.begin()
        made.step()
        made.step()
        assert seen.held == number * 2 * ROWS * SIZE
        one = 4 * (1 + 1)  # the norms that stay meanwhile: of all, and of each
        norms = 4 + one + 4 * (320 + ROWS * SIZE // 65536) + one
        assert seen.peak == seen.held + (norms if optimizer is apex.FusedLAMB else 0)
        made.zero_grad()
        assert (weight.grad is None) == (optimizer is not apex.FusedSGD)


def test_norms_and_scales_of_many_tensors():
    with simulated() as seen:
        tensors = [on_gpu(ROWS, SIZE, grad=False) for _ in range(3)]
        flag = torch.zeros(1, dtype=torch.int, device="cuda")
        applier, kernels = (
            apex.library.modules["apex.multi_tensor_apply"]["multi_tensor_applier"],
            apex.extension.modules,
        )
        seen.begin()
        norm, each = applier(kernels["amp_C"]["multi_tensor_l2norm"], flag, [tensors], True)
        assert seen.held == 4 * (1 + 3)
        assert seen.peak == seen.held + 4 * (320 + 3 * ROWS * SIZE // 65536)
        assert (norm.shape, each.shape) == ((1,), (3,))
        seen.begin()
        applier(kernels["amp_C"]["multi_tensor_scale"], flag, [tensors, tensors], 0.5)
        assert seen.peak == 0


def test_on_the_host_a_norm_is_pytorchs():
    x, norm = torch.randn(4, SIZE), apex.FusedLayerNorm(SIZE)
    assert norm(x).equal(torch.nn.functional.layer_norm(x, (SIZE,), norm.weight, norm.bias, norm.eps))
    assert apex.FusedRMSNorm(SIZE)(x).equal(torch.nn.functional.rms_norm(x, (SIZE,), torch.ones(SIZE), 1e-5))


@pytest.mark.parametrize("efficient", [True, False])
def test_layer_norm_saves_its_input_or_its_output(efficient):
    with simulated() as seen:
        x = on_gpu(ROWS, SIZE) * 1
        norm = apex.FusedLayerNorm(SIZE, memory_efficient=efficient).cuda().bfloat16()
        seen.begin()
        out = norm(x)
        assert seen.peak == 2 * ROWS * SIZE + 2 * 4 * ROWS
        grad = torch.empty_like(out)
        del x
        assert seen.held == 2 * 2 * ROWS * SIZE + (4 if efficient else 8) * ROWS - efficient * 2 * ROWS * SIZE
        seen.begin()
        torch.autograd.grad(out, norm.weight, grad)
        assert seen.peak == 2 * ROWS * SIZE + 2 * 2 * SIZE + 2 * 16 * SIZE * 4


def test_a_norm_of_mixed_dtypes_gives_that_of_its_weights():
    with simulated():
        x = on_gpu(ROWS, SIZE)
        assert apex.MixedFusedRMSNorm(SIZE).cuda()(x).dtype is torch.float32
        assert apex.FusedRMSNorm(SIZE).cuda()(x).dtype is torch.bfloat16
        apex.FusedRMSNorm(SIZE, elementwise_affine=False)(x).sum().backward()
        assert x.grad is not None
