"""bitsandbytes on a simulated GPU: the shapes of its own CPU kernels, and the memory of its own code for CUDA."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.script.isolated import needs

pytestmark = needs("bitsandbytes")

START = """
import torch
from memlint.libraries import installation
installation.install()
import bitsandbytes as bnb
from bitsandbytes import functional
from memlint.tracing.categories import Roles
from memlint.accelerator.device import entry_of
from tests.libraries.events import on_gpu, simulated

def shapes(state):
    return {name: (tuple(t.shape), t.dtype) for name, t in state.items() if isinstance(t, torch.Tensor)}
"""
SHAPES = """
for nested in (False, True):
    for kind in ("nf4", "fp4"):
        x = torch.randn(64, 128, dtype=torch.bfloat16)
        packed, state = functional.quantize_4bit(x, compress_statistics=nested, quant_type=kind)
        with simulated() as seen:
            virtual, there = functional.quantize_4bit(x.cuda(), compress_statistics=nested, quant_type=kind)
            assert virtual.shape == packed.shape and virtual.dtype == packed.dtype
            assert shapes(there.as_dict()) == shapes(state.as_dict())
            assert functional.dequantize_4bit(virtual, there).shape == functional.dequantize_4bit(packed, state).shape
for name in ("Adam8bit", "AdamW8bit", "Lion8bit", "RMSprop8bit", "AdEMAMix8bit", "AdamW", "AdEMAMix"):
    states = []
    for place in ("cpu", "cuda"):
        with simulated():
            weight = torch.nn.Parameter(torch.zeros(128, 64, device=place))
            weight.grad = torch.zeros_like(weight)
            optimizer = getattr(bnb.optim, name)([weight])
            optimizer.step()
            states.append(shapes(optimizer.state[weight]))
    assert states[0] == states[1], (name, states)
"""
MEMORY = """
MIB = 1 << 20
with simulated() as seen:
    layer = bnb.nn.Linear4bit(4096, 4096, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4").bfloat16()
    seen.begin()
    layer = layer.cuda()
    # 4 bits a weight; of each block of 64 a byte, of 256 such a float32; the tables and the mean
    assert seen.held == 8 * MIB + 262144 + 4 * 1024 + 16 * 4 + 2 * 256 * 4 + 4, seen.held
    roles = Roles()
    roles.note_model(layer)
    state = layer.weight.quant_state
    kinds = {tensor: roles.categories[entry_of(tensor).number].value for tensor in (layer.weight, state.absmax, state.state2.absmax)}
    assert list(kinds.values()) == 3 * ["parameter"], kinds
    x = on_gpu(2048, 4096)
    torch.mm(x, x.t()).sum().backward()  # the workspaces of cuBLAS
    x.grad = None
    seen.begin()
    y = layer(x)
    absmax = 262144 * 4
    assert seen.held == y.nbytes
    # the weight as it was, and its scales twice, before and after their mean is added (`_dequant_linear_fallback`)
    assert seen.peak == 32 * MIB + y.nbytes + 2 * absmax, seen.peak
    grad = torch.empty_like(y)
    seen.begin()
    y.backward(grad)
    assert x.grad.shape == x.shape
    assert seen.peak == 32 * MIB + x.nbytes, seen.peak
    assert seen.assumptions == ["kernels of bitsandbytes are not run: its own code for CUDA allocates what they write"]

with simulated() as seen:
    weight = torch.nn.Parameter(torch.zeros(1024, 1024, device="cuda"))
    weight.grad = torch.zeros_like(weight)
    optimizer = bnb.optim.PagedAdamW8bit([weight])
    seen.begin()
    optimizer.step()
    assert seen.held == 2 * (256 * 4 + 1024 * 1024 // 256 * 4), seen.held  # tables and scales; states are paged
    assert any("paged" in text for text in seen.assumptions)

with simulated() as seen:
    layer = bnb.nn.Linear8bitLt(512, 256, bias=False, has_fp16_weights=False, threshold=6.0)
    seen.begin()
    layer = layer.half().cuda()
    assert seen.held == 512 * 256 + 256 * 4, seen.held
    x = on_gpu(64, 512, dtype=torch.float16)
    layer(x).sum().backward()
    assert x.grad.shape == x.shape
"""


def run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_is_quantized_has_the_shapes_of_a_real_run_on_the_host():
    run(SHAPES)


def test_layers_and_optimizers_take_what_the_code_for_cuda_says():
    run(MEMORY)


def test_a_file_that_imports_it_finds_what_it_asks_of_a_build_with_cuda():
    code = "import torch\ntorch.cuda.is_available = lambda: True\n"
    code += "from memlint.libraries import installation\ninstallation.install()\nimport bitsandbytes\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
