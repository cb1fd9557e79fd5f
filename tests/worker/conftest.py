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
from memlint.worker import server_client
from memlint.worker.protocol import Limits, Request, Task
from memlint.worker.supervise import ask

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


def copies_answer(tasks):
    """The answers of copies of one server, which must not leave any out."""
    answers = dict(sorted(server_client.answers(tasks, 2, lambda _task, _seconds: None)))
    assert answers.keys() == set(range(len(tasks))), "the server could not be used"
    return answers


class Project:
    """A directory with a script, and a mark that every process started from it carries in its environment."""

    way = "python"
    """How a child is started: as a Python of its own, or as a `copy` of a server."""

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
        request, asked = self.request(code), Limits(**{"seconds": 20, **limits})
        if self.way == "copy":
            return copies_answer([Task(request, asked, analyse)])[0]
        return ask(request, asked, analyse=analyse)

    def copies(self, *codes: str, **limits: float):
        """The answers of copies of one server, two at a time."""
        asked = Limits(**{"seconds": 20, **limits})
        requests = [self.request(code, f"model{number}.py") for number, code in enumerate(codes)]
        return copies_answer([Task(request, asked, "fake_analyse:analyse") for request in requests])

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
