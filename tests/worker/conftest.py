"""A project with scripts that run in real child processes, none of which may stay."""

from __future__ import annotations

import os
import sys
import uuid
from multiprocessing import resource_tracker
from textwrap import dedent
from typing import TYPE_CHECKING

import psutil
import pytest

from memlint.config import Settings
from memlint.worker.answer import Limits
from memlint.worker.parent import ask
from memlint.worker.protocol import Request

if TYPE_CHECKING:
    from pathlib import Path

FAKE = """
import json, os, runpy
from memlint.report.model import Skipped
from memlint.worker.protocol import Result

def analyse(request):
    said = runpy.run_path(request.path).get("said", "")
    return Result(torch="0.0", skipped=[Skipped(reason=json.dumps(said))])

def nonsense(request):
    return {"not": "a result"}
"""


class Project:
    """A directory with a script, and a mark that every process started from it carries in its environment."""

    def __init__(self, directory: Path, mark: str) -> None:
        self.directory = directory
        self.script = directory / "models" / "model.py"
        self.mark = mark

    def request(self, code: str = "", name: str = "model.py") -> Request:
        script = self.script.with_name(name)
        script.parent.mkdir(exist_ok=True)
        script.write_text(dedent(code))
        return Request(target=name, path=str(script), root=str(self.directory), settings=Settings())

    def run(self, code: str, *, analyse: str = "fake_analyse:analyse", **limits: float):
        return ask(self.request(code), Limits(**{"seconds": 20, **limits}), analyse=analyse)

    def left_behind(self) -> list[psutil.Process]:
        left = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get("TEST_MARK") == self.mark:
                    left.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                pass
        return left


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("fake", "project"):
        (tmp_path / name).mkdir()
    (tmp_path / "fake" / "fake_analyse.py").write_text(FAKE)
    if sys.platform != "win32":
        resource_tracker.ensure_running()  # Python's own, without the mark
    mark = uuid.uuid4().hex
    monkeypatch.setenv("TEST_MARK", mark)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    before = set(psutil.Process().children(recursive=True))
    project = Project(tmp_path / "project", mark)
    yield project
    assert project.left_behind() == []
    assert set(psutil.Process().children(recursive=True)) <= before, "zombies or orphans were left"
