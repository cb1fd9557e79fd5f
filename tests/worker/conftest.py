"""A project with scripts that run in real child processes, none of which may stay."""

from __future__ import annotations

import importlib
import os
import sys
import time
import uuid
from multiprocessing import resource_tracker
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from memlint.base import cache
from memlint.config import Settings
from memlint.worker import capture_store, server_client
from memlint.worker.protocol import Dependencies, Limits, Request
from memlint.worker.supervise import carry_out
from memlint.worker.task import Task
from tests.time_limits import over_when

HANGS = "# From here on it hangs.\n"
"""A line of code that never ends."""
FAKES = ("fake_analyse", "fake_asking")


def fake_analyse(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the fake child into a folder, and that on the import path of this process and of its children.

    This process imports only who asks.
    """
    for name in FAKES:
        (folder / f"{name}.py").write_text((Path(__file__).parent / f"{name}.py").read_text())
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), *([known] if known else []))))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "fake_asking", raising=False)


def fake_task(request: Request, limits: Limits, ask: str = "ask", *, cache: bool = False) -> Task:
    """A task for the fake child, asked by a function beside it."""
    return Task(request, limits, getattr(importlib.import_module("fake_asking"), ask), cache, "fake_analyse")


def kept_dependencies(request: Request) -> Dependencies:
    """The kept list of what the answers to a request depend on, without seals: a file gets one when it is old enough."""
    subject, root = capture_store._subject(request), Path(request.root)
    kept = cache.read(root, "captures", subject, cache.key_of(), lambda entry: entry["dependencies"])
    return Dependencies.model_validate({**kept, "seals": {}})


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

    def task(self, code: str, name: str = "model.py", *, ask: str = "ask", **limits: float) -> Task:
        return fake_task(self.request(code, name), Limits(**{"seconds": 20, **limits}), ask)

    def run(self, code: str, *, ask: str = "ask", **limits: float):
        task = self.task(code, ask=ask, **limits)
        return copies_answer([task])[0] if self.way == "copy" else carry_out(task)

    def run_out_of_time(self, code: str, monkeypatch: pytest.MonkeyPatch):
        """The answer to code that hangs behind the line HANGS, whose time is over once it has got there.

        A copy has a few seconds: what watches it is no child of this process.
        """
        mark = self.directory / "hangs"
        over_when(lambda _session: mark.exists(), monkeypatch)
        assert code.count(HANGS) == 1
        seconds = 3 if self.way == "copy" else 20
        answer = self.run(code.replace(HANGS, f"open({str(mark)!r}, 'w').close()\n"), seconds=seconds)
        assert mark.exists(), "it did not get there"
        assert answer.error.message.startswith(f"no answer within {seconds} s")
        return answer

    def copies(self, *codes: str, **limits: float):
        """The answers of copies of one server, two at a time."""
        return copies_answer([self.task(code, f"model{number}.py", **limits) for number, code in enumerate(codes)])

    def left_behind(self) -> list[psutil.Process]:
        left = []
        for process in psutil.process_iter():
            try:
                variables = process.environ()
                if not variables and process.ppid() == os.getpid():  # the system has not given them to it yet
                    time.sleep(0.1)
                    variables = process.environ()
                if process.pid != os.getpid() and variables.get("TEST_MARK") == self.mark:
                    left.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                pass
        return left


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("fake", "project"):
        (tmp_path / name).mkdir()
    if sys.platform != "win32":
        resource_tracker.ensure_running()  # Python's own, without the mark
    mark = uuid.uuid4().hex
    monkeypatch.setenv("TEST_MARK", mark)
    fake_analyse(tmp_path / "fake", monkeypatch)
    before = set(psutil.Process().children(recursive=True))
    project = Project(tmp_path / "project", mark)
    yield project
    assert project.left_behind() == []
    assert set(psutil.Process().children(recursive=True)) <= before, "zombies or orphans were left"
