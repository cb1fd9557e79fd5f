"""xFormers calls the compiled module of flash_attn where a program imports both."""

from __future__ import annotations

import pytest

from tests.script.isolated import needs, run

B, S, H, D = 2, 512, 64, 64
CODE = f"""\
import flash_attn, torch
import xformers.ops as xops
from xformers.ops.fmha.attn_bias import BlockDiagonalCausalMask

def taken(bias, *shape):
    q = torch.empty(*shape, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    out = xops.memory_efficient_attention(q, q.detach(), q.detach(), bias)
    held = torch.cuda.memory_allocated() - before - out.nbytes
    out.backward(torch.empty_like(out))
    return held, q.grad.shape == q.shape

print(xops.fmha.flash.FLASH_VERSION, *taken(None, {B}, {S}, {H}, {D}))
print(*taken(BlockDiagonalCausalMask.from_seqlens([500, 524]), 1, {B * S}, {H}, {D}))
"""


@pytest.mark.slow
@needs("xformers")
def test_attention_by_the_compiled_module_of_flash_attn(tmp_path):
    ran = run(tmp_path / "p", CODE)
    assert ran.error is None, ran.stderr
    rows = 4 * B * H * S
    first, second = (line.split() for line in ran.stdout.splitlines())
    assert first[0] == "2.8.3"
    assert rows <= int(first[1]) <= rows + 1024  # logsumexps, and the random state
    assert rows <= int(second[0]) <= rows + 2048
    assert first[2] == second[1] == "True"
    assert any("flash-attn" in text for text in ran.assumptions), ran.assumptions
