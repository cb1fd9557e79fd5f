"""torchao on a simulated GPU: what its own Python makes on the host for real, it makes there."""

from __future__ import annotations

import subprocess
import sys

from tests.script.isolated import needs

CODE = """
import torch
from memlint.libraries import installation
installation.install()
from memlint.accelerator.sparse import parts_of
from memlint.tracing.categories import Roles
import torchao.optim, torchao.quantization as quantization
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
    quantization.quantize_(model, getattr(quantization, config)())
    return parts(model[0].weight)

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
for config in ("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "Float8WeightOnlyConfig"):
    real = quantized("cpu", config)
    with simulated() as seen:
        assert quantized("cuda", config) == real, config
        nbytes = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in real)
        assert nbytes <= seen.held <= nbytes + 1024, (config, nbytes, seen.held)
"""


@needs("torchao")
def test_states_and_weights_have_the_parts_of_a_real_run():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, check=False)
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
