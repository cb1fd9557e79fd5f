"""A step that takes less than the CUDA context fits wherever PyTorch starts: what would save a part of it is a note."""

from __future__ import annotations

from memlint_rules.m2_parameters.mem204_optimizer_step_temporaries import OptimizerStepTemporaries

from memlint.lint.rule import Case, Severity
from tests.rules.test_cases import analysed

RULE = OptimizerStepTemporaries()
MLP = """
import torch
from torch import nn


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear({width}, {width}) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x
"""


WORKLOAD = 'memlint.Declaration(MLP(), {{"x": torch.randn(8, {width})}}, optimizer=torch.optim.AdamW)'


def severities(tmp_path, width: int) -> dict[int, Severity]:
    """Severities of the findings of MEM204, by the MiB that each saves, rounded."""
    findings = analysed(
        tmp_path / "model.py",
        RULE,
        Case.of_model(MLP.format(width=width), WORKLOAD.format(width=width), imports="import memlint\n"),
    ).findings
    return {round(-finding.peak_change / 2**20): finding.severity for finding in findings}


def test_what_a_toy_could_save_is_a_note(tmp_path):
    # 6.3 million weights: 24 MiB of temporaries in 137 MiB; an A100's context takes 510.
    assert severities(tmp_path, 1024) == {24: Severity.NOTE}


def test_what_a_model_beyond_that_could_save_is_a_warning(tmp_path):
    assert severities(tmp_path, 3072) == {216: Severity.WARNING}  # in 1.07 GiB
