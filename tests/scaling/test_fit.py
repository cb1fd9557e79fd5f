"""`memlint fit`: the largest batch as it is and with changes, and the parts into which a batch has to be cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from memlint.cli import main
from memlint.commands.sweep.tables_text import render_fits
from memlint.config import Settings
from memlint.report.model import Interval, SweepRow
from memlint.report.tables import BatchParts, Fit, FitOrder, Fits, Way
from memlint.report.text_style import TextStyle
from memlint.worker.protocol import Request

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("copied_pythons")

pytest.importorskip("torch")

FILE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)

    def forward(self, x):
        return x + self.down(self.up(x).tanh().sigmoid().square())

class Net(nn.Module):
    checkpointed = False

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(6))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x

class Checkpointed(Net):
    checkpointed = True

class Normed(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(512)

    def forward(self, x):
        return self.norm(super().forward(x[:, 0]))

def net(batch):
    return Net(), {"x": torch.randn(batch, 4096, 512)}

def checkpointed(batch):
    return Checkpointed(), {"x": torch.randn(batch, 4096, 512)}

def normed(batch):
    return Normed(), {"x": torch.randn(batch, 4096, 512)}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(FILE)
    return tmp_path


def request(folder: Path, name: str, **options: object) -> Request:
    settings = Settings.model_validate({"select": ["MEM010"], "gpu": "t4", **options})
    return Request(
        target=f"model.py::{name}",
        path=str(folder / "model.py"),
        qualname=name,
        root=str(folder),
        settings=settings,
    )


def fitted(folder: Path, name: str, **options: object) -> Fit:
    from memlint.session.fits import fit
    from memlint.session.target import Target

    (found,) = fit(Target(request(folder, name, **options)), FitOrder()).fits
    return found


def outcome(folder: Path, name: str, batch: int) -> str:
    from tests.in_process import analyse

    (workload,) = analyse(request(folder, name, batch=batch)).workloads
    assert workload.verdict is not None
    return workload.verdict.outcome


def test_with_changes_the_largest_batch_is_that_of_the_program_changed_by_hand(folder: Path) -> None:
    found = fitted(folder, "net", batch=64)
    as_it_is, *others = found.ways
    assert as_it_is.changes == ()
    (exact, *_more) = [way for way in others if way.effect == "exact"]
    assert [change.split(",")[0] for change in exact.changes] == ["checkpoint 6 `Block` modules"]
    assert exact.flops_change > 0.15
    for way, name in ((as_it_is, "net"), (exact, "checkpointed")):
        assert way.largest is not None
        assert way.is_limit
        assert outcome(folder, name, way.largest.batch) == "fits"
        assert outcome(folder, name, way.largest.batch + 1) != "fits"
    assert exact.largest.batch > as_it_is.largest.batch


def test_parts_are_the_fewest_that_fit_and_keep_the_batch(folder: Path) -> None:
    from memlint.session.fits import _Search
    from memlint.whatif.change import Effect
    from memlint.workloads.construction.construct import complete
    from memlint.workloads.discover import find_workloads

    (workload,) = find_workloads(str(folder / "model.py") + "::net", folder, [], {"gpu": "t4", "batch": 60}).workloads
    search = _Search(complete(workload, folder)[0], folder)
    way = search.way((), Effect.EXACT)
    assert way.parts is not None
    assert way.largest is not None
    assert way.parts.num_parts * way.parts.batch == 60
    assert 1 < way.parts.num_parts <= 60 // (way.largest.batch // 2)
    assert way.parts.device.high <= 15 << 30


def test_a_batch_that_fits_stays_whole_and_batch_norm_is_never_cut(folder: Path) -> None:
    whole = fitted(folder, "net", batch=1).ways[0]
    assert whole.parts is not None
    assert whole.parts.num_parts == 1
    normed = fitted(folder, "normed", batch=4)
    assert all(way.parts is None for way in normed.ways)
    assert "BatchNorm" in (normed.note or "")
    inference = fitted(folder, "net", batch=4, mode="inference")
    assert inference.ways[0].parts is None
    assert "gradients" in (inference.note or "")


def test_the_host_and_what_cannot_be_built_are_one_message(folder: Path) -> None:
    result = CliRunner().invoke(main, ["fit", "model.py::net", "--gpu", "cpu"])
    assert result.exit_code == 2
    assert "the host has no size" in result.stderr
    assert "--gpu rtx4090" in result.stderr
    result = CliRunner().invoke(main, ["fit", "model.py::nothing", "--gpu", "t4"])
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert CliRunner().invoke(main, ["fit", "model.py", "--gpu", "t5"]).exit_code == 2


def test_from_the_command_line(folder: Path) -> None:
    arguments = ["fit", "model.py::normed", "--gpu", "t4", "--batch", "2", "--output-format", "json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)["fits"]
    assert (found["gpu"], found["batch"]) == ("t4", 2)
    assert str(folder) not in result.stdout
    refused = CliRunner().invoke(main, ["fit", "model.py::normed", "--gpu", "t4", "--dim", "seq=2"])
    assert refused.exit_code == 2
    assert "normed has no dimension seq" in refused.stderr


ROW = SweepRow(batch=14, device=Interval(low=1, estimate=22 << 30, high=23 << 30), outcome="fits")
FIT = Fit(
    name="Net", target="net.py::Net", mode="train", optimizer="adamw", dtype="float32", batch=64, gpu="rtx4090",
    gpu_title="RTX", gpu_nbytes=24 << 30,
    ways=(
        Way(changes=(), effect="exact", largest=ROW, is_limit=True,
            parts=BatchParts(num_parts=8, batch=8, device=ROW.device or Interval(low=1, estimate=1, high=1))),
        Way(changes=("one", "two"), effect="numerics", flops_change=0.25, largest=ROW, is_limit=False,
            parts=BatchParts(num_parts=1, batch=64, device=ROW.device or Interval(low=1, estimate=1, high=1))),
        Way(changes=("three",), effect="exact"),
    ),
)  # fmt: skip


def test_ways_as_text_and_markdown() -> None:
    told = Fits(tool="memlint 0", fits=(FIT,))
    assert render_fits(told, "text", TextStyle()) == (
        "Net on RTX (24.0 GiB): train step, float32, adamw\n\n"
        "  largest batch    device  batch 64 as   changes\n"
        "             14  22.0 GiB  8 parts of 8  as it is\n"
        "     14 or more  22.0 GiB  a whole       one       numerics, 25% more FLOPs\n"
        "                                         two\n"
        "           none                          three     exact\n\n"
        "  Parts of a batch are steps whose gradients are added (gradient accumulation) before the optimizer's.\n"
        "  Each number was simulated with all changes of its row made together, and surely fits.\n"
    )
    assert "|              14 |" in render_fits(told, "markdown", TextStyle())
    assert Fits.model_validate_json(render_fits(told, "json", TextStyle())) == told
