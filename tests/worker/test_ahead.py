"""Work that a copy of a child does ahead: its result is that of the work itself, and what it read counts."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from memlint.cli import main
from memlint.session import ahead
from memlint.session.ahead import Ahead
from memlint.worker.dependencies import Reads
from memlint.worker.session import Session

if TYPE_CHECKING:
    from memlint.worker.jobs import Job
    from memlint.worker.session import Answered

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no copies are made elsewhere")

MODEL = """
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))

    def forward(self, x):
        return self.layers(x)
"""


class Watch:
    """Stands for the record of what a child reads."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    @property
    def reads(self) -> Reads:
        return Reads(frozenset(self.files), *[frozenset()] * 4)

    def add(self, reads: Reads) -> None:
        self.files |= reads.files


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(ahead, "watch_of_child", lambda: watch)
    return watch


def test_a_copy_gives_what_it_returns_prints_and_reads(watch: Watch, capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        watch.files.add("/read/by/the/copy")
        sys.stdout.write("printed by the copy\n")
        return os.getpid()

    begun = Ahead(work)
    assert capfd.readouterr().out == ""
    assert begun.result() != os.getpid()
    assert capfd.readouterr().out == "printed by the copy\n"
    assert watch.files == {"/read/by/the/copy"}


def test_what_a_copy_cannot_do_is_done_here(watch: Watch) -> None:
    here = os.getpid()

    def work() -> int:
        if os.getpid() != here:
            raise SystemExit(3)
        return here

    assert Ahead(work).result() == here
    assert watch.files == set()


def test_a_copy_whose_result_nobody_needs_is_ended(tmp_path: Path) -> None:
    written = tmp_path / "written"

    def work() -> None:
        time.sleep(60)
        written.touch()

    begun = Ahead(work)
    begun.stop()
    with pytest.raises(ChildProcessError):
        begun.result()
    assert not written.exists()


@pytest.mark.slow
def test_a_report_is_the_same_on_one_core_where_no_copy_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []
    ask = Session.ask

    def asking(session: Session, job: Job) -> Answered:
        asked.append(type(job).__name__)
        return ask(session, job)

    monkeypatch.setattr(Session, "ask", asking)
    cores = os.sched_getaffinity(0)
    reports = []
    try:
        for some in (cores, {min(cores)}):
            os.sched_setaffinity(0, some)
            done = CliRunner().invoke(main, ["check", "model.py", "--no-cache", "-v"])
            reports.append(done.stdout)
    finally:
        os.sched_setaffinity(0, cores)
    assert "largest that fits" in reports[0]
    assert reports[0] == reports[1]
    assert asked.count("Begin") == (2 if (os.cpu_count() or 1) > 1 else 0)
    assert asked.index("Begin") < asked.index("TraceWorkload"), "PyTorch starts threads in the first backward pass"
