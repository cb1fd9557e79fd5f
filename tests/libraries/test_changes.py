"""Changes that another library makes, each against the program that uses it by hand; and rules that ask for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.script.isolated import needs

CODE = """
from memlint.workloads import torchvision_schemas
torchvision_schemas.install()
import torch
from torch import nn
from torch.nn import functional as F
from memlint.accelerator import lazy_imports
from memlint.libraries import installation
lazy_imports.run_eagerly()
installation.install()
from memlint.whatif.change import ChangedProgram
from memlint.whatif.changes import DoubleQuantization, EightBitOptimizer, FusedCrossEntropy
from tests.whatif.programs import events, mlp, peak, program, vectors
import bitsandbytes

def changed(change, *args, **options):
    return ChangedProgram(program(*args, **options), change)

# the optimizer
def eight_bit(parameters):
    return bitsandbytes.optim.AdamW8bit(parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2)

by_hand = program(mlp, vectors, optimizer=eight_bit)
assert peak(by_hand) < peak(program(mlp, vectors))
assert peak(changed(EightBitOptimizer(), mlp, vectors)) == peak(by_hand)

# scales of weights
def quantized(double):
    def layer():
        return bitsandbytes.nn.Linear4bit(1024, 1024, bias=False, compress_statistics=double)

    return lambda: nn.Sequential(nn.Linear(1024, 1024), *(layer() for _ in range(4)))

inputs = lambda batch: {"0": torch.zeros(batch, 1024)}
by_hand, single = program(quantized(double=True), inputs), program(quantized(double=False), inputs)
after = peak(changed(DoubleQuantization(), quantized(double=False), inputs))
assert peak(single) - after == peak(single) - peak(by_hand) > 0, (peak(single), after, peak(by_hand))

# the loss
class Language(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.embedding, self.head, self.fused = nn.Embedding(32000, 64), nn.Linear(64, 32000, bias=False), fused

    def forward(self, tokens):
        hidden, targets = self.embedding(tokens).flatten(0, 1), tokens.flatten()
        if not self.fused:
            return F.cross_entropy(self.head(hidden), targets)
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
        total = LigerFusedLinearCrossEntropyLoss(reduction="sum")(self.head.weight, hidden, targets, None)
        return total / (targets != -100).sum()

tokens = lambda batch: {"tokens": torch.zeros(batch, 512, dtype=torch.int64)}
by_hand = program(lambda: Language(fused=True), tokens)
after = peak(changed(FusedCrossEntropy(), lambda: Language(fused=False), tokens))
# What the head was called with is kept, and a number stands for the logits.
assert 0 <= after - peak(by_hand) <= 8 * 512 * 64 * 4 + 64, (after, peak(by_hand))
assert peak(by_hand) < peak(program(lambda: Language(fused=False), tokens))
"""


@pytest.mark.slow
@needs("bitsandbytes", "liger_kernel", "triton")
def test_each_takes_what_the_library_takes_by_hand():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
