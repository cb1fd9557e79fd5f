"""Transformer Engine takes the bytes that its sources say: worked out here by hand."""

from __future__ import annotations

import pytest
import torch

from memlint.libraries.library import UnknownFunctionError
from tests.libraries.events import on_gpu, simulated
from tests.libraries.transformer_engine import te

ROWS, IN, OUT = 512, 1024, 2048
BF16 = torch.bfloat16


def warm(layer, x):
    """Make the workspace and the state of scales, which stay."""
    layer(x).sum().backward()
    x.grad = None
    for parameter in layer.parameters():
        parameter.grad = None


def test_without_fp8_a_linear_layer_saves_its_input():
    with simulated() as seen:
        x, layer = on_gpu(ROWS, IN), te.Linear(IN, OUT, params_dtype=BF16)
        seen.begin()
        warm(layer, x)
        assert seen.held == 4 << 20  # a workspace for all; wide since Hopper
        seen.begin()
        y = layer(x)
        assert seen.held == seen.peak == y.nbytes
        grad = torch.empty_like(y)
        seen.begin()
        y.backward(grad)
        assert seen.held == x.nbytes + layer.weight.nbytes + layer.bias.nbytes
        with pytest.raises(AssertionError, match=r"8\.9 or higher"), te.fp8_autocast():
            pass


@pytest.mark.parametrize(
    ("gpu", "recipe", "transposes"),
    [("h100-80gb", te.DelayedScaling(), 1), ("h100-80gb", te.Float8CurrentScaling(), 1),
     ("b200", te.Float8CurrentScaling(), 0)],
)  # fmt: skip
def test_in_fp8_it_saves_a_byte_an_element_and_the_weight_with_its_transpose(gpu, recipe, transposes):
    with simulated(gpu) as seen, te.autocast(recipe=recipe):
        x, layer = on_gpu(ROWS, IN), te.Linear(IN, OUT, params_dtype=BF16)
        seen.begin()
        warm(layer, x)
        state = 5 * 4 * (1 + 1024) if isinstance(recipe, te.DelayedScaling) else 0
        assert seen.held == (32 << 20) + 1024 + state
        seen.begin()
        y = layer(x)
        weight = (1 + transposes) * IN * OUT
        assert seen.held == ROWS * IN + 4 + weight + 4 + y.nbytes
        assert seen.peak == seen.held + transposes * ROWS * IN
        grad = torch.empty_like(y)
        seen.begin()
        y.backward(grad)
        gradients = x.nbytes + layer.weight.nbytes + layer.bias.nbytes
        assert seen.peak == gradients + (1 + transposes) * ROWS * OUT + 4


def test_a_norm_before_it_saves_its_input_as_well():
    with simulated() as seen:
        x = on_gpu(ROWS, IN)
        layer = te.LayerNormLinear(IN, OUT, normalization="RMSNorm", bias=False, params_dtype=BF16)
        warm(layer, x)
        seen.begin()
        y = layer(x)
        assert seen.held == y.nbytes + x.nbytes + 4 * ROWS
        grad = torch.empty_like(y)
        seen.begin()
        y.backward(grad)
        sums = 4 * 108 * IN
        # the products' gradients; then that of the norm beside them, when what was normed is given back
        assert seen.peak == 2 * x.nbytes + layer.weight.nbytes + 2 * IN + sums - x.nbytes


@pytest.mark.parametrize(("activation", "wide"), [("gelu", 1), ("swiglu", 2)])
def test_the_block_saves_what_is_activated_and_what_comes_of_it(activation, wide):
    with simulated() as seen:
        x, block = on_gpu(ROWS, IN), te.LayerNormMLP(IN, OUT, activation=activation, params_dtype=BF16)
        warm(block, x)
        seen.begin()
        y = block(x)
        hidden, active = 2 * ROWS * wide * OUT, 2 * ROWS * OUT
        assert seen.held == y.nbytes + x.nbytes + 2 * 4 * ROWS + hidden + active
        grad = torch.empty_like(y)
        seen.begin()
        y.backward(grad)
        second, first = block.fc2_weight.nbytes, block.fc1_weight.nbytes
        biases = block.fc1_bias.nbytes + block.fc2_bias.nbytes
        # the gradient of what was activated stands in the place of `active`, that of `hidden` in its place
        most = [
            second + biases + active - active + hidden,
            second + biases + active - active + hidden - hidden + x.nbytes + first,
            second + biases + active - active + x.nbytes + first - hidden - x.nbytes
            + x.nbytes + 2 * 2 * IN + 2 * 4 * 108 * IN,
        ]  # fmt: skip
        assert seen.peak == max(most)
        for parameter in block.parameters():
            assert parameter.grad.shape == parameter.shape


def test_in_fp8_the_block_runs_and_takes_less():
    held = {}
    for enabled in (False, True):
        with simulated("h100-80gb") as seen, te.fp8_autocast(enabled=enabled, fp8_recipe=te.DelayedScaling()):
            x, block = on_gpu(ROWS, IN), te.LayerNormMLP(IN, OUT, activation="swiglu", params_dtype=BF16)
            warm(block, x)
            seen.begin()
            y = block(x)
            held[enabled] = seen.held
            y.sum().backward()
            assert x.grad.shape == x.shape
    weights = 2 * 3 * IN * OUT + 8  # of both, with their transposes
    normed, active = ROWS * IN, ROWS * OUT  # bytes and their transposes take as much as bfloat16
    assert held[True] == held[False] + weights + 8
    assert normed + active < weights


def test_attention_keeps_an_output_and_a_number_a_row():
    with simulated("h100-80gb") as seen:
        heads, size, batch = 16, 64, 2
        q, k, v = (on_gpu(ROWS, batch, heads, size) for _ in range(3))
        attention = te.DotProductAttention(heads, size)
        seen.begin()
        out = attention(q, k, v)
        assert out.shape == (ROWS, batch, heads * size)
        assert out.nbytes + 4 * batch * heads * ROWS <= seen.held <= out.nbytes + 4 * batch * heads * ROWS + 64
        out.sum().backward()
        assert q.grad.shape == q.shape
        with pytest.raises(UnknownFunctionError, match=r"DotProductAttention\(attn_mask_type='other'"):
            attention(q, k, v, attn_mask_type="other")
        with pytest.raises(UnknownFunctionError, match=r"Linear\(delay_wgrad_compute=True\)"):
            te.Linear(8, 8, delay_wgrad_compute=True)


def test_a_layer_keeps_what_its_parts_save_and_a_mask_of_each_residual():
    length, batch, width, heads = 128, 4, 1024, 16
    with simulated() as seen:
        layer = te.TransformerLayer(width, 4 * width, heads, params_dtype=BF16)
        assert sum(p.numel() for p in layer.parameters()) == 12 * width**2 + 13 * width
        x = on_gpu(length, batch, width)
        layer(x)
        seen.begin()
        y = layer(x)
        unit, rows = x.nbytes, length * batch
        # norm, queries, keys and values, attention, the residual and its mask; norm, what is activated and what comes
        # of it, the residual and its mask
        parts = 1 + 3 + 1 + 1 + 0.5 + 1 + 4 + 4 + 1 + 0.5
        assert seen.held == parts * unit + 4 * rows * heads + 2 * 2 * 4 * rows + 24  # sums, rows of norms, a seed
        y.sum().backward()
        assert all(p.grad is not None for p in layer.parameters())
        del y
        seen.begin()
        with torch.no_grad():
            out = layer.eval()(x)
        assert seen.held == out.nbytes == unit
        assert seen.peak > (1 + 1 + 4 + 4) * unit  # what attention gave lives on beside the MLP


def test_a_decoder_attends_to_what_was_encoded():
    with simulated() as seen:
        layer = te.TransformerLayer(
            256, 512, 8, num_gqa_groups=2, layer_type="decoder", bias=False, normalization="RMSNorm",
            activation="swiglu", attn_input_format="bshd", output_layernorm=True, params_dtype=BF16,
        )  # fmt: skip
        angles = te.RotaryPositionEmbedding(32)(64)
        assert angles.shape == (64, 1, 1, 32)
        x, encoded = on_gpu(2, 64, 256), on_gpu(2, 96, 256)
        y = layer(x, encoder_output=encoded, rotary_pos_emb=(angles, te.RotaryPositionEmbedding(32)(96)))
        assert y.shape == x.shape
        y.sum().backward()
        assert encoded.grad is not None
        assert any("mask alone" in text for text in seen.assumptions) is False  # nothing is fused without a bias
        with pytest.raises(UnknownFunctionError, match="softmax_type"):
            te.MultiheadAttention(256, 8, softmax_type="learnable")
        with pytest.raises(UnknownFunctionError, match="inference_params"):
            layer(x, encoder_output=encoded, inference_params=object())


def _blocks(rows, columns, recipe, *, is_weight=False):
    """Bytes by rows and by columns with their scales, of a matrix whose sides are multiples of 128."""
    numel = rows * columns
    if isinstance(recipe, te.MXFP8BlockScaling):
        return numel + numel // 32
    edges = 128 * 128 if is_weight else 128
    assert columns // 128 % 4 == rows // 128 % 4 == 0
    return numel + 4 * numel // edges


@pytest.mark.parametrize(
    ("gpu", "recipe"), [("b200", te.MXFP8BlockScaling()), ("b200", None), ("h100-80gb", te.Float8BlockScaling())]
)
def test_scales_of_blocks_lie_beside_rows_and_columns(gpu, recipe):
    with simulated(gpu) as seen, te.autocast(recipe=recipe):
        recipe = recipe or te.MXFP8BlockScaling()  # what the newest GPUs have where nothing is said
        x, layer = on_gpu(ROWS, IN), te.Linear(IN, OUT, params_dtype=BF16)
        seen.begin()
        warm(layer, x)
        assert seen.held == (32 << 20) + 1024
        seen.begin()
        y = layer(x)
        of_x, of_weight = _blocks(ROWS, IN, recipe), _blocks(OUT, IN, recipe, is_weight=True)
        swizzled = isinstance(recipe, te.MXFP8BlockScaling)
        assert seen.held == of_x + 2 * of_weight + y.nbytes
        # both ways of the input meanwhile, and the scales of a product in another order
        assert seen.peak == seen.held + of_x + swizzled * (ROWS * IN + OUT * IN) // 32
        grad = torch.empty_like(y)
        seen.begin()
        y.backward(grad)
        gradients = x.nbytes + layer.weight.nbytes + layer.bias.nbytes
        of_grad = 2 * _blocks(ROWS, OUT, recipe)
        assert seen.peak == gradients + of_grad + swizzled * (ROWS * OUT + ROWS * IN) // 32
    with simulated("a100-80gb"), pytest.raises(AssertionError, match="or higher"), te.autocast(recipe=recipe):
        pass


@pytest.mark.parametrize("recipe", [te.DelayedScaling(), te.Float8BlockScaling()])
@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_a_block_and_a_layer_train_with_scales_of_blocks(recipe, activation):
    with simulated("h100-80gb"), te.autocast(recipe=recipe):
        x, block = on_gpu(ROWS, IN), te.LayerNormMLP(IN, OUT, activation=activation, params_dtype=BF16)
        block(x).sum().backward()
        assert {p.grad.shape == p.shape for p in block.parameters()} == {True}


def test_a_layer_keeps_its_weights_in_fp8_between_microbatches():
    with simulated("h100-80gb") as seen, te.autocast(recipe=te.Float8CurrentScaling()):
        x, layer = on_gpu(ROWS, IN), te.Linear(IN, OUT, params_dtype=BF16)
        warm(layer, x)
        weight = 2 * IN * OUT + 4  # with its transpose
        seen.begin()
        layer(x, is_first_microbatch=True).sum().backward()
        gradients = x.nbytes + layer.weight.nbytes + layer.bias.nbytes
        assert seen.held == weight + gradients
        y = layer(x, is_first_microbatch=False)
        assert seen.held == weight + gradients + ROWS * IN + 4 + y.nbytes
        del y
        layer(x, is_first_microbatch=True)
        assert seen.held == weight + gradients
        whole = te.TransformerLayer(IN, OUT, 16, params_dtype=BF16)
        whole(x.view(4, 128, IN), is_first_microbatch=True)
        assert sum(len(each._fp8_workspaces) for each in whole.modules() if hasattr(each, "_fp8_workspaces")) == 4


@pytest.mark.parametrize("enabled", [False, True])
def test_experts_multiply_their_rows_in_four_streams(enabled):
    with simulated("h100-80gb") as seen, te.autocast(enabled, recipe=te.Float8CurrentScaling()):
        x, layer = on_gpu(ROWS, IN), te.GroupedLinear(4, IN, OUT, bias=False, params_dtype=BF16)
        splits = [128, 0, 256, 128]
        seen.begin()
        layer(x, splits).sum().backward()
        gradients = x.nbytes + 4 * layer.weight0.nbytes
        assert seen.held == 4 * ((32 << 20) + 1024) + gradients
        seen.begin()
        y = layer(x, splits)
        assert y.shape == (ROWS, OUT)
        # views of the input, or of each expert its rows' columns and its weight both ways, with their scales
        assert seen.held == y.nbytes + enabled * (ROWS * IN + 4 * 2 * IN * OUT + 2 * 4 * 4)


@pytest.mark.parametrize(
    ("gpu", "recipe", "transposes"),
    [("h100-80gb", te.DelayedScaling(), 1), ("b200", te.Float8CurrentScaling(), 0)],
)
def test_weights_in_fp8_alone_are_a_byte_an_element_and_their_transpose(gpu, recipe, transposes):
    with simulated(gpu) as seen:
        with te.fp8_model_init(recipe=recipe):
            layer = te.Linear(IN, OUT, bias=False, params_dtype=BF16)
        weight = (1 + transposes) * IN * OUT + 4
        assert seen.held == weight
        assert seen.peak == weight + 2 * IN * OUT  # made in bfloat16 first
        assert (layer.weight.dtype, layer.weight.shape) == (BF16, (OUT, IN))
        assert isinstance(layer.weight, torch.nn.Parameter)
        x = on_gpu(ROWS, IN)
        with te.autocast(recipe=recipe):
            warm(layer, x)
            seen.begin()
            y = layer(x)
            assert seen.held == ROWS * IN + 4 + y.nbytes  # no weight is made
            grad = torch.empty_like(y)
            seen.begin()
            y.backward(grad)
            assert layer.weight.grad.dtype == BF16
            assert seen.held == x.nbytes + 2 * IN * OUT - (ROWS * IN + 4)  # gradients; what was saved of the input


def test_what_an_optimizer_does_to_weights_in_fp8_is_done_in_full():
    with simulated("h100-80gb") as seen:
        with te.quantized_model_init(recipe=te.Float8CurrentScaling()):
            layer = te.Linear(IN, OUT, bias=False, params_dtype=BF16)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer.weight.grad = torch.empty(OUT, IN, dtype=BF16, device="cuda")
        seen.begin()
        optimizer.step()
        assert (seen.held, seen.peak) == (0, 2 * IN * OUT)


def test_weights_made_without_gradients_get_their_transpose_when_it_is_needed():
    recipe = te.DelayedScaling()
    with simulated("h100-80gb") as seen:
        with torch.no_grad(), te.fp8_model_init(recipe=recipe):
            layer = te.Linear(IN, OUT, bias=False, params_dtype=BF16)
        assert seen.held == IN * OUT + 4
        x = on_gpu(ROWS, IN)
        with te.autocast(recipe=recipe):
            with torch.no_grad():
                layer(x)
            seen.begin()
            y = layer(x)
            assert seen.held == IN * OUT + ROWS * IN + 4 + y.nbytes


def test_blocks_and_experts_train_with_weights_in_fp8():
    with simulated("h100-80gb") as seen:
        with te.fp8_model_init():
            block = te.LayerNormMLP(IN, OUT, params_dtype=BF16)
            experts = te.GroupedLinear(2, IN, OUT, bias=False, params_dtype=BF16)
        small = sum(each.nbytes for each in block.parameters() if each.dim() == 1)
        assert seen.held == 2 * (2 * IN * OUT) + 2 * 4 + small + 2 * (2 * IN * OUT + 4)
        x = on_gpu(ROWS, IN)
        with te.autocast():
            block(x).sum().backward()
            experts(x, [ROWS // 2, ROWS // 2]).sum().backward()
        assert all(each.grad is not None for each in (*block.parameters(), *experts.parameters()))
        block(x)  # without fp8 they are multiplied in full
        with pytest.raises(RuntimeError, match="not multiplied"), te.autocast(recipe=te.Float8CurrentScaling()):
            block(x)
