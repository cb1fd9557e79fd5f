"""A check says each part of its Report as soon as it is known: the Estimate before any rule has run."""

from __future__ import annotations

import json

import pytest

from memlint.config import Settings
from memlint.report.model import Finding, Report, Workload
from memlint.report.terminal import block_of, blocks
from memlint.report.text_style import TextStyle
from memlint.worker.protocol import Request

pytest.importorskip("torch")

MODEL = """
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(8))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x
"""


@pytest.fixture
def parts_of(tmp_path):
    """The Result of a file's models, and its parts as they came."""
    from memlint.commands.analyse.analyse import analyse
    from memlint.commands.analyse.look import Look
    from tests.in_process import InProcess

    def parts_of(text, **look):
        file = tmp_path / "model_in_parts.py"
        file.write_text(text)
        request = Request(target=str(file), path=str(file), root=str(tmp_path), settings=Settings(batch=65536))
        parts = []
        return analyse(InProcess(request), Look(**look), parts.append), parts

    return parts_of


def names(parts):
    return [part.text if isinstance(part, tuple) else type(part).__name__ for part in parts]


def test_the_estimate_comes_before_the_first_rule_and_findings_before_the_table(parts_of):
    result, parts = parts_of(MODEL, sweep=True)
    order = names(parts)
    assert order[:4] == ["looking for models", "tracing Model", "Capture", "Workload"]
    assert order[-1] == "batch sizes"
    assert order[4].startswith("rule MEM")
    assert order.count("Finding") == len(result.findings) > 0
    for number, part in enumerate(parts):
        if isinstance(part, Finding) and part.code == "MEM101":
            assert order[number - 1] in ("rule MEM101", "Finding")


def test_each_part_stands_in_the_text_of_the_whole_as_it_is(parts_of):
    result, parts = parts_of(MODEL, sweep=True)
    style = TextStyle()
    report = Report(tool="memlint 0", workloads=result.workloads, findings=result.findings)
    whole = blocks(report, style)
    shown = [block_of(part, style) for part in parts if isinstance(part, Workload | Finding)]
    assert len(shown) > 1
    assert set(shown) <= set(whole)
    assert next(block for block in whole if block not in shown).startswith("  Batch sizes, device memory")


def test_the_verdict_alone_runs_no_rule_and_makes_no_table(parts_of):
    result, parts = parts_of(MODEL, quick=True, sweep=True)
    assert names(parts) == ["looking for models", "tracing Model", "Capture", "Workload"]
    assert result.workloads[0].verdict is not None
    assert not result.workloads[0].sweep
    assert not result.findings


def test_of_several_models_findings_wait_for_the_last(parts_of):
    _result, parts = parts_of(MODEL + MODEL.replace("class Model", "class Other"))
    assert names(parts).count("Workload") == 2
    assert "Finding" not in names(parts)


def test_parts_of_a_notebook_have_places_by_cell_as_its_report_has(tmp_path, monkeypatch):
    from memlint.commands import early
    from memlint.commands.check import answers
    from memlint.commands.check.check import check
    from memlint.commands.check.targets import CheckOptions
    from memlint.worker.protocol import Result
    from tests.report.sample import REPORT

    def analyse(session, look, on_part):
        at = {"path": session.request.path, "line": 2}
        (workload, *_others), (finding, *_findings) = REPORT.workloads, REPORT.findings
        estimate = workload.estimate.model_copy(update=at)
        record = workload.model_copy(update={"estimate": estimate, "sweep": []})
        on_part(record)
        seen = Finding(**{**finding.model_dump(), **at, "confidence": "modelled"})
        on_part(seen)
        return Result(workloads=[record], findings=[seen])

    monkeypatch.setattr(answers, "analyse", analyse)
    monkeypatch.setattr(early, "_may_start", lambda _request: False)
    monkeypatch.chdir(tmp_path)
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": MODEL}]
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    (tmp_path / "model.ipynb").write_text(json.dumps(content))
    parts = []
    report = check(["model.ipynb"], {}, CheckOptions(cache=False), on_part=parts.append).report
    shown = [block_of(part, TextStyle()) for part in parts if isinstance(part, Workload | Finding)]
    assert len(shown) == 2
    assert all("model.ipynb:cell 1" in block for block in shown)
    assert set(shown) <= set(blocks(report, TextStyle()))
