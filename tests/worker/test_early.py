"""The child of an only target starts before it is known what it is asked, and not where nobody would ask it."""

from __future__ import annotations

import functools
import sys
import time
from contextlib import nullcontext
from importlib import import_module

import pytest

from memlint.base import cache as cachedir
from memlint.commands import early
from memlint.commands.early import early_child, early_session
from memlint.targets.script import Script
from memlint.worker.parallel import answers_to
from memlint.worker.task import Task

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the fake child is looked for as on other systems"),
    pytest.mark.filterwarnings("error"),
]


@pytest.fixture(autouse=True)
def fakes(project, monkeypatch):
    """Children that need no PyTorch, on a machine with two cores that has it."""
    monkeypatch.setattr(early, "CHILD", "fake_analyse")
    monkeypatch.setattr(early, "Task", functools.partial(Task, child="fake_analyse"))
    monkeypatch.setattr(early.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(early.importlib.util, "find_spec", lambda _name: object())


def said(answer):
    return answer.result.skipped[0].reason


def asked(request, session, *, cache=False):
    """The answer of the command's task."""
    task = Task(request, request.limits(), import_module("fake_asking").ask, cache, "fake_analyse")
    return next(answers_to([task], early=session))[1]


def test_the_child_runs_before_anything_is_asked_and_then_answers(project):
    request = project.request("import os; said = os.getpid()")
    with early_session([request], cache=False) as session:
        (child,) = project.left_behind()
        assert not session.is_begun, "nothing was asked yet"
        assert said(asked(request, session)) == str(child.pid)


def test_what_is_asked_may_have_changed_meanwhile(project):
    first, other = project.request("said = 'first'"), project.request("said = 'other'", "other.py")
    with early_session([first], cache=False) as session:
        assert said(asked(other, session)) == '"other"'


def test_a_child_that_nobody_asks_ends_with_the_block(project):
    with early_session([project.request("said = 1")], cache=False) as session:
        assert session is not None
        assert len(project.left_behind()) == 1
    assert project.left_behind() == []


def test_its_time_limit_begins_when_it_is_asked(project):
    request = project.request("said = 1")
    with early_session([request], cache=False) as session:
        time.sleep(0.2)
        assert session.seconds_left == session.limits.seconds
        assert asked(request, session).error is None


def test_nothing_starts_where_the_answers_are_kept(project):
    request = project.request("said = 1")
    with early_session([request], cache=True) as session:
        asked(request, session, cache=True)
    with early_session([request], cache=True) as session:
        assert said(asked(request, session, cache=True)) == "1"
        assert project.left_behind() == []


@pytest.mark.parametrize("reason", ["several targets", "a script", "a capture", "one core", "no torch"])
def test_nothing_starts_where_it_would_not_help(project, reason, monkeypatch):
    request = project.request("said = 1")
    requests = [request]
    match reason:
        case "several targets":
            requests = [request, request]
        case "a script":
            requests = [request.model_copy(update={"script": Script(name="model", path=request.path)})]
        case "a capture":
            requests = [request.model_copy(update={"path": "step.memlint"})]
        case "one core":
            monkeypatch.setattr(early.os, "cpu_count", lambda: 1)
        case "no torch":
            monkeypatch.setattr(early.importlib.util, "find_spec", lambda _name: None)
    with early_session(requests, cache=False) as session:
        assert session is None
        assert project.left_behind() == []


def test_a_child_that_starts_before_the_command_is_imported_is_the_one_that_answers(project):
    request = project.request("import os; said = os.getpid()")
    with early_child([request.path], cache=False) as child:
        assert [each.pid for each in project.left_behind()] == [child.child.pid]
        with early_session([request], cache=False, child=child) as session:
            assert said(asked(request, session)) == str(child.child.pid)
        assert project.left_behind() == []


@pytest.mark.parametrize("reason", ["several targets", "a script", "kept answers"])
def test_a_child_that_nobody_will_ask_is_killed_at_once(project, reason):
    request = project.request("said = 1")
    if reason == "kept answers":
        with early_session([request], cache=True) as session:
            asked(request, session, cache=True)
    script = request.model_copy(update={"script": Script(name="model", path=request.path)})
    requests = {"several targets": [request, request], "a script": [script]}.get(reason, [request])
    with (
        early_child([request.path], cache=False) as child,
        early_session(requests, cache=reason == "kept answers", child=child),
    ):
        assert project.left_behind() == []


def test_a_child_starts_early_for_a_file_that_changed_since_answers_were_kept(project):
    def starts(*, cache: bool) -> bool:
        with early_child([request.path], cache=cache) as child:
            return child is not None

    request = project.request("said = 1")
    assert starts(cache=True), "there is no cache"
    time.sleep(0.02)  # more than a tick of the clock of files
    (project.directory / cachedir.NAME / "captures").mkdir(parents=True)
    assert not starts(cache=True)
    assert starts(cache=False)
    time.sleep(0.02)
    project.request("said = 2")
    assert starts(cache=True)


@pytest.mark.parametrize("targets", [["."], ["missing.py"], ["missing.py::Model"], ["a.md"], [], ["other", "one"]])
def test_nothing_starts_early_for_what_may_need_no_child(project, targets):
    project.request("said = 1", "other.py")
    with early_child(targets, cache=False) as child:
        assert child is None


def test_the_memory_that_a_child_may_take_is_what_its_request_says(project):
    request = project.request("import resource; said = resource.getrlimit(resource.RLIMIT_DATA)[0]")
    answers = []
    for way in (early_child, lambda *_arguments, **_named: nullcontext()):
        with way([request.path], cache=False) as child, early_session([request], cache=False, child=child) as session:
            answers.append(said(asked(request, session)))
    assert answers[0] == answers[1] != "-1"
