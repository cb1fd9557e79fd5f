"""Work that a copy of a child does ahead: its result is that of the work itself, and what it read counts."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
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
    from collections.abc import Callable

    from memlint.targets.workload import Workload
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


def test_a_copy_gives_what_it_returns_prints_and_reads(
    watch: Watch, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a child; capfd's own stream writes past descriptor 1.
    monkeypatch.setattr(sys, "stdout", os.fdopen(1, "w", encoding="utf-8", closefd=False))

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


def test_sizes_are_guessed_once_for_the_trace_and_for_the_copy_that_works_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memlint.config import Settings
    from memlint.session import main as session
    from memlint.session import tables, target
    from memlint.worker.jobs import Begin, EstimateAround
    from memlint.worker.protocol import Request

    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    guessed: list[int] = []
    unguessed: list[int] = []
    complete = target.complete

    def counted(workload: Workload, root: Path) -> object:
        (unguessed if workload.inputs is not None else guessed).append(os.getpid())
        return complete(workload, root)

    for module in (target, tables):
        monkeypatch.setattr(module, "complete", counted)
    monkeypatch.setattr(ahead, "Ahead", Here)
    monkeypatch.setattr(ahead, "may_work_ahead", lambda: True)
    request = Request(target="model.py", path=str(tmp_path / "model.py"), root=str(tmp_path), settings=Settings())
    own = target.Target(request)
    session._answer(own, Begin(EstimateAround(0)))
    assert own.begun == {}
    own.trace(0)
    assert isinstance(own.begun[0], Here)
    assert len(guessed) == 1
    assert unguessed, "the tables of the copy"


class Here:
    """Work that is done at once and here."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.done = work()


@pytest.fixture
def long_generation() -> Workload:
    """A Workload of which some tokens are computed from others, with all sizes."""
    pytest.importorskip("transformers")
    from memlint.accelerator import lazy_imports
    from memlint.libraries import installation
    from memlint.targets.workload import Workload
    from memlint.workloads.construction.construct import complete

    installation.install()
    lazy_imports.run_eagerly()
    file = Path(__file__).parents[2] / "fixtures" / "models" / "generating.py"
    sizes = {"prompt": 8, "new_tokens": 40, "num_beams": 1}
    own = Workload("llama", f"{file}::llama", str(file), "llama", mode="generate", dimensions=sizes)
    return complete(replace(own, batch=1, gpu="a100-80gb"))[0]


def test_a_process_of_the_user_is_not_copied() -> None:
    assert not ahead.may_work_ahead()


def test_the_last_tokens_of_a_generation_are_traced_by_a_copy_and_no_tables_begun_that_it_has_not(
    long_generation: Workload, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memlint.config import Settings
    from memlint.session import main as session
    from memlint.session import target
    from memlint.worker.jobs import Begin, EstimateAround
    from memlint.worker.protocol import Request
    from memlint.workloads.candidates import Discovery

    begun: list[str] = []

    class Copy(Ahead[object]):
        def __init__(self, work: Callable[[], object]) -> None:
            begun.append("copy")
            super().__init__(work)

    monkeypatch.setattr(target, "Ahead", Copy)
    monkeypatch.setattr(ahead, "Ahead", Copy)
    traces = []
    for may in (True, False):
        for module in (target, ahead):
            monkeypatch.setattr(module, "may_work_ahead", lambda may=may: may)
        request = Request(target="generating.py", path=long_generation.path, root="/", settings=Settings())
        own = target.Target(request, Discovery([long_generation], []))
        session._answer(own, Begin(EstimateAround(0)))
        traces.append(own.trace(0).trace)
        assert own.begun == {}
    assert begun == ["copy"]
    with_copy, alone = traces
    assert with_copy.whole is not None
    assert (with_copy.whole, with_copy.nodes, with_copy.events) == (alone.whole, alone.nodes, alone.events)
