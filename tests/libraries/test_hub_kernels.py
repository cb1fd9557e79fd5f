"""Kernels of the Hub that are FlashAttention are the library that memlint knows, without a download."""

from __future__ import annotations

import pytest

from memlint.libraries.hub_kernels import library_of
from tests.script.running import run_text, stdout_of

SCRIPT = """\
import torch
from torch import nn
from kernels import get_kernel, has_kernel

print(has_kernel("owner/flash-attention-3"))
attention = get_kernel("kernels-community/flash-attn3", version=1).flash_attn_interface
second = get_kernel("kernels-community/flash-attn2").flash_attn_func

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(256, 768)
    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 512, 3, 4, 64).unbind(2)
        return attention.flash_attn_func(q, k, v, causal=True) + second(q, k, v, causal=True)

model = Block().to("cuda", torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(2):
    model(torch.randn(2, 512, 256, device="cuda", dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
"""


def test_a_script_gets_its_flash_attention_from_the_hub(tmp_path):
    checked = run_text(tmp_path, SCRIPT)
    (workload,) = checked.report.workloads
    assert workload.error is None, workload.error
    assert stdout_of(checked) == "True\n"
    texts = "\n".join(each.text for each in workload.assumptions)
    assert "kernels of flash_attn_3 are not run" in texts
    assert "kernels of flash-attn are not run" in texts


@pytest.mark.parametrize(
    ("repository", "library"),
    [
        ("kernels-community/flash-attn", "flash_attn"),
        ("kernels-community/flash-attn2", "flash_attn"),
        ("kernels-community/vllm-flash-attn3", "flash_attn_interface"),
        ("owner/flash-attention-3", "flash_attn_interface"),
        ("kernels-community/activation", None),
        ("owner/flash-attn4", None),
    ],
)
def test_a_repository_says_which_library_it_builds(repository, library):
    assert library_of(repository) == library
