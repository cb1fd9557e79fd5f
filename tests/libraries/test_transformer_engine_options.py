"""Options of Transformer Engine's layers take the bytes that its sources say: worked out here by hand."""

from __future__ import annotations

import pytest
import torch

from tests.libraries.events import on_gpu, simulated
from tests.libraries.transformer_engine import te

ROWS, IN, OUT = 512, 1024, 2048
BF16 = torch.bfloat16


def warm(layer, x):
    """Make the workspace, which stays."""
    out = layer(x)
    (sum(each.sum() for each in out if each is not None) if isinstance(out, tuple) else out.sum()).backward()
    for each in (x, *layer.parameters()):
        each.grad = None


@pytest.mark.parametrize("has_name", [False, True])
def test_gradients_are_added_where_the_program_keeps_them(has_name):
    with simulated() as seen:
        x, layers = on_gpu(ROWS, IN), [
            te.Linear(IN, OUT, bias=False, params_dtype=BF16, fuse_wgrad_accumulation=True) for _ in range(2)
        ]  # fmt: skip
        for layer in layers:
            layer.weight.main_grad = torch.zeros(OUT, IN, device="cuda")
            if has_name:
                layer.weight.grad_added_to_main_grad = False
        layers[0](x)
        grad = torch.empty(ROWS, OUT, dtype=BF16, device="cuda")
        seen.begin()
        for layer in layers:
            layer(x).backward(grad)
        # no gradient, or one tensor that stands for those of both
        assert seen.held == x.nbytes + has_name * 2 * IN * OUT
        assert all((layer.weight.grad is not None) is has_name for layer in layers)
        assert all(getattr(layer.weight, "grad_added_to_main_grad", False) is has_name for layer in layers)
        block = te.LayerNormMLP(IN, OUT, params_dtype=BF16, fuse_wgrad_accumulation=True)
        for weight in (block.fc1_weight, block.fc2_weight):
            weight.main_grad = torch.zeros(weight.shape, device="cuda")
        block(x).sum().backward()
        assert block.fc1_weight.grad is None
        assert block.fc1_bias.grad is not None


@pytest.mark.parametrize("enabled", [False, True])
def test_a_norm_that_is_given_back_is_made_in_full(enabled):
    recipe = te.Float8CurrentScaling()
    with simulated("h100-80gb") as seen, te.autocast(enabled, recipe=recipe):
        x = on_gpu(ROWS, IN)
        options = {"normalization": "RMSNorm", "bias": False, "params_dtype": BF16}
        layer = te.LayerNormLinear(IN, OUT, return_layernorm_output=True, **options)
        warm(layer, x)
        seen.begin()
        y, normed = layer(x)
        assert normed.shape == x.shape
        of_fp8 = ROWS * IN + 4 + 2 * IN * OUT + 4  # the norm's columns, and the weight both ways
        assert seen.held == y.nbytes + 2 * ROWS * IN + 4 * ROWS + enabled * of_fp8
        torch.autograd.backward((y, normed), (torch.empty_like(y), torch.empty_like(normed)))
        assert x.grad.shape == x.shape
        block = te.LayerNormMLP(IN, OUT, return_bias=True, return_layernorm_output=True, params_dtype=BF16)
        out, bias, normed = block(x)
        assert (out.shape, bias.shape, normed.shape) == (x.shape, (IN,), x.shape)


def _nvfp4(rows, columns):
    """Bytes of rows and their scales, of a matrix whose sides are multiples of 128."""
    return rows * columns // 2 + rows * columns // 16 + 4


def test_nvfp4_has_half_a_byte_both_ways_and_a_scale_for_each_16():
    with simulated("b200") as seen, te.autocast(recipe=te.NVFP4BlockScaling()):
        x, layer = on_gpu(ROWS, IN), te.Linear(IN, OUT, params_dtype=BF16)
        warm(layer, x)
        seen.begin()
        y = layer(x)
        of_x, of_weight = _nvfp4(ROWS, IN), _nvfp4(OUT, IN)
        assert seen.held == of_x + 2 * of_weight + y.nbytes
        assert seen.peak == seen.held + of_x + (ROWS * IN + OUT * IN) // 16  # scales in another order for the product
        grad = torch.empty_like(y)
        seen.begin()
        y.backward(grad)
        gradients = x.nbytes + layer.weight.nbytes + layer.bias.nbytes
        assert seen.peak == gradients + 2 * _nvfp4(ROWS, OUT) + (ROWS * OUT + ROWS * IN) // 16
        with pytest.raises(RuntimeError, match="divisible by 16"):
            layer(on_gpu(8, IN))
        block = te.LayerNormMLP(IN, OUT, params_dtype=BF16)
        block(x).sum().backward()
        assert {p.grad.shape == p.shape for p in block.parameters()} == {True}
    with simulated("h100-80gb"), pytest.raises(AssertionError, match="NVFP4"), te.autocast(
        recipe=te.NVFP4BlockScaling()
    ):  # fmt: skip
        pass


def test_rows_that_one_kernel_does_not_transform_are_transformed_in_full():
    with simulated("b200") as seen, te.autocast(recipe=te.NVFP4BlockScaling()):
        layer = te.Linear(IN, OUT, bias=False, params_dtype=BF16)
        rows = 4112  # a multiple of 16, and not of 64
        x = on_gpu(rows, IN)
        warm(layer, x)
        y = layer(x)
        grad = torch.empty_like(y)
        seen.begin()
        y.backward(grad)
        by_rows = rows * OUT // 2 + -(-rows // 128) * 128 * OUT // 16 + 4
        by_columns = rows * OUT // 2 + OUT * -(-(rows // 16) // 4) * 4 + 4
        assert seen.peak == by_rows + by_columns + 2 * rows * OUT  # beside the copy that is transformed


def test_blocks_of_fp8_are_multiplied_as_mxfp8_on_blackwell():
    with simulated("b200") as seen, te.autocast(recipe=te.Float8BlockScaling()):
        x, layer = on_gpu(ROWS, IN), te.Linear(IN, OUT, params_dtype=BF16)
        warm(layer, x)
        seen.begin()
        y = layer(x)
        of_x, of_weight = ROWS * IN + 4 * ROWS * IN // 128, OUT * IN + 4 * OUT * IN // 128**2
        assert seen.held == of_x + 2 * of_weight + y.nbytes
        assert seen.peak == seen.held + of_x + (ROWS * IN + OUT * IN) // 32


def test_the_host_keeps_what_weights_in_fp8_were_made_of():
    with simulated("h100-80gb") as seen:
        with te.quantized_model_init(recipe=te.Float8CurrentScaling(), preserve_high_precision_init_val=True):
            layer = te.Linear(IN, OUT, bias=False, params_dtype=BF16)
        assert seen.held == 2 * IN * OUT + 4
        first = layer.weight.get_high_precision_init_val()
        assert (first.device.type, first.dtype, first.shape) == ("cpu", BF16, (OUT, IN))
        layer.weight.clear_high_precision_init_val()
        assert layer.weight.get_high_precision_init_val() is None


@pytest.mark.parametrize(
    "options",
    [{"parallel_attention_mlp": True}, {"apply_residual_connection_post_layernorm": True}, {"drop_path_rate": 0.1},
     {"output_layernorm": True}],
)  # fmt: skip
def test_layers_of_other_orders_train(options):
    with simulated():
        layer = te.TransformerLayer(256, 512, 4, params_dtype=BF16, **options)
        x = on_gpu(64, 2, 256)
        y = layer(x)
        assert y.shape == x.shape
        y.sum().backward()
        assert all(each.grad is not None for each in (x, *layer.parameters()))
        with pytest.raises(AssertionError, match="parallel_attention"):
            te.TransformerLayer(256, 512, 4, parallel_attention_mlp=True, output_layernorm=True)


def test_attention_and_mlp_beside_each_other_have_one_residual():
    length, batch, width, heads = 128, 4, 1024, 16
    with simulated() as seen:
        layer = te.TransformerLayer(width, 4 * width, heads, params_dtype=BF16, parallel_attention_mlp=True)
        x = on_gpu(length, batch, width)
        warm(layer, x)
        seen.begin()
        y = layer(x)
        unit, rows = x.nbytes, length * batch
        # norm, queries, keys and values, attention; norm, what is activated and what comes of it; the sum and its mask
        parts = 1 + 3 + 1 + 1 + 4 + 4 + 1 + 0.5
        assert seen.held == parts * unit + 4 * rows * heads + 2 * 2 * 4 * rows + 24
        grad = torch.empty_like(y)
        seen.begin()
        y.backward(grad)
        assert seen.held == x.nbytes + sum(each.nbytes for each in layer.parameters()) - (parts - 1) * unit - (
            4 * rows * heads + 2 * 2 * 4 * rows + 24
        )


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_keeps_its_input_and_computes_by_the_same_recipe(use_reentrant):
    with simulated("h100-80gb") as seen:
        layer, x = te.LayerNormMLP(IN, OUT, params_dtype=BF16), on_gpu(ROWS, IN)
        with te.autocast(recipe=te.Float8CurrentScaling()):
            warm(layer, x)
            seen.begin()
            y = te.checkpoint(layer, x, use_reentrant=use_reentrant)
            assert seen.held == y.nbytes
        seen.begin()
        y.sum().backward()
        assert x.grad.shape == x.shape
        fp8 = seen.peak
        for each in (x, *layer.parameters()):
            each.grad = None
        y = te.checkpoint(layer, x, use_reentrant=use_reentrant)
        seen.begin()
        y.sum().backward()
        assert fp8 > seen.peak  # weights both ways in fp8 stand beside those of bfloat16


@pytest.mark.parametrize(("kind", "more"), [("L2Normalization", 1), ("RMSNorm", 2)])
def test_norms_of_queries_and_keys_save_them_and_a_number_a_row(kind, more):
    heads = 16
    with simulated() as seen:
        held = {}
        for name in (None, kind):
            layer = te.MultiheadAttention(IN, heads, params_dtype=BF16, attention_dropout=0.0, qk_norm_type=name)
            if name == "RMSNorm":
                layer.q_norm.to(BF16), layer.k_norm.to(BF16)
            x = on_gpu(ROWS, 1, IN)
            warm(layer, x)
            seen.begin()
            y = layer(x)
            held[name] = seen.held
            y.sum().backward()
            assert all(each.grad is not None for each in layer.parameters())
            del y
        # the norms; those of RMSNorm have rows without gaps, which were views of what was projected
        assert held[kind] - held[None] == 2 * (more * x.nbytes + 4 * ROWS * heads)


def test_a_norm_is_made_in_the_dtype_of_its_weight():
    with simulated():
        assert te.RMSNorm(IN)(on_gpu(ROWS, IN)).dtype is torch.float32
        with torch.autocast("cuda", dtype=BF16):
            assert te.LayerNorm(IN)(on_gpu(ROWS, IN)).dtype is BF16


def test_a_loss_makes_its_gradient_in_the_place_of_the_logits():
    batch, length, words = 2, 64, 1000
    with simulated() as seen:
        hidden = on_gpu(batch, length, words)
        logits, target = hidden * 1, torch.zeros(batch, length, dtype=torch.int64, device="cuda")
        seen.begin()
        losses = te.parallel_cross_entropy(logits, target)
        assert losses.shape == (batch, length)
        assert (seen.held, seen.peak) == (4 * batch * length, 4 * 4 * batch * length)
        grad = torch.empty_like(losses)
        del logits
        seen.begin()
        losses.backward(grad)
        assert hidden.grad.shape == hidden.shape
        loss = te.parallel_cross_entropy(on_gpu(batch, length, words), target, 0.1, True)
        assert loss.shape == ()
