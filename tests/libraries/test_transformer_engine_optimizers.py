"""Transformer Engine's optimizers have the states that their Python says: bytes worked out here by hand."""

from __future__ import annotations

import pytest
import torch

from tests.libraries.events import on_gpu, simulated
from tests.libraries.transformer_engine import te

ROWS, SIZE = 512, 1024
N = ROWS * SIZE
BF16 = torch.bfloat16


def weight_and_gradient(dtype=BF16):
    weight = torch.nn.Parameter(on_gpu(ROWS, SIZE, dtype=dtype, grad=False))
    weight.grad = torch.empty_like(weight)
    return weight


@pytest.mark.parametrize(
    ("options", "states", "scales", "copies"),
    [
        ({}, 8, 0, 0),
        ({"master_weights": True}, 12, 0, 0),
        ({"master_weights": True, "store_param_remainders": True}, 10, 0, 0),
        ({"master_weights": True, "master_weight_dtype": torch.float16}, 10, 4, 4),
        ({"exp_avg_dtype": BF16, "exp_avg_sq_dtype": BF16}, 4, 8, 8),
        ({"exp_avg_dtype": torch.uint8}, 6, 4 + 3 * 4, 4),  # its transpose beside it, and what its quantizer has
    ],
)
def test_adam_has_states_of_the_dtypes_that_are_asked_for(options, states, scales, copies):
    with simulated("h100-80gb") as seen:
        weight = weight_and_gradient()
        optimizer = te.optimizers.FusedAdam([weight], **options)
        seen.begin()
        optimizer.step()
        assert seen.held == states * N + scales
        seen.begin()
        optimizer.step()
        assert seen.held == 0
        # copies in float32 for the kernel; of bfloat16 one rounded copy more, when it is written back
        rounded = 2 * N if options.get("exp_avg_dtype") is BF16 else 0
        assert copies * N + rounded <= seen.peak <= copies * N + rounded + 1024  # largest values and scales
        optimizer.zero_grad()
        assert weight.grad is None


def test_adam_gives_its_states_in_float32_and_takes_them_back():
    with simulated("h100-80gb") as seen:
        weight = weight_and_gradient()
        optimizer = te.optimizers.FusedAdam([weight], exp_avg_dtype=torch.float16, use_decoupled_grad=True)
        weight.grad, weight.decoupled_grad = None, weight.grad.float()
        optimizer.step()
        saved = optimizer.state_dict()
        assert {each.dtype for each in saved["state"][0].values()} == {torch.float32}
        optimizer.load_state_dict(saved)
        assert optimizer.state[weight]["exp_avg"].dtype is torch.float16
        optimizer.zero_grad(set_to_none=False)
        assert weight.decoupled_grad is not None
        optimizer.zero_grad()
        assert weight.decoupled_grad is None
        with pytest.raises(RuntimeError, match="Capturable"):
            te.optimizers.FusedAdam([weight], capturable=True, exp_avg_dtype=BF16)
        seen.begin()
        te.optimizers.FusedAdam([weight], capturable=True)
        assert seen.peak >= 8  # the rate and a flag of overflow


def test_adam_has_master_weights_of_weights_in_fp8():
    with simulated("h100-80gb") as seen:
        with te.fp8_model_init():
            layer = te.Linear(SIZE, ROWS, bias=False, params_dtype=BF16)
        layer.weight.grad = torch.empty(ROWS, SIZE, dtype=BF16, device="cuda")
        optimizer = te.optimizers.FusedAdam(layer.parameters(), master_weights=True)
        seen.begin()
        optimizer.step()
        assert seen.held == 12 * N


@pytest.mark.parametrize(("dtype", "states"), [(torch.float32, 4), (torch.float16, 2), (BF16, 0)])
def test_sgd_has_a_momentum_of_float16_and_float32_alone(dtype, states):
    with simulated() as seen:
        weight = weight_and_gradient(dtype)
        optimizer = te.optimizers.FusedSGD([weight], lr=0.1)
        seen.begin()
        optimizer.step()
        optimizer.step()
        assert (seen.held, seen.peak) == (states * N, states * N)


def test_norms_of_many_tensors_take_sums():
    with simulated() as seen:
        tensors = [on_gpu(ROWS, SIZE, grad=False) for _ in range(3)]
        flag = torch.zeros(1, dtype=torch.int, device="cuda")
        seen.begin()
        of = te.optimizers
        norm, norms = of.multi_tensor_applier(of.multi_tensor_l2norm, flag, [tensors], True)
        assert (norm.shape, norms.shape) == ((1,), (3,))
        assert seen.peak == seen.held + 4 * (320 + 3 * N // 65536)
        seen.begin()
        of.multi_tensor_applier(of.multi_tensor_scale, flag, [tensors, tensors], 0.5)
        assert seen.peak == 0
        scale = torch.ones(1, device="cuda")
        norm, norms = of.multi_tensor_applier(of.multi_tensor_unscale_l2norm, flag, [tensors], scale, False)
        assert norms.numel() == 0
