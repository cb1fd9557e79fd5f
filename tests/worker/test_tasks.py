"""Children side by side: they overlap, answer for themselves only, and none outlives an end of any kind."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from memlint.base.errors import TargetError, WorkerError
from memlint.base.own_process import may_fork
from memlint.commands.check import answers
from memlint.commands.check.check import check
from memlint.commands.check.targets import CheckOptions
from memlint.worker import parallel, server_client, supervisor_pool
from memlint.worker.child import write_partial
from memlint.worker.parallel import answers_to
from memlint.worker.protocol import Result
from memlint.worker.task import Task

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="how processes die is told for Linux")

TELL = """
from memlint.worker.child import write_partial
from memlint.worker.protocol import Result
write_partial(Result(torch="first"))
write_partial(Result(torch="second"))
"""
WAIT = """
import os, time
def mark(name): open(os.path.join({place!r}, name), "w").close()
def wait(name):
    while not os.path.exists(os.path.join({place!r}, name)): time.sleep(0.01)
"""


SLOW_ENDS = ("time.sleep(60)", "import sys; sys.exit(3)", "os._exit(1)")


@pytest.fixture(autouse=True, params=["copy", pytest.param("python", marks=pytest.mark.slow)])
def way(request, monkeypatch):
    """Two at a time, as copies of a server or each a Python of its own."""
    monkeypatch.setattr(parallel, "num_workers", lambda: 2)
    if request.param == "python":
        monkeypatch.setattr(server_client, "answers", lambda *_arguments: iter(()))
    return request.param


@pytest.fixture
def place(tmp_path):
    """Where children leave marks for one another."""
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def tasks_of(project, place, *codes: str, **limits: float) -> list[Task]:
    return [
        project.task(WAIT.format(place=str(place)) + code, f"model{number}.py", **limits)
        for number, code in enumerate(codes)
    ]


def said(answer):
    assert answer.error is None, answer.error
    return json.loads(answer.result.skipped[0].reason)


def begun(place, *names: str) -> None:
    deadline = time.monotonic() + 30
    while not all((place / name).exists() for name in names):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("spawn", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_run_at_the_same_time(project, place, monkeypatch, spawn):
    if spawn:
        monkeypatch.setattr(server_client, "answers", lambda *_arguments: iter(()))
        monkeypatch.setattr(supervisor_pool, "may_fork", lambda: False)
    asked = tasks_of(project, place, "mark('a'); wait('b'); said = 1", "mark('b'); wait('a'); said = 2")
    assert {number: said(answer) for number, answer in answers_to(asked)} == {0: 1, 1: 2}


def test_what_completes_first_is_given_first_and_more_wait_their_turn(project, place):
    asked = tasks_of(project, place, "wait('c'); said = 0", "said = 1", "mark('c'); said = 2")
    given = [(number, said(answer)) for number, answer in answers_to(asked)]
    assert given[0] == (1, 1)
    assert sorted(given) == [(0, 0), (1, 1), (2, 2)]


def test_no_more_run_at_a_time_than_there_is_room_for(project, place, monkeypatch):
    monkeypatch.undo()
    assert parallel.num_workers() >= 1
    few = psutil.virtual_memory()._replace(available=parallel.WORKER_NBYTES // 2)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: few)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: range(64))
    assert parallel.num_workers() == 1
    monkeypatch.setattr(psutil, "virtual_memory", lambda: few._replace(available=parallel.WORKER_NBYTES * 5 + 1))
    assert parallel.num_workers() == 5


def test_nothing_is_answered_with_nothing():
    assert list(answers_to([])) == []


def test_an_error_of_one_does_not_touch_the_other(project, place):
    raises = "from memlint.base.errors import TargetError\nmark('a'); raise TargetError('no such model', 'Write it.')"
    asked = tasks_of(project, place, raises, "wait('a'); said = 'done'", "import os; os.abort()")
    given = dict(answers_to(asked))
    assert type(given[0].error) is TargetError
    assert (given[0].error.message, given[0].error.hint) == ("no such model", "Write it.")
    assert given[0].traceback[-1].rpartition("/")[2].startswith("model0.py:")
    assert said(given[1]) == "done"
    assert "SIGABRT" in given[2].error.message


def test_orphans_of_one_are_left_alone_at_the_end_of_the_other(project, place):
    keeps = """
import subprocess
if os.fork() == 0:
    os.setsid()
    subprocess.Popen(["sleep", "300"])
    os._exit(0)
os.wait()
mark('a')
wait('ended')
import psutil
said = [each.name() for each in psutil.process_iter() if each.name() == "sleep" and each.environ().get("TEST_MARK") == os.environ["TEST_MARK"]]
"""
    asked = tasks_of(project, place, keeps, "wait('a'); said = 2")
    given = answers_to(asked)
    assert next(given)[0] == 1
    (place / "ended").touch()
    assert said(next(given)[1]) == ["sleep"]
    assert list(given) == []


def test_a_supervisor_that_is_killed_is_an_error_of_its_task(project, place):
    asked = tasks_of(project, place, "import signal; os.kill(os.getppid(), signal.SIGKILL); wait('never')", "said = 2")
    given = dict(answers_to(asked))
    assert "ended with status -9" in given[0].error.message
    assert given[0].error.hint
    assert said(given[1]) == 2


def test_what_cannot_be_asked_at_all_is_raised(project, place, monkeypatch):
    asked = tasks_of(project, place, "said = 1", "said = 2")
    monkeypatch.setattr(tempfile, "tempdir", str(place / "missing"))
    if may_fork():  # or else the setting does not travel
        with pytest.raises(WorkerError, match="no temporary file can be written"):
            list(answers_to(asked))


def test_waiting_is_told_of_the_longest_running(project, place):
    told = []
    asked = tasks_of(project, place, "time.sleep(0.3)", "said = 2")
    assert len(list(answers_to(asked, on_wait=lambda task, seconds: told.append((task, seconds))))) == 2
    assert len(told) >= 3
    assert {task.request.target for task, _seconds in told[1:]} <= {"model0.py", "model1.py"}
    assert told[-1][1] > 0


@pytest.mark.parametrize(
    "end",
    ["os.abort()", "raise ValueError('bad')", *(pytest.param(end, marks=pytest.mark.slow) for end in SLOW_ENDS)],
)
def test_what_was_told_before_a_failure_is_kept(project, place, end):
    answer = project.run(TELL + "import os, time\n" + end, seconds=4 if "sleep" in end else 20)
    assert answer.error is not None
    assert answer.result is None
    assert answer.partial == Result(torch="second")


def test_what_was_told_does_not_stand_beside_a_result(project):
    answer = project.run(TELL + "said = 1")
    assert said(answer) == 1
    assert answer.partial is None


def test_what_a_copy_of_the_child_tells_does_not_count(project):
    copy = "import os\nif os.fork() == 0:\n    write_partial(Result(torch='copy'))\n    os._exit(0)\nos.wait()\nos.abort()\n"
    assert project.run(TELL + copy).partial == Result(torch="second")


def test_telling_outside_of_a_child_does_nothing():
    write_partial(Result())


@pytest.mark.parametrize("count", [1, 3])
def test_what_was_told_before_an_interruption_is_given_and_then_it_is_raised(project, place, count):
    codes = [TELL + "mark('a'); wait('never')", "mark('b'); wait('never')", "said = 3"][:count]

    def interrupt(_task: Task, _seconds: float) -> None:
        if len(list(place.iterdir())) == min(count, 2):
            raise KeyboardInterrupt

    given = answers_to(tasks_of(project, place, *codes), on_wait=interrupt)
    answers = dict(next(given) for _ in codes)
    assert project.left_behind() == []
    assert answers.keys() == set(range(count))
    for answer in answers.values():
        assert type(answer.error) is WorkerError
        assert answer.error.message.startswith("interrupted")
        assert answer.error.hint
    assert answers[0].partial == Result(torch="second")
    assert [answer.partial for number, answer in answers.items() if number] == [None] * (count - 1)
    with pytest.raises(KeyboardInterrupt):
        next(given)


def test_nobody_who_stops_listening_leaves_a_process(project, place):
    given = answers_to(tasks_of(project, place, "wait('never')", "said = 2"))
    assert next(given)[0] == 1
    given.close()
    assert project.left_behind() == []


def test_the_report_keeps_the_order_of_the_targets(project, place, monkeypatch):
    asked = tasks_of(project, place, "wait('b'); said = 'first'", "mark('b'); said = 'second'")
    monkeypatch.setattr(answers, "analyse", importlib.import_module("fake_asking").ask)
    monkeypatch.setattr(answers, "Task", functools.partial(Task, child="fake_analyse"))
    monkeypatch.chdir(project.directory)
    run = check([task.request.path for task in asked], {}, CheckOptions(cache=False))
    assert [workload.target.rpartition("/")[2] for workload in run.report.workloads] == ["model0.py", "model1.py"]
    assert [target.rpartition("/")[2] for target, _out, _err in run.outputs] == ["model0.py", "model1.py"]


CHECK = """
import functools, sys, fake_asking, memlint.cli
from memlint.commands import early
from memlint.commands.check import answers
from memlint.worker import parallel, server_client
parallel.num_workers = lambda: 2
if sys.argv.pop(1) == "python":
    server_client.answers = lambda *_arguments: iter(())
answers.analyse = fake_asking.ask
early.CHILD = "fake_analyse"
answers.Task = early.Task = functools.partial(answers.Task, child="fake_analyse")
memlint.cli.main(["check", "--no-sweep", *sys.argv[1:]])
"""
ORPHAN = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(300)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (signal.SIGINT, True),
        *(
            pytest.param(number, False, marks=pytest.mark.slow)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        ),
    ],
)
def test_ending_a_check_of_two_files_ends_everything(project, place, way, number, to_all):
    asked = tasks_of(project, place, ORPHAN + "mark('a'); wait('never')", ORPHAN + "mark('b'); wait('never')")
    checking = subprocess.Popen(
        [sys.executable, "-c", CHECK, way, *(task.request.path for task in asked)],
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(place.parent)},
    )
    begun(place, "a", "b")
    if to_all:  # as a terminal does
        os.killpg(checking.pid, number)
    else:
        checking.send_signal(number)
    output, errors = checking.communicate(timeout=30)
    assert output == b""
    if number == signal.SIGINT:
        assert (checking.returncode, errors) == (130, b"interrupted\n")
    else:
        assert checking.returncode != 0
    deadline = time.monotonic() + 20
    while project.left_behind() and time.monotonic() < deadline:
        time.sleep(0.05)
