"""Children that are copies of a server: what they find is what a Python of its own finds, and each fails alone."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from memlint.worker import parallel, server_client
from memlint.worker.parallel import answers_to
from memlint.worker.protocol import Limits, Task
from memlint.worker.supervise import ask

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a server on Linux only")

ANALYSE = "fake_analyse:analyse"
WHICH = """
import sys
said = "copy" if "memlint.worker.server" in sys.orig_argv[3] else "python"
"""
SURROUNDINGS = """
import ctypes, faulthandler, gc, multiprocessing, os, resource, signal, sys, tempfile, threading, warnings

def process_flag(option):
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(option, ctypes.byref(value), 0, 0, 0)
    return value.value

said = {
    "modules": sorted(sys.modules.keys() - {"memlint.worker.server"}),
    "import path": sys.path,
    "arguments": sys.argv,
    "variables": dict(os.environ),
    "directory": os.getcwd(),
    "file mode": os.umask(0o22),
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")],
    "dies with its parent": process_flag(2),
    "takes orphans": process_flag(37),
    "leads": [os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid()],
    "files": sorted(
        os.path.basename(os.readlink(entry.path)) for entry in os.scandir("/proc/self/fd") if os.path.exists(entry.path)
    ),
    "streams": [
        [each.name, each.encoding, each.errors, each.line_buffering, os.path.basename(os.readlink(f"/proc/self/fd/{each.fileno()}"))]
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "threads": [[each.name for each in threading.enumerate()], len(os.listdir("/proc/self/task"))],
    "process": [multiprocessing.current_process().name, multiprocessing.current_process().daemon],
    "its parent": str(multiprocessing.parent_process()),
    "its children": len(multiprocessing.active_children()),
    "warnings": [str(each) for each in warnings.filters],
    "temporary files": tempfile.tempdir,
    "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
    "bytecode": sys.dont_write_bytecode,
    "crash reports": faulthandler.is_enabled(),
}
"""


def said(answer):
    assert answer.error is None, answer.error
    return json.loads(answer.result.skipped[0].reason)


def asked(project, *codes: str, **limits: float) -> list[Task]:
    made = Limits(**{"seconds": 20, **limits})
    return [Task(project.request(code, f"model{n}.py"), made, ANALYSE) for n, code in enumerate(codes)]


def ways(project, monkeypatch, *codes: str) -> list[str]:
    """Who answers two tasks, with a place for two."""
    monkeypatch.setattr(parallel, "num_workers", lambda: 2)
    given = dict(answers_to(asked(project, *codes or (WHICH, WHICH))))
    return [said(given[number]) for number in sorted(given)]


def fake(project, begin: str) -> None:
    """Let the module that is imported before the first copy is made begin with some code."""
    module = project.directory.parent / "fake" / "fake_analyse.py"
    module.write_text(dedent(begin) + module.read_text())


def test_a_copy_finds_and_depends_on_what_a_python_of_its_own_does(project):
    fake(project, "import sys; print('imported'); print('with a warning', file=sys.stderr); open(__file__).close()\n")
    (task,) = asked(project, SURROUNDINGS)
    own = ask(task.request, task.limits, analyse=task.analyse)
    copy = project.copies(SURROUNDINGS)[0]
    assert said(copy) == said(own)
    assert copy.dependencies == own.dependencies
    assert (copy.stdout, copy.stderr) == (own.stdout, own.stderr) == ("imported\n", "with a warning\n")


def test_a_copy_looks_at_what_it_looks_at_itself(project):
    (project.directory / "data.txt").write_text("here")
    seen = f"import os; open({str(project.directory / 'data.txt')!r}); said = os.environ.get('WIDTH')"
    first, second = project.copies(seen, "import tempfile; said = tempfile.gettempdir()").values()
    assert str(project.directory / "data.txt") in first.dependencies.files
    assert "WIDTH" in first.dependencies.variables
    assert str(project.directory / "data.txt") not in second.dependencies.files
    assert "WIDTH" not in second.dependencies.variables
    assert "TMPDIR" in second.dependencies.variables


def test_what_one_copy_changes_no_other_finds(project):
    changes = """
        import builtins, os, signal, sys, warnings
        found = [os.environ.get("LEFT"), getattr(builtins, "left", None), "left" in sys.modules, os.getcwd()]
        os.environ["LEFT"], builtins.left, sys.modules["left"] = "1", 1, sys
        os.chdir("/")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        said = found
    """
    given = project.copies(*[changes] * 4)
    assert [said(each) for each in given.values()] == [[None, None, False, str(Path.cwd())]] * 4


def test_copies_draw_different_numbers(project):
    fake(project, "import random, uuid\nrandom.random()\n")
    draw = "import random, uuid; said = [random.random(), str(uuid.uuid4())]"
    first, second = (said(each) for each in project.copies(draw, draw).values())
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_copies_fail_alone_each_in_its_own_way(project):
    ends = {
        "import ctypes\ndef poke():\n    ctypes.string_at(0)\npoke()": r"segmentation fault \(SIGSEGV\), at .*model0.py:3",
        "import os\nos._exit(7)": "exit status 7",
        "import time\nwhile True: time.sleep(0.1)": r"no answer within 2 s, at .*model2.py:2",
        "held = bytearray(3 * 2**30)": "more than 600.0 MiB of host memory",
        "import os, time\nfor _ in range(7):\n    if os.fork() == 0: os.setsid()\n    time.sleep(0.05)\ntime.sleep(60)": "more than 8 processes",
        "while True: print('x' * 1000)": r"wrote more than 1.00 MiB",
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nsignal.pause()": "ended with status -9",
        "raise SystemExit(3)": r"called sys.exit\(3\)",
    }
    limits = {"seconds": 2, "nbytes": 600 * 2**20, "processes": 8, "output_nbytes": 2**20}
    given = project.copies(*ends, WHICH, **limits)
    for number, message in enumerate(ends.values()):
        assert given[number].error is not None
        assert re.search(message, given[number].error.message), given[number].error.message
    assert said(given[len(ends)]) == "copy"


def test_many_tasks_are_for_copies_and_a_single_one_is_for_a_python_of_its_own(project, monkeypatch):
    assert ways(project, monkeypatch) == ["copy", "copy"]
    assert ways(project, monkeypatch, WHICH) == ["python"]


@pytest.mark.parametrize(
    "begin",
    [
        "import threading, time; threading.Thread(target=time.sleep, args=(300,), daemon=True).start()\n",
        *(
            pytest.param(begin, marks=pytest.mark.slow)
            for begin in (
                "import sys\nif 'server' in sys.orig_argv[3]: raise ImportError\n",
                "import sys\nif 'server' in sys.orig_argv[3]: sys.exit('no')\n",
                "import os, sys\nif 'server' in sys.orig_argv[3]: os.abort()\n",
                "import sys, time\nif 'server' in sys.orig_argv[3]: time.sleep(300)\n",
            )
        ),
    ],
    ids=["thread", "raises", "exits", "crashes", "hangs"],
)
def test_where_no_whole_copy_can_be_made_in_time_ordinary_children_answer(project, monkeypatch, capfd, begin):
    monkeypatch.setattr(server_client, "IMPORT_SECONDS", 1.0 if "sleep(300)\n" in begin else 20.0)
    fake(project, begin)
    assert ways(project, monkeypatch) == ["python", "python"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_what_a_server_that_is_killed_left_unanswered_ordinary_children_answer(project, monkeypatch, tmp_path):
    kills = f"""
        import os, signal, sys, time
        mark = {str(tmp_path / "killed")!r}
        said = "again"
        if not os.path.exists(mark):
            open(mark, "w").close()
            if os.fork() == 0:
                os.setsid()
                time.sleep(300)
            supervisor = os.getppid()
            server = int(open(f"/proc/{{supervisor}}/stat").read().rpartition(")")[2].split()[1])
            os.kill(server, signal.SIGKILL)
            time.sleep(300)
    """
    assert ways(project, monkeypatch, WHICH, kills, kills)[1:] == ["again", "again"]


def test_an_interruption_while_the_server_imports_leaves_nothing(project, monkeypatch):
    fake(project, "import sys, time\nif 'server' in sys.orig_argv[3]: time.sleep(300)\n")

    def interrupt(_task: Task, _seconds: float) -> None:
        raise KeyboardInterrupt

    given = answers_to(asked(project, WHICH, WHICH), on_wait=interrupt)
    answers = dict(next(given) for _ in range(2))
    assert project.left_behind() == []
    with pytest.raises(KeyboardInterrupt):
        next(given)
    assert [answers[number].error.message for number in range(2)] == ["interrupted before there was an answer"] * 2


MODEL = """
import sys, torch
from torch import nn

print("memlint.worker.server" in sys.orig_argv[3], len(torch.__version__) > 0)
print(torch.initial_seed(), file=sys.stderr)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

    def forward(self, x):
        return self.layer(x) + x
"""


@pytest.mark.slow
def test_copies_of_pytorch_answer_and_depend_as_ordinary_children_do(project):
    requests = [project.request(MODEL, name) for name in ("model.py", "other.py")]
    copies = dict(
        server_client.answers([Task(request, Limits()) for request in requests], 2, lambda _task, _seconds: None)
    )
    assert copies.keys() == {0, 1}, (
        "memlint.session.target starts threads, so that nobody can copy a process that has it"
    )
    for number, request in enumerate(requests):
        own = ask(request, Limits())
        assert own.error is None
        assert (copies[number].stdout, own.stdout) == ("True True\n", "False True\n")
        assert copies[number].result == own.result
        assert copies[number].dependencies == own.dependencies
    assert copies[0].stderr != copies[1].stderr, "seeds"
