"""Real misbehaving code in real child processes: each death is one clear error, and no process stays."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memlint.base.errors import TargetError, WorkerError
from memlint.base.exchange import Exchange
from memlint.worker.child import FILES, SMALLER, STACK
from memlint.worker.endings import stopped
from memlint.worker.protocol import Limits
from memlint.worker.supervise import carry_out
from tests.worker.conftest import HANGS

PARENTS = {
    "python": """
import fake_asking, sys
from memlint.worker.supervise import carry_out
from memlint.worker.protocol import Limits, Request
from memlint.worker.task import Task
request = Request.model_validate_json(sys.argv[1])
carry_out(Task(request, Limits(), fake_asking.ask, child="fake_analyse"))
""",
    "copy": """
import fake_asking, sys
from memlint.worker.server_client import answers
from memlint.worker.protocol import Limits, Request
from memlint.worker.task import Task
request = Request.model_validate_json(sys.argv[1])
task = Task(request, Limits(), fake_asking.ask, child="fake_analyse")
list(answers([task], 1, lambda _task, _seconds: None))
""",
}

pytestmark = [
    pytest.mark.usefixtures("copied_pythons"),
    pytest.mark.skipif(sys.platform != "linux", reason="how processes die is told for Linux"),
]
executed = pytest.mark.usefixtures("executed_pythons")
"""For what a new Python is given, for memory, and where a mark in the environment finds what is left."""


@pytest.fixture(params=["python", pytest.param("copy", marks=pytest.mark.slow)])
def project(project, request):
    project.way = request.param
    return project


def said(answer):
    assert answer.error is None, answer.error
    return json.loads(answer.result.skipped[0].reason)


def test_the_result_comes_back_and_output_is_captured(project, capfd):
    answer = project.run("import sys; said = 'hello'; print('out'); print('err', file=sys.stderr)")
    assert said(answer) == "hello"
    assert (answer.stdout, answer.stderr) == ("out\n", "err\n")
    assert capfd.readouterr() == ("", "")


@executed
def test_code_sees_the_arguments_and_import_path_of_a_script_of_the_project(project):
    (project.directory / "src").mkdir()
    path, arguments, cwd = said(project.run("import os, sys; said = [sys.path, sys.argv, os.getcwd()]"))
    assert path[:3] == [str(project.script.parent), str(project.directory), str(project.directory / "src")]
    assert arguments == [str(project.script)]
    assert cwd == str(Path.cwd())


@executed
def test_code_sees_no_gpu_no_network_and_no_settings_of_memlint(project, monkeypatch):
    monkeypatch.setenv("MEMLINT_SECRET", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    environment = said(project.run("import os; said = dict(os.environ)"))
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["HF_HUB_OFFLINE"] == environment["TRANSFORMERS_OFFLINE"] == "1"
    assert (environment["HYDRA_FULL_ERROR"], environment["JSONARGPARSE_DEBUG"]) == ("1", "true")  # errors, not exits
    assert not [key for key in environment if key.startswith("MEMLINT_")]


@executed
@pytest.mark.parametrize("kept", [True, False])
def test_bytecode_is_kept_of_the_analysis_where_python_keeps_it_and_never_of_user_code(project, monkeypatch, kept):
    monkeypatch.setattr(sys, "dont_write_bytecode", not kept)
    (project.directory / "helper.py").write_text("x = 1")
    assert said(project.run("import helper, sys; said = sys.dont_write_bytecode")) is True
    names = {file.name.partition(".")[0] for file in project.directory.parent.rglob("*.pyc")}
    assert names - {"fake_asking"} == ({"fake_analyse"} if kept else set()), "the other is of this process"


def test_code_has_no_input_to_wait_for(project):
    assert said(project.run("import sys; said = sys.stdin.read()")) == ""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import ctypes\ndef poke():\n    ctypes.string_at(0)\npoke()",
            r"segmentation fault \(SIGSEGV\), at .*model.py:3",
        ),
        ("import os\nos.abort()", r"was aborted \(SIGABRT\), at .*model.py:2"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", r"was killed \(SIGKILL\)"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", r"ended by a signal \(SIGTERM\)"),
        ("import sys\nsys.exit(3)", r"called sys.exit\(3\)"),
        ("import sys\nsys.exit('no data')", r"called sys.exit\(1\): no data"),
        ("exit()", r"called sys.exit\(0\)"),
        ("import os\nos._exit(0)", r"exit status 0"),
        ("import os\nos._exit(7)", r"exit status 7"),
        ("raise KeyboardInterrupt", r"KeyboardInterrupt"),
        ("class Mine(Exception): pass\nraise Mine('bad')", r"Mine: bad"),
        ("def f(): f()\nf()", r"RecursionError"),
    ],
)
def test_each_way_to_die_is_named_with_what_to_do(project, code, message):
    answer = project.run(code)
    assert isinstance(answer.error, WorkerError)
    assert answer.result is None
    assert re.search(message, answer.error.message), answer.error.message
    assert answer.error.hint


def test_an_exception_names_the_lines_of_the_user_only(project):
    answer = project.run(
        """
        import json
        def load():
            try:
                json.loads("{")
            except ValueError as error:
                raise RuntimeError("cannot load") from error
        load()
        """
    )
    assert "RuntimeError: cannot load" in answer.error.message
    assert [line.rpartition("/")[2] for line in answer.traceback] == ["model.py:5 in load"]
    assert "json/decoder.py" in answer.stderr, "the whole traceback is there for -v"


def test_an_error_of_the_analysis_comes_back_as_what_it_is(project):
    answer = project.run("from memlint.base.errors import TargetError\nraise TargetError('no such model', 'Write it.')")
    assert type(answer.error) is TargetError
    assert (answer.error.message, answer.error.hint) == ("no such model", "Write it.")


def test_an_answer_of_another_kind_is_our_mistake(project):
    answer = project.run("", ask="ask_for_another_kind")
    assert answer.result is None
    assert isinstance(answer.error, WorkerError)
    assert answer.error.message.startswith("the answer of the child process cannot be read")
    assert "mistake in memlint" in answer.error.hint


def test_a_mistake_of_who_asks_is_the_error_of_the_one_task_with_its_traceback_in_what_was_written(project):
    answer = project.run("print('seen')", ask="break_down")
    assert answer.result is None
    assert isinstance(answer.error, WorkerError)
    assert "ValueError: a mistake" in answer.error.message
    assert "mistake in memlint" in answer.error.hint
    assert answer.stdout == "seen\n"
    assert "in break_down" in answer.stderr, "the whole traceback is there for -v"


def test_a_child_that_does_not_exist_is_an_error(project):
    task = project.task("")._replace(child="missing_child")
    answer = carry_out(task)
    assert isinstance(answer.error, WorkerError)
    assert "exit status 1" in answer.error.message
    assert "No module named 'missing_child'" in answer.stderr


@pytest.mark.parametrize(
    "code",
    [
        f"import time\n{HANGS}time.sleep(60)",
        f"{HANGS}while True: pass\n",
        f"import re\n{HANGS}re.match('(a+)+$', 'a' * 60 + 'b')",
        f"import signal, time\nfor n in (2, 15, 1): signal.signal(n, signal.SIG_IGN)\n{HANGS}time.sleep(60)",
        f"import threading\n{HANGS}threading.Event().wait()",
    ],
)
def test_code_that_hangs_is_ended_and_its_line_named(project, monkeypatch, code):
    answer = project.run_out_of_time(code, monkeypatch)
    assert "model.py:" in answer.error.message
    assert "--timeout" in answer.error.hint


def test_a_model_of_a_package_that_takes_long_has_no_script_part_to_guard(tmp_path):
    stack = f'  File "{pytest.__file__}", line 7 in forward\n'
    with Exchange(tmp_path, FILES, new=True) as exchange:
        exchange.say(STACK, f"Current thread 0x1 (most recent call first):\n{stack}".encode())
        hint = stopped("seconds", exchange, Limits()).hint
    assert "__main__" not in hint
    assert "allow more with --timeout" in hint


@pytest.mark.parametrize(("function", "hint"), [("scan", "--batch 1"), ("<module>", "__main__")])
def test_a_loop_in_a_step_is_told_from_one_at_import(tmp_path, function, hint):
    stack = f'  File "{tmp_path}/m.py", line 7 in scan\n  File "{tmp_path}/m.py", line 3 in {function}\n'
    with Exchange(tmp_path, FILES, new=True) as exchange:
        exchange.say(STACK, f"Current thread 0x1 (most recent call first):\n{stack}".encode())
        error = stopped("seconds", exchange, Limits())
        assert error.message.endswith("m.py:7 in scan")
        assert hint in error.hint
        exchange.say(SMALLER, b"memlint check m.py --dim seq=64")  # the step had begun
        error = stopped("seconds", exchange, Limits())
    assert "type memlint check m.py --dim seq=64, or allow more" in error.hint


@executed
def test_memory_taken_bit_by_bit_is_noticed(project):
    code = "import time\nheld = []\nfor _ in range(500): held.append(bytearray(b'x') * 2**22); time.sleep(0.01)"
    answer = project.run(code, nbytes=300 * 2**20)
    assert "more than 300.0 MiB of host memory" in answer.error.message
    assert "--memory-limit" in answer.error.hint


@executed
def test_memory_taken_at_once_is_refused(project):
    answer = project.run("held = bytearray(3 * 2**30)", nbytes=300 * 2**20)
    assert "of host memory" in answer.error.message
    assert answer.traceback[-1].endswith("model.py:1 in <module>")


@executed
def test_memory_of_all_processes_counts(project):
    code = """
        import subprocess, sys, time
        hold = "import time; held = bytearray(b'x') * (120 * 2**20); time.sleep(60)"
        running = [subprocess.Popen([sys.executable, "-c", hold]) for _ in range(3)]
        time.sleep(60)
    """
    answer = project.run(code, nbytes=300 * 2**20)
    assert "of host memory" in answer.error.message


@executed
def test_many_processes_are_too_many(project):
    code = "import subprocess, time\nheld = [subprocess.Popen(['sleep', '60']) for _ in range(20)]\ntime.sleep(60)"
    answer = project.run(code, processes=10)
    assert "more than 10 processes" in answer.error.message


@executed
def test_a_fork_bomb_ends(project):
    # Each process leaves its session and forks on: 2 ** 7 processes if nobody stops it.
    code = (
        "import os, time\nfor _ in range(7):\n    if os.fork() == 0: os.setsid()\n    time.sleep(0.05)\ntime.sleep(60)"
    )
    answer = project.run(code, processes=20)
    assert "more than 20 processes" in answer.error.message


def test_a_flood_of_output_ends(project):
    answer = project.run("while True: print('x' * 1000)", output_nbytes=2**20)
    assert "wrote more than 1.00 MiB" in answer.error.message
    assert answer.stdout.startswith("xxx")


@executed
def test_processes_that_ended_do_not_count(project):
    # Each leaves an orphan that ends at once, and that only memlint can reap.
    code = """
        import os, time
        for _ in range(30):
            if os.fork() == 0:
                if os.fork() == 0: os._exit(0)
                os._exit(0)
            os.wait()
            time.sleep(0.01)
        time.sleep(0.3)
        said = "done"
    """
    assert said(project.run(code, processes=10)) == "done"


ORPHAN = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(300)
    os._exit(0)
os.wait()
"""


@executed
def test_a_daemon_that_left_its_session_does_not_outlive_an_answer(project):
    assert said(project.run(ORPHAN + "said = 'done'")) == "done"


@executed
def test_a_daemon_that_left_its_session_does_not_outlive_a_timeout(project, monkeypatch):
    assert project.run_out_of_time(f"{ORPHAN}{HANGS}time.sleep(300)", monkeypatch).error is not None


@executed
def test_a_daemon_that_left_its_session_does_not_outlive_a_crash(project):
    assert project.run(ORPHAN + "os.abort()").error is not None


@executed
def test_processes_of_ours_that_were_there_before_are_left_alone(project):
    with subprocess.Popen(["sleep", "60"], env={}) as other:
        project.run(ORPHAN)
        assert other.poll() is None
        other.kill()


def test_threads_and_exit_handlers_that_hang_do_not_hold_the_answer_up(project):
    code = """
        import atexit, threading, time
        atexit.register(time.sleep, 300)
        threading.Thread(target=time.sleep, args=(300,)).start()
        said = "done"
    """
    assert said(project.run(code)) == "done"


def test_of_code_that_forks_and_runs_on_only_the_first_process_answers(project):
    code = "import os, time\nchild = os.fork()\nsaid = 'copy' if child == 0 else 'first'\ntime.sleep(0 if child == 0 else 0.5)"
    assert said(project.run(code)) == "first"


def test_closed_streams_do_no_harm(project):
    code = "import os, sys\nsys.stdout.close(); os.close(1); os.close(2); said = 'done'"
    assert said(project.run(code)) == "done"


def test_waiting_is_told(project):
    seconds = []
    carry_out(project.task("import time; time.sleep(0.5)"), on_wait=seconds.append)
    assert len(seconds) >= 3
    assert seconds == sorted(seconds)


@executed
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_ending_the_parent_ends_the_child(project, number):
    started = project.directory / "started"
    daemon = "" if number == signal.SIGKILL else ORPHAN  # a killed parent cannot look after orphans
    request = project.request(f"{daemon}\nimport time\nopen({str(started)!r}, 'w').close()\ntime.sleep(300)")
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENTS[project.way], request.model_dump_json()],
        cwd=root,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(root)]),
            "TMPDIR": str(project.directory),  # a killed parent leaves its files
        },
    )
    deadline = time.monotonic() + 30
    while not started.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    parent.send_signal(number)
    assert parent.wait(30) != 0
    while project.left_behind() and time.monotonic() < deadline:
        time.sleep(0.05)
