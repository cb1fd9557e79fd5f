"""Kernels of Triton, installed or not, and operators of torch.library on a simulated GPU."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from memlint.accelerator import state
from memlint.cuda.session import virtual_device
from memlint.libraries import custom_ops
from memlint.libraries.triton import _Finder, _names_and_written
from memlint.memory.devices import device_named
from tests.script.isolated import needs

pytestmark = pytest.mark.usefixtures("copied_pythons")

START = """
import importlib.machinery
import sys

if {hide}:
    real = importlib.machinery.PathFinder.find_spec
    hidden = lambda cls, name, *rest: None if name.partition(".")[0] == "triton" else real(name, *rest)
    importlib.machinery.PathFinder.find_spec = classmethod(hidden)
from memlint.workloads import torchvision_schemas
torchvision_schemas.install()
import torch
from memlint.accelerator import lazy_imports, state
from memlint.memory.devices import device_named
from memlint.cuda.session import virtual_device
from memlint.libraries import custom_ops, custom_ops, triton as ours
lazy_imports.run_eagerly()
ours.install()
custom_ops.install()
assumptions = []

devices = []

def simulated():
    device = virtual_device(device_named("a100-80gb"))
    devices.append(device)
    ledger = device.__enter__()
    state.current.assume = assumptions.append
    return ledger
"""
KERNELS = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.autotune(configs=[triton.Config({"BLOCK": size}, num_warps=4) for size in (128, 256)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def count(index_ptr, counts_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets, mask=offsets < n)
    counts_ptr += index
    tl.atomic_add(counts_ptr, libdevice.rsqrt(1.0))

ledger = simulated()
index = torch.arange(6, device="cuda")
counts = torch.zeros(4, dtype=torch.int64, device="cuda")
first = len(ledger.events)
count[(1,)](index, counts, 6)
assert [ledger.births[n].nbytes for n in ledger.events[first:] if n >= 0] == [256 << 20], "of the tuning"
assert count.best_config.kwargs["BLOCK"] in (128, 256)
events = len(ledger.events)
for _ in range(2):
    count[(triton.cdiv(6, 128),)](index, counts, 6)
    count[lambda meta: (triton.cdiv(6, meta["BLOCK"]),)](index_ptr=index, counts_ptr=counts, n=6)
assert len(ledger.events) == events
assert index.tolist() == [0, 1, 2, 3, 4, 5]
assert len(assumptions) == 2, assumptions
counts.tolist()
assert len(assumptions) > 2, "what a kernel wrote is not known"
properties = triton.runtime.driver.active.utils.get_device_properties(0)
assert properties["multiprocessor_count"] == 108
assert triton.next_power_of_2(100) == 128
import triton.backends
assert "cpu" not in triton.backends.backends  # torch.utils._triton.has_triton asks, where it thinks of no GPU
"""
LIGER = """
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss, LigerRMSNorm, apply_liger_kernel_to_llama
from transformers import LlamaConfig, LlamaForCausalLM

ledger = simulated()
apply_liger_kernel_to_llama()
x = torch.rand(4, 128, 256, device="cuda", requires_grad=True)
norm = LigerRMSNorm(256).cuda()
LigerSiLUMulFunction.apply(norm(x), x).sum().backward()
assert x.grad.shape == x.shape
assert norm.weight.grad.shape == (256,)
head = torch.nn.Linear(256, 32000, bias=False).cuda()
target = torch.randint(0, 32000, (512,), device="cuda")
before = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
loss = LigerFusedLinearCrossEntropyLoss()(head.weight, x.view(-1, 256), target)
loss.backward()
logits = 512 * 32000 * 4
assert torch.cuda.max_memory_allocated() - before < 2 * head.weight.nbytes + logits
sizes = dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, vocab_size=32000)
model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **sizes)).cuda().bfloat16()
assert type(model.model.norm) is LigerRMSNorm
tokens = torch.randint(0, 32000, (2, 128), device="cuda")
model(input_ids=tokens, labels=tokens).loss.backward()
assert all(parameter.grad is not None for parameter in model.parameters())
"""


def run(file: str) -> None:
    done = subprocess.run(
        [sys.executable, file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def written(folder: Path, code: str, *, hide: bool) -> str:
    """A file, as the source of kernels is looked up."""
    file = folder / "program.py"
    file.write_text(START.format(hide=hide) + code)
    return str(file)


@pytest.mark.parametrize("hide", [True, pytest.param(False, marks=needs("triton"))])
def test_a_launch_allocates_nothing_and_makes_what_it_writes_unknown(tmp_path: Path, hide: bool) -> None:
    run(written(tmp_path, KERNELS, hide=hide))


@pytest.mark.slow
@needs("liger_kernel", "transformers")
@pytest.mark.parametrize("hide", [True, pytest.param(False, marks=needs("triton"))])
def test_the_kernels_of_liger_run_forward_and_backward(tmp_path: Path, hide: bool) -> None:
    run(written(tmp_path, LIGER, hide=hide))


def test_what_a_kernel_writes_is_read_from_its_text() -> None:
    def kernel(x, y, z, w, size):  # type: ignore[no-untyped-def]
        row = y + size
        places = (row, z)
        tl.store(places, tl.load(x))  # noqa: F821
        w.store([0], 1)

    names, written = _names_and_written(kernel)
    assert names == ("x", "y", "z", "w", "size")
    assert written == {"y", "z", "w", "size"}


def test_a_stand_in_for_triton_has_its_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {name: module for name, module in sys.modules.items() if name.partition(".")[0] != "triton"}
    monkeypatch.setattr(sys, "meta_path", [_Finder()])
    with patch.dict(sys.modules, others, clear=True):
        triton = importlib.import_module("triton")
        descriptors = importlib.import_module("triton.tools.tensor_descriptor")
    assert not isinstance(3, triton.language.dtype)
    tensor = torch.zeros(4, 8)
    assert descriptors.TensorDescriptor.from_tensor(tensor, [2, 2]).base is tensor


def test_without_its_text_a_kernel_may_write_everything() -> None:
    scope: dict[str, object] = {}
    exec("def kernel(x, y): pass", scope)
    assert _names_and_written(scope["kernel"])[1] == {"x", "y"}  # type: ignore[arg-type]


def test_operators_run_their_bodies_or_else_their_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._library.custom_ops.CustomOpDef.register_kernel", custom_ops._register_kernel)
    monkeypatch.setattr("torch.library.Library.impl", custom_ops._impl)

    @torch.library.custom_op("memlint_tests::scratched", mutates_args=(), device_types="cuda")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        scratch = torch.empty(1 << 20, device=x.device)
        return x * 2 + scratch[0]

    @torch.library.custom_op("memlint_tests::loaded", mutates_args=(), device_types="cuda")
    def loaded(x: torch.Tensor) -> torch.Tensor:
        raise OSError("no such library")

    @loaded.register_fake
    def _loaded(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    assumptions: list[str] = []
    with virtual_device(device_named("a100-80gb")):
        state.current.assume = assumptions.append
        x = torch.rand(4, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        assert doubled(x).shape == x.shape
        assert torch.cuda.max_memory_allocated() > 4 << 20
        assert not assumptions
        assert loaded(x).is_cuda
    assert assumptions == [
        "memory that the kernel of memlint_tests::loaded takes for itself is not counted: it cannot run here (OSError)"
    ]


LIBRARY = """
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets))

@triton_op("memlint_tests::double", mutates_args={})
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(double)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), BLOCK=128)
    return out

ledger = simulated()
x = torch.rand(1024, device="cuda")
first = len(ledger.events)
y = doubled(x)
assert y.is_cuda and y.shape == x.shape
assert [ledger.births[n].nbytes for n in ledger.events[first:]] == [4096]
"""


@pytest.mark.parametrize("hide", [True, pytest.param(False, marks=needs("triton"))])
def test_an_operator_made_of_kernels_of_triton(tmp_path: Path, hide: bool) -> None:
    run(written(tmp_path, LIBRARY, hide=hide))
