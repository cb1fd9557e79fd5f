"""Scripts that do what they can to go on, to end unseen or to do harm: one clear message, and nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from memlint.base.errors import TargetError
from memlint.commands.exit_status import exit_status
from memlint.script.guard import is_own
from tests.script.isolated import tree
from tests.script.running import run_script, run_text, stdout_of, write

if TYPE_CHECKING:
    from memlint.commands.check.check import Checked

SEEN = "import torch\nx = torch.zeros(1 << 20, device='cuda')\n"
"""4 MiB, and no step."""

TRAINING = """
import torch
model = torch.nn.Linear(512, 512, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(4, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def run_hostile(folder: Path, text: str, *arguments: str, **fields: object) -> Checked:
    """What becomes of a script, which changes nothing in its project or beside it and leaves no process."""
    project, other = folder / "project", folder / "other"
    for place in (project, other):
        (place / "deep" / "deeper").mkdir(parents=True)
        (place / "deep" / "data.bin").write_bytes(bytes(range(256)))
        (place / "deep" / "link").symlink_to("data.bin")
    file = write(project, text)
    trees = tree(project), tree(other)
    before = set(psutil.Process().children(recursive=True))
    settings = {"timeout": 300.0, **fields.pop("settings", {})}  # type: ignore[dict-item]
    checked = run_script(file, *arguments, settings=settings, **fields)
    assert set(psutil.Process().children(recursive=True)) <= before
    assert (tree(project), tree(other)) == trees
    return checked


def message_of(checked: Checked) -> str:
    """The only error that there is, empty without one."""
    (workload,) = checked.report.workloads
    return f"{workload.error.message} {workload.error.hint or ''}" if workload.error is not None else ""


def requested(checked: Checked) -> int | None:
    """The peak of what was seen; None where nothing was."""
    (workload,) = checked.report.workloads
    return workload.estimate.peak.requested.estimate if workload.estimate is not None else None


STOPPED = {
    "without kernels": f"{SEEN}while True: pass",
    "in C": f"{SEEN}import time; time.sleep(10 ** 6)",
    "with a lock": f"{SEEN}import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "with kernels": f"{SEEN}while True: torch.relu(x)",
    "in a thread": f"{SEEN}import threading\ndef run():\n    while True: torch.relu(x)\nthreading.Thread(target=run).start()",
    "exceptions swallowed": f"{SEEN}while True:\n    try: raise ValueError\n    except BaseException: pass\n    finally: 1",
    "signals handled and blocked": (
        f"{SEEN}import signal\nfor number in signal.valid_signals():\n"
        "    try: signal.signal(number, lambda *_: None)\n    except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "while True: signal.sigwait(signal.valid_signals())"
    ),
    "stuck stdout": (
        f"{SEEN}import sys, time\nclass Stuck:\n    closed = False\n    def write(self, _): pass\n"
        "    def flush(self):\n        while True: time.sleep(1)\nsys.stdout = Stuck()\nwhile True: pass"
    ),
}


@pytest.mark.slow  # each waits for its time limit
@pytest.mark.parametrize("text", STOPPED.values(), ids=STOPPED)
def test_what_never_ends_is_stopped_with_what_was_seen(tmp_path: Path, text: str) -> None:
    checked = run_hostile(tmp_path, text, settings={"timeout": 20.0})
    assert message_of(checked).startswith("it was stopped after 20 s, which is the time limit, before its first")
    assert requested(checked) is not None
    assert requested(checked) >= 1 << 22  # type: ignore[operator]
    assert exit_status(checked.report) == 2


@pytest.mark.slow
def test_what_no_signal_reaches_is_killed(tmp_path: Path) -> None:
    checked = run_hostile(tmp_path, f"{SEEN}import itertools\nmax(itertools.count())", settings={"timeout": 20.0})
    assert message_of(checked).startswith("no answer within 20 s")
    assert "__main__" not in message_of(checked)
    assert exit_status(checked.report) == 2


@pytest.mark.slow  # waits for its time limit, and for the script to take notice
def test_what_blocks_all_signals_is_killed_soon_after_its_limit(tmp_path: Path) -> None:
    text = f"""{SEEN}
import ctypes
everything = (ctypes.c_ulong * 16)(*([2**64 - 1] * 16))
ctypes.CDLL(None).sigprocmask(0, everything, None)
import itertools
max(itertools.count())
"""
    began = time.monotonic()
    checked = run_hostile(tmp_path, text, settings={"timeout": 15.0})
    assert message_of(checked).startswith("no answer within 15 s")
    assert time.monotonic() - began < 15 + 30  # it was asked for that long before
    assert exit_status(checked.report) == 2


REPLACED = {
    "a pipe": "os.mkfifo(file)",
    "a folder": "os.mkdir(file)",
    "a loop of links": "os.symlink(file, file)",
    "3 GiB of zeros": "os.truncate(os.open(file, os.O_CREAT | os.O_RDWR), 3 << 30)",
}
REPLACING = """
import os
folder = os.path.dirname(os.path.dirname(os.environ["TMPDIR"]))
for name in ("reply.json", "partial.json", "stdout.txt", "stderr.txt", "ending.txt", "stack.txt", "marks.txt"):
    file = os.path.join(folder, name)
    if os.path.exists(file): os.unlink(file)
    {by}
"""


@pytest.mark.parametrize("by", REPLACED.values(), ids=REPLACED)
def test_a_script_does_not_shape_the_exchange(tmp_path: Path, by: str) -> None:
    checked = run_hostile(tmp_path, TRAINING + REPLACING.format(by=by) + "while True: step()")
    assert message_of(checked) == ""
    assert exit_status(checked.report) == 0


@pytest.mark.slow  # each waits for its time limit
@pytest.mark.parametrize("by", REPLACED.values(), ids=REPLACED)
def test_a_script_that_hangs_beside_a_replaced_exchange_is_stopped_with_what_was_seen(tmp_path: Path, by: str) -> None:
    checked = run_hostile(tmp_path, SEEN + REPLACING.format(by=by) + "while True: pass", settings={"timeout": 15.0})
    assert message_of(checked).startswith("it was stopped after 15 s, which is the time limit")
    assert requested(checked) == 1 << 22


def test_output_into_a_file_that_is_gone_is_stopped(tmp_path: Path) -> None:
    printing = "import time\nfor _ in range(400):\n    print('x' * 2**20, flush=True)\n    time.sleep(0.01)  # it is looked at\n"
    text = REPLACING.format(by="pass") + printing
    checked = run_hostile(tmp_path, SEEN + text)
    assert message_of(checked).startswith("it was stopped because it wrote more than 64.0 MiB")


LEFT_BEHIND = {
    "a folder of 6,000 levels": (
        "import sys\nsubprocess.run([sys.executable, '-c', "
        '\'import os\\nfor _ in range(6000): os.mkdir("d"); os.chdir("d")\'], check=True)'
    ),
    "a file that nobody may change": "open('f', 'w').close(); subprocess.run(['chattr', '+i', 'f'])",
    "a folder that nobody may change": "os.mkdir('d'); open('d/f', 'w').close(); subprocess.run(['chattr', '+i', 'd'])",
    "a file that only grows": "open('f', 'w').close(); subprocess.run(['chattr', '+a', 'f'])",
    "a folder without rights": "os.mkdir('d'); open('d/f', 'w').close(); os.chmod('d', 0)",
}


@pytest.mark.parametrize("text", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_whatever_is_in_the_scratch_folder_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    text = f"import os, subprocess\nos.chdir(os.environ['TMPDIR'])\n{text}\nos.chdir('/')\nwhile True: step()"
    checked = run_hostile(tmp_path, TRAINING + text)
    assert message_of(checked) == ""
    assert list(temporary.iterdir()) == []


KEPT = {
    "an endless loop in C": ("import itertools; max(itertools.count())", 20.0, "no answer within 20 s"),
    "a crash": (
        "import ctypes; time.sleep(5); ctypes.string_at(0)",
        100.0,
        "the code crashed with a segmentation fault",
    ),
}


@pytest.mark.slow
def test_a_script_that_loads_too_much_says_how_to_allow_more(tmp_path: Path) -> None:
    text = """
        import time
        held = [bytearray(b"x") * 2**20 for _ in range(1100)]
        time.sleep(100)
    """
    (workload,) = run_text(tmp_path, text, settings={"memory_limit": 2**30}).report.workloads
    assert workload.error is not None
    assert workload.error.message.startswith("it was stopped because it took more than 1.00 GiB of host memory")
    assert workload.error.hint == "Let it load less, or allow more with --memory-limit SIZE."


@pytest.mark.slow  # waits for a time limit
@pytest.mark.parametrize(("text", "seconds", "reason"), KEPT.values(), ids=KEPT)
def test_steps_that_were_seen_are_told_though_nothing_reaches_the_script(
    tmp_path: Path, text: str, seconds: float, reason: str
) -> None:
    steps = "import time\nstep()\ntime.sleep(2.5)\nstep()\n"
    checked = run_hostile(tmp_path, f"{TRAINING}{steps}{text}", steps=9, settings={"timeout": seconds})
    assert message_of(checked).startswith(reason)
    (workload,) = checked.report.workloads
    assert workload.script is not None
    assert workload.script.steps == 2
    assert requested(checked) is not None
    assert requested(checked) >= 2 * 512 * 512 * 4  # type: ignore[operator]  # a weight and its gradient
    assert exit_status(checked.report) == 2


PROCESSES_LEFT = """
import os, subprocess, time
subprocess.Popen(["sleep", "100000"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(10 ** 6)
    os._exit(0)
"""

ENDED = {
    "_exit": ("from os import _exit; _exit(3)", "the script ended its process with os._exit(3)"),
    "_exit in a thread": (
        "import os, threading, time\nthreading.Thread(target=os._exit, args=(3,)).start(); time.sleep(1000)",
        "the script ended its process with os._exit(3)",
    ),
    "abort": ("import os; os.abort()", "the script ended its process with os.abort()"),
    "kill": ("import os; os.kill(os.getpid(), 9)", "the script ended its process with SIGKILL"),
    "exec": ("import os; os.execlp('true', 'true')", "the script ended its process with os.execv"),
    "exit": ("import sys; sys.exit(0)", "the script called sys.exit(), and no model was called"),
    "exit with a text": ("import sys; sys.exit('no data')", "the script called sys.exit('no data')"),
    "nothing": ("", "the script ran to its end, and no model was called"),
    "stdin": ("next(__import__('sys').stdin)", "the script raised StopIteration"),
    "recursion": ("def deeper(): deeper()\ndeeper()", "the script raised RecursionError"),
    "closed streams": (
        "import os, sys\nsys.stdout.close(); sys.stderr.close(); os.closerange(0, 21)\nraise ValueError('closed')",
        "the script raised ValueError: closed",
    ),
    "no streams": (
        "import sys\nsys.stdout = sys.stderr = None\nraise ValueError('none')",
        "the script raised ValueError",
    ),
    "builtins": (
        "import builtins\nfor x in list(vars(builtins)):\n    if x != 'delattr': delattr(builtins, x)\n''.gone",
        "the script raised AttributeError",
    ),
    "modules": (
        "import sys\nsys.path.clear(); sys.meta_path.clear(); sys.modules.clear()",
        "the script ran to its end",
    ),
    "recursion limit": ("import sys\nsys.setrecursionlimit(80)\nraise ValueError('shallow')", "the script raised"),
    "traced": (
        "import sys\ndef trace(*_):\n    return trace\nsys.settrace(trace); sys.setprofile(trace)\nraise ValueError('seen')",
        "the script raised ValueError: seen",
    ),
    "exit handler": ("import atexit, time\natexit.register(time.sleep, 10 ** 6)", "the script ran to its end"),
    "processes left": (
        PROCESSES_LEFT,
        "the script ran to its end",
    ),
    "all children awaited": (
        "import os\nif os.fork() == 0: os._exit(7)\nprint(os.wait())",
        "the script ran to its end",
    ),
    "folder left": (
        "import os, tempfile\nos.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())",
        "the script ran to its",
    ),
}


@pytest.mark.parametrize(("text", "reason"), ENDED.values(), ids=ENDED)
def test_a_script_that_ends_without_a_step_says_why(tmp_path: Path, text: str, reason: str) -> None:
    checked = run_hostile(tmp_path, SEEN + text)
    assert message_of(checked).startswith(reason)
    assert requested(checked) == 1 << 22
    assert exit_status(checked.report) == 2


NOTHING_SEEN = {
    "empty": ("", "the script ran to its end, and no model was called"),
    "syntax": ("def broken(:\n", "is not valid Python: invalid syntax (line 1)"),
    "binary": ("\0\1\2", "is not valid Python: "),
    "crash": ("import posix; posix.kill(posix.getpid(), 11)", "the script ended its process with SIGSEGV"),
}


@pytest.mark.parametrize(("text", "reason"), NOTHING_SEEN.values(), ids=NOTHING_SEEN)
def test_what_cannot_run_says_so(tmp_path: Path, text: str, reason: str) -> None:
    checked = run_hostile(tmp_path, text)
    assert message_of(checked).startswith(reason)
    assert exit_status(checked.report) == 2


TRAINS = {
    "swallowed": "while True:\n    try: step()\n    except BaseException: pass",
    "in a thread": "import threading\ndef run():\n    while True: step()\nthreading.Thread(target=run).start()",
    "in a deep stack": (
        "import sys\nsys.setrecursionlimit(400)\ndef deeper(n):\n    if n: return deeper(n - 1)\n    while True: step()\n"
        "deeper(250)"
    ),
    "with a timer": (
        "import signal\ndef fail(*_): step\nsignal.signal(signal.SIGALRM, fail)\n"
        "step()\nsignal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "while True:\n    try: step()\n    except ValueError: pass"
    ),
    "with a signal in the backward": (
        "import signal\ndef fail(*_):\n    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n    raise ValueError\n"
        "signal.signal(signal.SIGALRM, fail)\n"
        "model.weight.register_hook(lambda _: signal.raise_signal(signal.SIGALRM))\n"
        "try: step()\nexcept ValueError: print('raised')\nelse: raise AssertionError\n"
        "while True: step()"
    ),
    "with patched classes": (
        "call, took = torch.nn.Module.__call__, torch.optim.SGD.step\n"
        "torch.nn.Module.__call__ = lambda self, *args: call(self, *args)\n"
        "torch.optim.SGD.step = lambda self: took(self)\nwhile True: step()"
    ),
    "with warnings for errors": "import warnings\nwarnings.simplefilter('error')\nwhile True: step()",
    "with children": (
        "import multiprocessing, subprocess, sys\n"
        "def work(queue): queue.put(3)\n"
        "context = multiprocessing.get_context('fork')\nqueue = context.Queue()\n"
        "process = context.Process(target=work, args=(queue,)); process.start()\n"
        "assert queue.get(timeout=60) == 3\nprocess.join(); assert process.exitcode == 0\n"
        "assert subprocess.run([sys.executable, '-c', 'import sys; sys.exit(4)']).returncode == 4\nwhile True: step()"
    ),
}


@pytest.mark.parametrize("text", TRAINS.values(), ids=TRAINS)
def test_training_in_odd_ways_is_training(tmp_path: Path, text: str) -> None:
    checked = run_hostile(tmp_path, TRAINING + text)
    assert message_of(checked) == ""
    (workload,) = checked.report.workloads
    assert workload.script is not None
    assert workload.script.ending == "2 steps were taken"
    assert exit_status(checked.report) == 0


@pytest.mark.slow
def test_two_hundred_steps_are_taken_under_a_timer_of_milliseconds(tmp_path: Path) -> None:
    text = """
import signal
fired = 0
def count(*_):
    global fired
    fired += 1
signal.signal(signal.SIGALRM, count)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while True:
    step()
    print(fired, flush=True)
"""
    checked = run_hostile(tmp_path, TRAINING + text, steps=200)
    assert message_of(checked) == ""
    (workload,) = checked.report.workloads
    assert workload.script is not None
    assert workload.script.steps == 200
    assert len(set(workload.script.step_peaks[1:])) == 1
    assert int(stdout_of(checked).split()[-1]) > 100


@pytest.mark.slow
def test_a_handler_that_raises_every_other_millisecond_ends_no_run(tmp_path: Path) -> None:
    text = """
import signal
class Stop(Exception): pass
raises = False
def stop(_number, _frame):
    global raises
    if raises:
        raises = False
        raise Stop
signal.signal(signal.SIGALRM, stop)
step()
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
while True:
    try:
        raises = True
        model(torch.randn(4, 512, device="cuda")).sum().backward()
        raises = False
        optimizer.step()  # what interrupts PyTorch's own no_grad here leaves gradients off, on a GPU as well
    except Stop:
        print("stopped", flush=True)
"""
    checked = run_hostile(tmp_path, TRAINING + text, steps=100)
    assert message_of(checked) == ""
    assert stdout_of(checked).split().count("stopped") > 10


def test_processes_that_import_the_script_again_are_left_alone(tmp_path: Path) -> None:
    text = f"""
        import multiprocessing
        if __name__ == "__main__":
            {textwrap.indent(TRAINING, " " * 12).strip()}
            process = multiprocessing.get_context("spawn").Process(target=print, args=("spawned",))
            process.start()
            process.join()
            assert process.exitcode == 0
            while True: step()
    """
    assert message_of(run_hostile(tmp_path, text)) == ""


def test_writes_everywhere_change_nothing(tmp_path: Path) -> None:
    text = f"""
        import os, pathlib, shutil, subprocess, sys
        folder, other = pathlib.Path(__file__).parent, pathlib.Path(sys.argv[1])
        for place in (folder, other):
            (place / "deep" / "data.bin").write_bytes(b"changed")
            (place / "deep" / "link").unlink()
            (place / "new").mkdir()
            (place / "deep" / "deeper").rename(place / "moved")
            with open(place / "deep" / "data.bin", "r+b") as file:
                file.truncate(3)
            os.chmod(place / "deep" / "data.bin", 0o777)
            subprocess.run(["sh", "-c", f"rm -rf {{place}}; echo x > {{place}}/shell"], check=False)
            shutil.rmtree(place)
            assert not place.exists()
        shutil.rmtree({str(tmp_path)!r}, ignore_errors=True)
        {textwrap.indent(TRAINING, " " * 8).strip()}
        while True: step()
    """
    checked = run_hostile(tmp_path, text, str(tmp_path / "other"))
    assert message_of(checked) == ""
    (workload,) = checked.report.workloads
    assert workload.script is not None
    assert str(tmp_path / "other" / "deep" / "data.bin") in {each.file for each in workload.script.writes}


@pytest.mark.parametrize("seconds", [0, 1])
def test_removing_the_folder_of_the_run_itself_does_not_end_it(tmp_path: Path, seconds: float) -> None:
    text = f"""
        import os, shutil, time
        folder = os.path.dirname(os.path.dirname(os.environ["TMPDIR"]))
        assert os.path.basename(folder).startswith("memlint-")
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep({seconds})
    """
    checked = run_hostile(tmp_path, SEEN + textwrap.dedent(text))
    assert "the script ran to its end" in message_of(checked)
    assert exit_status(checked.report) == 2


def test_huge_output_is_stopped(tmp_path: Path) -> None:
    checked = run_hostile(tmp_path, f"{SEEN}while True: print('x' * 10 ** 6)")
    assert message_of(checked).startswith("it was stopped because it wrote more than 64.0 MiB")
    assert requested(checked) == 1 << 22


def test_huge_host_memory_says_how_to_allow_more(tmp_path: Path) -> None:
    checked = run_hostile(tmp_path, f"{SEEN}y = bytearray(1 << 40)", settings={"memory_limit": 4 << 30})
    assert "MemoryError" in message_of(checked)
    assert "--memory-limit" in message_of(checked)


def test_a_script_may_call_memlint(tmp_path: Path) -> None:
    text = f"""
        {textwrap.indent(TRAINING, " " * 8).strip()}
        import subprocess, sys
        nested = subprocess.run([sys.executable, "-m", "memlint", "run", sys.argv[1]], capture_output=True, text=True)
        assert nested.returncode == 2, nested.stderr
        assert "the script ran to its end" in nested.stdout + nested.stderr
        while True: step()
    """
    nested = tmp_path / "nested.py"
    nested.write_text("import torch\n")
    assert message_of(run_hostile(tmp_path, text, str(nested))) == ""


@pytest.mark.parametrize("name", ["with space.py", "new\nline.py", "-dash.py", "no_suffix"])
def test_any_name_is_a_script(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, TRAINING + "while True: step()\n", name)
    checked = run_script(file)
    assert message_of(checked) == ""
    checked.report.model_dump_json()


def test_a_script_may_signal_its_own_processes_alone() -> None:
    own = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert is_own(own.pid, os.getpid())
        assert is_own(os.getpid(), os.getpid())
        assert is_own(0, os.getpid())  # its process group, which is one of its own
        for foreign in (-1, 1, os.getppid()):
            assert not is_own(foreign, os.getpid())
            assert not is_own(foreign, own.pid)
        assert not is_own(os.getpid(), own.pid)
    finally:
        own.communicate()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.py")
    for path, problem in (
        (tmp_path, "is not a file"),
        (tmp_path / "fifo.py", "is not a file"),
        (tmp_path / "x", "does"),
    ):
        with pytest.raises(TargetError, match=problem):
            run_script(path)


def test_a_notebook_is_not_run_as_if_it_was_python(tmp_path: Path) -> None:
    file = tmp_path / "train.ipynb"
    file.write_text('{"nothing": []}')  # which Python takes for a program
    with pytest.raises(TargetError, match=r"train\.ipynb is not a notebook") as caught:
        run_script(file)
    assert caught.value.hint == "Open it in Jupyter and save it again."


def test_arguments_belong_to_the_script(tmp_path: Path) -> None:
    file = write(tmp_path, "import sys; print('seen', sys.argv[1:])\n")
    command = [sys.executable, "-m", "memlint", "run", "-v", "--", str(file), "--steps", "x", "-m", "--", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "seen ['--steps', 'x', '-m', '--', '--help']" in done.stderr
    assert done.returncode == 2
    done = subprocess.run([*command[:4], "--stepz", "3", str(file)], capture_output=True, text=True, check=False)
    assert "--stepz" in done.stderr
    assert "--steps" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
