"""What a program reads of memory is what its Report says, under whatever settings of the allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memlint.workloads.discover import find_workloads
from tests.in_process import analysed

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

import memlint

PEAKS = []


@memlint.workload(batch=64, gpu="t4", allocator="{settings}")
def big(batch):
    def step(model, inputs, optimizer):
        model(inputs["x"]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        PEAKS.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))

    model = nn.Sequential(nn.Linear(700, 9000), nn.ReLU(), nn.Linear(9000, 700))
    return memlint.Declaration(model, {{"x": torch.randn(batch, 700)}}, step=step)
"""


@pytest.mark.parametrize(
    "settings",
    ["", "expandable_segments:True", "roundup_power2_divisions:4", "large_segment_size_mb:64",
     "per_process_memory_fraction:0.5", "per_process_memory_fraction:0.001"],
)  # fmt: skip
def test_peaks_that_the_program_reads_are_those_of_its_report(settings: str, tmp_path: Path) -> None:
    file = tmp_path / f"reads_{abs(hash(settings))}.py"
    file.write_text(SOURCE.format(settings=settings))
    (workload,) = find_workloads(str(file), tmp_path).workloads
    analysis = analysed(workload, tmp_path)
    peaks = analysis.session.target.traced(0).program.own_step.__globals__["PEAKS"]
    assert peaks[-1] == (analysis.estimate.allocated.estimate, analysis.estimate.reserved.estimate)
