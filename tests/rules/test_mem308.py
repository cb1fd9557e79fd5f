"""MEM308 where several tables have one shape."""

from memlint.config import Settings
from memlint.worker.protocol import Request

TABLES = """
import torch
from torch import nn
from memlint import Declaration

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(1_000_000, 64)
        self.users = nn.Embedding(1_000_000, 64)

    def forward(self, x):
        return self.items(x) + self.users(x)

def memlint_workload():
    inputs = {"x": torch.zeros(64, 32, dtype=torch.int64)}
    return Declaration(Model(), inputs, optimizer=lambda parameters: torch.optim.AdamW(parameters))
"""
TABLE = 1_000_000 * 64 * 4
TOUCHED = 64 * 32 * (64 * 4 + 8)


def test_a_table_is_not_charged_for_another_of_its_shape(tmp_path):
    from tests.in_process import analyse

    file = tmp_path / "model.py"
    file.write_text(TABLES)
    settings = Settings.model_validate({"select": ["MEM308"]})
    result = analyse(Request(target=str(file), path=str(file), root=str(tmp_path), settings=settings))
    assert [finding.nbytes for finding in result.findings] == [TABLE, TABLE]
    # The gradient and the temporary that the optimizer makes of the state.
    assert [finding.peak_change for finding in result.findings] == [2 * (TOUCHED - TABLE)] * 2
