"""What a child writes down while it analyses a file with several models."""

from __future__ import annotations

import pytest

from memlint.config import Settings
from memlint.worker.protocol import Request

pytest.importorskip("torch")

TWO = """
from torch import nn
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x): return self.layer(x)
class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
    def forward(self, x): return self.layer(x)
"""


def test_before_each_model_of_several_there_is_what_was_done_and_what_is_left(tmp_path, monkeypatch):
    from memlint.session import target as child

    (tmp_path / "two_models.py").write_text(TWO)
    path, partial = str(tmp_path / "two_models.py"), []
    monkeypatch.setattr(child, "write_partial", partial.append)
    child.analyse(Request(target=path, path=path, root=str(tmp_path), settings=Settings(batch=2, select=["MEM003"])))
    done = [[(each.name, each.estimate is not None) for each in result.workloads] for result in partial]
    large, small = ("Large", True), ("Small", True)
    assert done == [[("Large", False)], [large], [large, ("Small", False)], [large, small]]
    assert [result.detail for result in partial] == [
        {"left": ["Small"]},
        {"left": ["Small"]},
        {"left": []},
        {"left": []},
    ]


def test_the_figure_is_there_before_the_rules_are_done(tmp_path, monkeypatch):
    from memlint.session import target as child

    (tmp_path / "one_model.py").write_text(TWO.partition("class Large")[0])
    path, partial = str(tmp_path / "one_model.py"), []
    monkeypatch.setattr(child, "write_partial", partial.append)
    child.analyse(Request(target=path, path=path, root=str(tmp_path), settings=Settings(batch=2, select=["MEM003"])))
    (result,) = partial
    assert result.workloads[0].estimate is not None
    assert "findings are missing" in result.skipped[0].reason
