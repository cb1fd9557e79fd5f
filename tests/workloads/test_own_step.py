"""A declaration may bring the body of the user's own loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memlint.base.errors import UsageError, WorkloadError
from memlint.commands.analyse.description import described
from memlint.memory.records import Phase
from memlint.workloads.discover import find_workloads
from tests.in_process import analysed

if TYPE_CHECKING:
    from pathlib import Path

    from memlint.commands.analyse.analysis import Analysis

SOURCE = """
import torch
from torch import nn

import memlint


@memlint.workload(batch=256{settings})
def halves(batch):
    def step(model, inputs, optimizer):
        for x in inputs["x"].chunk({parts}):
            model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 16))
    return memlint.Declaration(model, {{"x": torch.randn(batch, 16)}}, step={step})
"""


def analysis(folder: Path, *, parts: int = 2, settings: str = ', gpu="cpu"', step: str = "step") -> Analysis:
    folder.mkdir()
    file = folder / f"own_step_{folder.name}.py"
    file.write_text(SOURCE.format(parts=parts, settings=settings, step=step))
    (workload,) = find_workloads(str(file), folder).workloads
    return analysed(workload, folder)


def test_the_loop_body_of_the_declaration_is_the_step(tmp_path: Path) -> None:
    trace = analysis(tmp_path / "two", parts=2).trace
    forwards = [n for n in trace.nodes if n.step == 0 and n.phase is Phase.FORWARD and n.op.startswith("aten.relu")]
    assert len(forwards) == 2
    assert any(node.phase is Phase.OPTIMIZER for node in trace.nodes)
    assert any("norm" in node.op and node.phase is not Phase.BACKWARD for node in trace.nodes)


def test_accumulating_over_smaller_parts_lowers_the_forward_peak(tmp_path: Path) -> None:
    whole, parts = (analysis(tmp_path / f"in{n}", parts=n).estimate for n in (1, 4))
    assert parts.phase_peaks[Phase.FORWARD] < whole.phase_peaks[Phase.FORWARD]


def test_without_an_optimizer_the_step_receives_none(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="'NoneType' object has no attribute 'step'"):
        analysis(tmp_path / "none", settings=', gpu="cpu", optimizer="none"')


def test_a_step_that_cannot_be_called_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="gives a int where the step belongs"):
        analysis(tmp_path / "wrong", step="3")


def test_allocator_settings_of_a_workload_change_what_is_reserved(tmp_path: Path) -> None:
    plain = analysis(tmp_path / "plain", settings=', gpu="h200"').estimate
    grows = analysis(tmp_path / "grows", settings=', gpu="h200", allocator="expandable_segments:True"').estimate
    assert grows.requested == plain.requested
    assert grows.reserved.estimate != plain.reserved.estimate


def test_an_unknown_allocator_setting_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expandable_segment"):
        analysis(tmp_path / "typo", settings=', allocator="expandable_segment:True"')


def test_autocast_is_for_the_step_itself_to_enter_and_that_is_said(tmp_path: Path) -> None:
    said = analysis(tmp_path / "amp", settings=', dtype="bf16-amp"').assumptions
    assert [a.text for a in said if "autocast" in a.text] == [
        "bf16-amp leaves the weights float32; the step is the program's own and enters autocast itself"
    ]
    plain = analysis(tmp_path / "plain").assumptions
    assert not [a.text for a in plain if "autocast" in a.text]


def test_an_optimizer_that_never_steps_is_not_named(tmp_path: Path) -> None:
    stepping = described(analysis(tmp_path / "stepping"), None)
    assert stepping.optimizer == "adamw"
    file = tmp_path / "stepping" / "own_step_without.py"
    file.write_text(SOURCE.format(parts=2, settings="", step="step").replace("optimizer.step()", "pass"))
    (workload,) = find_workloads(str(file), tmp_path).workloads
    assert described(analysed(workload, tmp_path), None).optimizer is None


def test_an_optimizer_that_is_declared_is_the_one_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "declared.py"
    text = SOURCE.format(parts=2, settings="", step="step")
    assert "step=step)" in text
    file.write_text(text.replace("step=step)", "step=step, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))"))
    (workload,) = find_workloads(str(file), tmp_path).workloads
    assert described(analysed(workload, tmp_path), None).optimizer == "sgd"
