"""torchao on a simulated GPU: what its own Python makes on the host for real, it makes there."""

from __future__ import annotations

import subprocess
import sys

import torch
from memlint_libraries import mslk

from tests.script.isolated import needs

CODE = """
import torch
from memlint.libraries import installation
installation.install()
from memlint.accelerator.sparse import parts_of
from memlint.tracing.categories import Roles
import torchao.optim, torchao.quantization as quantization
import torchao.prototype.mx_formats as mx_formats, torchao.prototype.quantization as prototype
from tests.libraries.events import simulated
torch.compile = lambda function=None, **_: function or (lambda f: f)

def parts(tensor):
    return [(tuple(part.shape), part.dtype) for part in parts_of(tensor)]

def states(place, name):
    weight = torch.nn.Parameter(torch.zeros(64, 256, device=place))
    optimizer = getattr(torchao.optim, name)([weight])
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    return {key: parts(value) for key, value in optimizer.state[weight].items()}, optimizer

def quantized(place, config):
    model = torch.nn.Sequential(torch.nn.Linear(256, 128, bias=False, dtype=torch.bfloat16)).to(place)
    model.requires_grad_(False)
    quantization.quantize_(model, config)
    return parts(model[0].weight), model

for name in ("AdamW8bit", "AdamW4bit", "AdamWFp8"):
    real, _ = states("cpu", name)
    with simulated() as seen:
        there, optimizer = states("cuda", name)
        assert there == real, (name, there, real)
        roles = Roles()
        roles.note_optimizer(optimizer)
        kinds = [kind.value for kind in roles.categories.values()]
        assert kinds.count("optimizer_state") >= 4, kinds
        assert len(seen.assumptions) == 1 and "eagerly" in seen.assumptions[0], seen.assumptions
configs = {
    "h100-80gb": [
        quantization.Int8WeightOnlyConfig(), quantization.Int8DynamicActivationInt8WeightConfig(),
        quantization.Float8WeightOnlyConfig(), quantization.IntxWeightOnlyConfig(),
        quantization.Int8DynamicActivationIntxWeightConfig(), mx_formats.NVFP4WeightOnlyConfig(),
        prototype.GGUFWeightOnlyConfig(),
    ],
    "b200": [mx_formats.MXDynamicActivationMXWeightConfig()],
}
for gpu, each in configs.items():
    for config in each:
        real, _ = quantized("cpu", config)
        with simulated(gpu) as seen:
            there, model = quantized("cuda", config)
            assert there == real, (config, there, real)
            nbytes = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in real)
            assert nbytes <= seen.held <= nbytes + 1024, (config, nbytes, seen.held)
            assert model(torch.empty(16, 256, dtype=torch.bfloat16, device="cuda")).shape == (16, 128)
"""


@needs("torchao")
def test_states_and_weights_have_the_parts_of_a_real_run():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


BLACKWELL = """
import torch
from memlint.libraries import installation
from memlint.accelerator.sparse import parts_of
from tests.libraries.events import on_gpu, simulated
installation.install()
with simulated("b200") as seen:
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, quantize_  # which look at the GPU
    from torchao.prototype.mx_formats import NVFP4DynamicActivationNVFP4WeightConfig
    # a byte each; two weights a byte and a byte of scale for each 16; float32 of the whole tensor
    for config, nbytes in (
        (Float8DynamicActivationFloat8WeightConfig(), 128 * 256),
        (NVFP4DynamicActivationNVFP4WeightConfig(), 128 * 256 // 2 + 128 * 256 // 16),
    ):
        model = torch.nn.Linear(256, 128, bias=False, dtype=torch.bfloat16, device="cuda").requires_grad_(False)
        quantize_(model, config)
        assert model(on_gpu(128, 256, grad=False)).shape == (128, 128)
        assert 0 <= sum(part.nbytes for part in parts_of(model.weight)) - nbytes <= 8, config
"""


@needs("torchao")
def test_weights_that_ask_for_a_gpu_find_it():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BLACKWELL], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


NF4 = """
import torch
from memlint.libraries import installation
from tests.libraries.events import simulated
installation.install()
with simulated() as seen:
    from torchao.quantization import to_nf4  # in the simulation, as a program's imports are
    weight = torch.empty(1024, 1024, dtype=torch.bfloat16, device="cuda")
    seen.begin()
    quantized_weight = to_nf4(weight, 64, 256)
    scales = weight.numel() // 64
    # two weights a byte; scales of a byte, with a bfloat16 of each 256, and their mean; 16 bfloat16 values
    assert seen.held == weight.numel() // 2 + scales + 2 * scales // 256 + 2 + 2 * 16, seen.held
    x = torch.empty(8, 1024, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    torch.nn.functional.linear(x, quantized_weight).sum().backward()
    assert x.grad is not None
"""


@needs("torchao")
def test_nf4_has_half_a_byte_an_element_and_its_scales():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", NF4], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


INT4 = """
import importlib.util
import torch
from memlint.libraries import installation
from memlint.libraries.library import UnknownFunctionError
from memlint_libraries.mslk import int4_row_quantize_zp
from tests.libraries.events import on_gpu, simulated
installation.install()
ROWS, COLUMNS, GROUPS = 512, 1024, 1024 // 128
HALF, SCALES = ROWS * COLUMNS // 2, ROWS * GROUPS * 2  # two weights a byte; bfloat16 of each group

kept = []  # so that nothing dies meanwhile

def quantized(seen, config):
    model = torch.nn.Linear(COLUMNS, ROWS, bias=False, dtype=torch.bfloat16, device="cuda")
    model.requires_grad_(False)
    held = seen.held
    torchao.quantization.quantize_(model, config)
    kept.append(model)
    return model, seen.held - held + 2 * ROWS * COLUMNS

def product(seen, model):
    x = on_gpu(2, 8, COLUMNS, grad=False)
    seen.begin()
    assert model(x).shape == (2, 8, ROWS)
    return seen.peak

with simulated("h100-80gb") as seen:
    import torchao.quantization
    from torchao.quantization import Float8DynamicActivationInt4WeightConfig, Int4WeightOnlyConfig
    for config in (Int4WeightOnlyConfig(), Int4WeightOnlyConfig(int4_packing_format="preshuffled")):
        model, nbytes = quantized(seen, config)
        assert nbytes == HALF + SCALES + SCALES, (config, nbytes)  # scales and zeros
        assert product(seen, model) == 2 * 16 * ROWS
    # activations a byte each, and a float32 of each row
    operand = 16 * COLUMNS + 4 * 16
    model, nbytes = quantized(seen, Float8DynamicActivationInt4WeightConfig(int4_packing_format="plain"))
    assert nbytes == HALF + SCALES + SCALES, nbytes
    assert product(seen, model) == operand + (256 << 20)  # five configurations are tried at first
    model, nbytes = quantized(seen, Float8DynamicActivationInt4WeightConfig())
    assert nbytes == HALF + 8 * ROWS * GROUPS + 4 * ROWS, nbytes  # fp8: 8 of each scale, and a float32 of each row
    assert product(seen, model) == operand + 2 * 16 * ROWS
    weight = on_gpu(ROWS, COLUMNS, grad=False)
    seen.begin()
    made = int4_row_quantize_zp(weight)
    # in float32, rounded in float32 and in a byte; the least, the most, scale and zero of each group; a group at a time
    assert seen.peak == 9 * ROWS * COLUMNS + 4 * 4 * ROWS * GROUPS + 4 * ROWS * 128, seen.peak
    assert importlib.util.find_spec("mslk") is None  # who asks is told the truth
    assert [each for each in seen.assumptions if "mslk-cuda" in each and "1.1.0" in each], seen.assumptions

with simulated("a100-80gb") as seen:
    model, _ = quantized(seen, Int4WeightOnlyConfig())
    try:
        product(seen, model)
    except UnknownFunctionError as error:
        assert "not Hopper" in str(error), error
    else:
        raise AssertionError("its kernel is Hopper's")
"""


@needs("torchao")
def test_weights_of_four_bits_are_two_a_byte_with_scales_and_zeros():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", INT4], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_whole_numbers_of_four_bits_are_those_of_the_formula():
    weight = torch.randn(6, 256)
    numbers, scale, zero = mslk.int4_row_quantize_zp(weight)
    assert (scale.shape, zero.shape, numbers.dtype) == ((2, 6), (2, 6), torch.int8)
    wide = [each.t().repeat_interleave(128, dim=1) for each in (scale, zero)]
    assert ((numbers * wide[0] + wide[1]) - weight).abs().max() <= scale.max() / 2 + 1e-5
    packed = mslk.pack_int4(numbers)
    assert torch.equal(packed >> 4, numbers[:, 1::2])
    assert torch.equal((packed << 4) >> 4, numbers[:, ::2])
    numbers, scale = mslk.int4_row_quantize(weight)
    assert ((numbers * scale.t().repeat_interleave(128, dim=1)) - weight).abs().max() <= scale.max() + 1e-5
