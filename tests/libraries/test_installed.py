"""Libraries that install without a GPU: their own Python runs on the simulated one, up to kernels that are known."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from memlint_libraries import mamba

from tests.libraries.events import on_gpu, simulated
from tests.script import isolated
from tests.script.isolated import needs
from tests.script.running import run_text

pytestmark = pytest.mark.usefixtures("copied_pythons")

START = """
from memlint.workloads import torchvision_schemas
torchvision_schemas.install()
import torch
from memlint.accelerator import lazy_imports
from memlint.libraries import installation
lazy_imports.run_eagerly()
installation.install()
from tests.libraries.events import on_gpu, simulated
"""
B, S, H, D = 2, 512, 64, 64
OPERAND, ROWS = B * S * H * D * 2, 4 * B * H * S


def run_here(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_flash_attention_of_pytorch_by_its_own_name():
    with simulated() as seen:
        q, k, v = (on_gpu(B, S, H, D, grad=False) for _ in range(3))
        seen.begin()
        out, lse, seed, unused, _ = torch.ops.aten._flash_attention_forward(q, k, v, None, None, S, S, 0.0, True, False)
        assert seen.held == seen.peak == OPERAND + ROWS + 16 + 8
        seen.begin()
        aten = torch.ops.aten._flash_attention_backward
        grads = aten(q, q, k, v, out, lse, None, None, S, S, 0.0, True, seed, unused)
        assert seen.held == 3 * OPERAND
        assert seen.peak == 3 * OPERAND + ROWS + 4 * B * S * H * D
        del grads, out, lse
        ends = torch.tensor([0, S, 2 * S], dtype=torch.int32, device="cuda")
        packed = [t.flatten(0, 1) for t in (q, k, v)]
        seen.begin()
        _out, lse, *_ = torch.ops.aten._flash_attention_forward(*packed, ends, ends, S, S, 0.0, True, False)
        assert lse.shape == (H, B * S)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_efficient_attention_of_pytorch_by_its_own_name(dtype):
    with simulated() as seen:
        q, k, v = (on_gpu(B, S, H, D, dtype=dtype, grad=False) for _ in range(3))
        nbytes = q.nbytes
        bias = torch.empty(B, H, S, S, dtype=dtype, device="cuda")
        seen.begin()
        out, lse, seed, offset, *lengths = torch.ops.aten._efficient_attention_forward(
            q, k, v, bias, None, None, None, None, 0.0, 0, True
        )
        assert seen.held == nbytes + ROWS
        assert lengths == [S, S]
        seen.begin()
        *grads, grad_bias = torch.ops.aten._efficient_attention_backward(
            q, q, k, v, bias, out, None, None, S, S, lse, 0.0, seed, offset, 0, True
        )
        assert seen.held == 3 * nbytes + bias.nbytes
        assert [grad.shape for grad in grads] == [q.shape] * 3
        assert grad_bias.shape == bias.shape


XFORMERS = """
import gc
import xformers.ops as xops
from xformers.ops import fmha
from xformers.ops.fmha.attn_bias import BlockDiagonalCausalMask, LowerTriangularMask
B, S, H, D = 2, 512, 64, 64
operand, rows = B * S * H * D * 2, 4 * B * H * S

with simulated() as seen:
    def saved(bias=None, dtype=torch.bfloat16, p=0.0, batch=B):
        q = on_gpu(batch, B * S // batch, H, D, dtype=dtype)
        gc.collect()
        seen.begin()
        out = xops.memory_efficient_attention(q, q.detach(), q.detach(), bias, p=p)
        held = seen.held - out.nbytes
        out.backward(torch.empty_like(out))
        assert q.grad.shape == q.shape
        return held

    assert saved() == saved(LowerTriangularMask()) == rows
    assert saved(dtype=torch.float32) == rows
    assert saved(torch.zeros(B, H, S, S, device="cuda", dtype=torch.bfloat16)) == rows
    # logsumexps of each sequence stand in rows of a multiple of 32: attention.cu, kAlignLSE
    assert saved(BlockDiagonalCausalMask.from_seqlens([500, 524]), batch=1) == 4 * 2 * H * 544
    block = xops.SwiGLU(256, 512).cuda().bfloat16()
    block(on_gpu(8, 256)).sum().backward()
    assert not seen.assumptions, seen.assumptions
"""


@needs("xformers")
def test_attention_of_xformers_runs_kernels_of_pytorch():
    run_here(XFORMERS)


def test_a_selective_scan_keeps_states_of_chunks():
    batch, features, length, states = 2, 64, 4096, 16
    with simulated() as seen:
        u, delta, z = (on_gpu(batch, features, length, grad=False) for _ in range(3))
        a = on_gpu(features, states, dtype=torch.float32, grad=False)
        b, c = (on_gpu(batch, 1, states, length, grad=False) for _ in range(2))
        d, bias = (on_gpu(features, dtype=torch.float32, grad=False) for _ in range(2))
        seen.begin()
        out, kept, gated = mamba.fwd(u, delta, a, b, c, d, z, bias, True)
        chunks = 4 * batch * features * 2 * 2 * states
        assert seen.held == seen.peak == 2 * u.nbytes + chunks
        dout = torch.empty_like(gated)
        seen.begin()
        grads = mamba.bwd(u, delta, a, b, c, d, z, bias, dout, kept, out, None, True, True)
        small = a.nbytes + d.nbytes + bias.nbytes
        assert seen.peak == 4 * u.nbytes + 4 * b.nbytes + 2 * b.nbytes + small
        assert [each.shape for each in grads] == [t.shape for t in (u, delta, a, b, c, d, bias, z, out)]
        assert seen.assumptions == [
            "kernels of mamba-ssm are not run: they take what the sources of version 2.3.2.post1 say"
        ]


SCAN = """
import torch
from torch import nn
from mamba_ssm.ops.selective_scan_interface import selective_scan_fn, selective_scan_ref

class Scan(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.d = nn.Parameter(torch.rand(64, 16)), nn.Parameter(torch.rand(64))
        self.to_b, self.to_c = nn.Conv1d(64, 16, 1), nn.Conv1d(64, 16, 1)

    def forward(self, u):
        return selective_scan_fn(u, u * 2, -self.a, self.to_b(u), self.to_c(u), self.d, delta_softplus=True)

model = Scan().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model(torch.rand(4, 64, 256, device="cuda")).sum().backward()
    assert all(parameter.grad.shape == parameter.shape for parameter in model.parameters())
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.skipif(find_spec("mamba_ssm") is not None, reason="mamba_ssm is installed")
def test_the_selective_scan_is_known_where_mamba_is_not_installed(tmp_path):
    (workload,) = run_text(tmp_path, SCAN).report.workloads
    assert workload.error is None, workload.error
    assert (workload.script.happened, workload.batch) == ("trained", 4)
    said = [each.text for each in workload.assumptions]
    assert "kernels of mamba-ssm are not run: they take what the sources of version 2.3.2.post1 say" in said


def test_a_deterministic_causal_convolution_has_parts_of_gradients(monkeypatch):
    with simulated() as seen:
        x = on_gpu(2, 64, 512, grad=False)
        weight, bias = on_gpu(64, 4, grad=False), on_gpu(64, grad=False)
        grads = [torch.empty_like(t) for t in (x, weight, bias)]
        arguments = (x, weight, bias, x, None, None, None, *grads, None, True)
        seen.begin()
        mamba.causal_conv1d_bwd(*arguments)
        assert seen.peak == 0
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
        mamba.causal_conv1d_bwd(*arguments)
        assert seen.peak == 4 * 2 * 64 * 4 + 4 * 2 * 64


MAMBA = """
from mamba_ssm import Mamba, Mamba2

with simulated() as seen:
    for kind in (Mamba, Mamba2):
        x = on_gpu(2, 512, 256)
        kind(d_model=256).cuda().bfloat16()(x).sum().backward()
        assert x.grad.shape == x.shape
"""


@needs("mamba_ssm", "causal_conv1d", "einops")
def test_blocks_of_mamba_run_their_own_python():
    run_here(MAMBA)


@pytest.mark.parametrize("name", ["transformer_engine.pytorch", "torch_scatter", "fbgemm_gpu"])
def test_a_library_that_is_not_known_names_what_is_used_of_it(tmp_path, name):
    if find_spec(name.partition(".")[0]):
        pytest.skip("it is installed")
    ran = isolated.run(tmp_path / "p", f"import {name} as library\nprint(library.Fused)\nlibrary.Fused(1)\n")
    assert f"{name}.Fused is used, and " in (ran.error or ""), ran.stderr
    assert "Fused" in ran.stdout


DEEPSPEED = """
import torch, deepspeed
n = 4 * (1024 * 1024 + 1024)
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)])
zero = {{"stage": {stage}, "reduce_bucket_size": 1_000_000{offload}}}
engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={{
    "train_batch_size": 4, "bf16": {{"enabled": True}}, "zero_optimization": zero,
    "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-3}}}},
}})
for _ in range(3):
    loss = engine(torch.randn(4, 1024, device="cuda", dtype=torch.bfloat16)).sum()
    engine.backward(loss)
    engine.step()
"""


@pytest.mark.slow
@needs("deepspeed", "hjson")
@pytest.mark.parametrize(("stage", "offload", "kept"), [(1, False, 14), (2, False, 14), (2, True, 2)])
def test_zero_of_one_rank_keeps_its_flat_buffers(tmp_path, monkeypatch, stage, offload, kept):
    """Two bytes a parameter, and twelve of float32 copies and states, which may lie on the host."""
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_PORT", "29500")
    text = ', "offload_optimizer": {"device": "cpu"}' if offload else ""
    (workload,) = run_text(tmp_path, DEEPSPEED.format(stage=stage, offload=text)).report.workloads
    assert workload.error is None, workload.error
    texts = [each.text for each in workload.assumptions]
    assert offload or any("DeepSpeed's optimizers" in each for each in texts), texts
    categories = workload.estimate.categories
    parameters = 4 * (1024 * 1024 + 1024)
    held = categories["parameter"] + categories.get("optimizer_state", 0)
    assert kept * parameters <= held <= (kept + 1) * parameters


LINEAR_ATTENTION = """
import torch
from memlint.libraries import installation
installation.install()
from memlint.workloads import torchvision_schemas
torchvision_schemas.install()
from tests.libraries.events import on_gpu, simulated
from fla.ops.delta_rule import chunk_delta_rule
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.gla import chunk_gla
from fla.ops.simple_gla import chunk_simple_gla

B, T, H, K, V, CHUNK = 2, 512, 4, 64, 128, 64
rows = B * T * H
with simulated("h100-80gb") as seen:
    q, k, gates, v = (on_gpu(B, T, H, width) for width in (K, K, K, V))
    beta, gate = on_gpu(B, T, H), on_gpu(B, T, H, dtype=torch.float32)
    calls = {  # what is saved beside operands, in bytes for each row
        "scores of a chunk in float32": (lambda: chunk_gla(q, k, v, gates), 4 * CHUNK),
        "both normed, their norms, scores": (
            lambda: chunk_delta_rule(q, k, v, beta, use_qk_l2norm_in_kernel=True), 2 * (2 * K + 4) + 2 * CHUNK),
        "sums of gates": (lambda: chunk_simple_gla(q, k, v, gate), 4),
        "these and scores": (lambda: chunk_gated_delta_rule(q, k, v, gate, beta), 4 + 2 * CHUNK),
    }
    for name, (call, nbytes) in calls.items():
        call()[0].sum().backward()  # what is tuned once
        seen.begin()
        out = call()[0]
        assert seen.held == out.nbytes + rows * nbytes, (name, seen.held, out.nbytes + rows * nbytes)
        assert out.nbytes == 2 * rows * V
        out.sum().backward()
        del out
        assert all(x.grad.shape == x.shape for x in (q, k, v)), name
    assert any("Triton" in text for text in seen.assumptions), seen.assumptions
"""


@needs("fla", "triton", "transformers")
def test_linear_attention_saves_what_its_own_code_says():
    done = subprocess.run([sys.executable, "-c", LINEAR_ATTENTION], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
