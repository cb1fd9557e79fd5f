"""Savings that rules give for a script are those of the script changed by hand, to the byte."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from tests.script.running import run_text

if TYPE_CHECKING:
    from pathlib import Path

    from memlint.report.model import Peak

INFERENCE = """
    import torch
    from torch import nn
    encoder = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.GELU()))).cuda()
    with GUARD:
        for _ in range(3):
            features = encoder(torch.rand(4096, 1024, device="cuda"))
"""
CREATED = """
    import torch
    from torch import nn
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.Tanh()))).cuda()
    def train():
        for _ in range(4):
            RESET
            loss = model(torch.randn(4096, 512, device="cuda")).square().mean()
            loss.backward(create_graph=True)
            norm = sum(p.grad.square().sum() for p in model.parameters())
    train()
"""
MICRO_BATCHES = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("nccl")
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 4096), nn.Linear(4096, 1024)) for _ in range(6))).cuda()
    for block in model:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        for part in range(4):
            model.set_requires_gradient_sync(WHEN)
            model(torch.randn(8, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
LENGTHS = """
    import torch
    from torch import nn
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.GELU()))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    def train(lengths):
        for length in lengths:
            rows = torch.randn(length, 1024, device="cuda")
            loss = model(rows).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    lengths = [9000, 6000, 10000, 8000, 12000, 7000, 13000, 11000]
    train(ORDER)
"""


def both(folder: Path, code: str, text: str, bad: str, good: str, **fields: Any) -> tuple[Any, Peak, Peak]:
    """Give what the rule finds with the one text, and the peaks with both."""
    word = next(word for word in ("GUARD", "RESET", "WHEN", "ORDER") if word in text)
    peaks = []
    findings = []
    for part in (bad, good):
        own = folder / str(len(peaks))
        own.mkdir()
        settings = {"select": (code,), "timeout": 300.0}
        report = run_text(
            own, textwrap.dedent(text).replace(word, part), settings=settings, whole=True, **fields
        ).report
        (workload,) = report.workloads
        assert workload.estimate is not None, workload.error
        peaks.append(workload.estimate.peak)
        findings.append(report.findings)
    assert not findings[1]
    (finding,) = findings[0]
    assert finding.code == code
    return finding, *peaks


@pytest.mark.slow
def test_a_forward_without_a_backward_saves_what_no_grad_does(tmp_path: Path) -> None:
    finding, bad, good = both(tmp_path, "MEM412", INFERENCE, "torch.enable_grad()", "torch.no_grad()")
    assert finding.peak_change == good.requested.estimate - bad.requested.estimate < -(2**28)
    assert (finding.line, finding.confidence, finding.measure) == (7, "exact-retrace", "requested")


@pytest.mark.slow
def test_autocasts_cache_in_a_loop_of_inference_saves_what_an_autocast_without_it_does(tmp_path: Path) -> None:
    autocast = 'torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16'
    text = INFERENCE.replace("4096", "64").replace("1024", "2048")
    finding, bad, good = both(tmp_path, "MEM314", text, f"{autocast})", f"{autocast}, cache_enabled=False)")
    assert finding.peak_change == good.requested.estimate - bad.requested.estimate < -(2**23)


@pytest.mark.slow
def test_gradients_with_a_graph_save_what_resetting_them_does(tmp_path: Path) -> None:
    finding, bad, good = both(tmp_path, "MEM403", CREATED, "pass", "model.zero_grad()")
    assert finding.peak_change == good.requested.estimate - bad.requested.estimate < -(2**27)
    assert (finding.line, finding.confidence) == (9, "exact-retrace")


@pytest.mark.slow
def test_unreduced_gradients_save_what_a_reduction_in_every_backward_does(tmp_path: Path) -> None:
    finding, bad, good = both(tmp_path, "MEM620", MICRO_BATCHES, "part == 3", "True", ranks=8)
    assert finding.peak_change == good.requested.estimate - bad.requested.estimate < -(2**26)
    assert finding.line == 14


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "remedy"), [("[13000, *lengths[:6], *lengths[7:]]", "largest batch first"), ("[13000] * 8", "")]
)
def test_fragmentation_saves_what_the_allocators_setting_does(tmp_path: Path, order: str, remedy: str) -> None:
    finding, bad, good = both(tmp_path, "MEM621", LENGTHS, "lengths", order)
    (tmp_path / "set").mkdir()
    text = textwrap.dedent(LENGTHS).replace("ORDER", "lengths")
    fields: dict[str, Any] = {"whole": True, "allocator": "expandable_segments:True"}
    report = run_text(tmp_path / "set", text, settings={"select": ("MEM621",), "timeout": 300.0}, **fields).report
    assert not report.findings
    assert report.workloads[0].estimate is not None
    after = report.workloads[0].estimate.peak.reserved.estimate
    assert finding.peak_change == after - bad.reserved.estimate
    assert (finding.measure, finding.line) == ("reserved", 8)
    assert good.reserved.estimate < 0.8 * bad.reserved.estimate
    if remedy:
        assert f"largest batch first: {good.reserved.estimate / 2**30:.2f} GiB" in finding.fix


MASKS = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(2048, 2048).triu(1).bool())

        def forward(self, scores):
            return scores.masked_fill(self.mask, 0.0)

    model = nn.Sequential(*(Block() for _ in range(6))).cuda().eval()
    with torch.inference_mode():
        model(torch.randn(2048, 2048, device="cuda"))
"""


def test_duplicate_buffers_are_found_in_a_script_that_takes_no_step(tmp_path: Path) -> None:
    (finding,) = run_text(tmp_path, MASKS, settings={"select": ("MEM208",)}).report.findings
    assert finding.code == "MEM208"
    assert finding.nbytes == 5 * 2048 * 2048
