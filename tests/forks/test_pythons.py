"""A copy of the template is to its program what a new Python is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.usefixtures("copied_pythons"),
    pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux alone"),
]

TELL = """
import json, os, sys, time
said = {
    "argv": sys.argv, "path": sys.path[0], "folder": os.getcwd(), "variable": os.environ.get("TEST_VARIABLE"),
    "parent": os.getppid(), "main": sorted(name for name in vars(sys.modules["__main__"]) if name[0] != "_"),
    "tests": [name for name in sys.modules if name.partition(".")[0] in ("tests", "pytest")], "input": sys.stdin.read(),
    "open": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1], "torch": "torch" in sys.modules,
    "session": os.getsid(0) == os.getpid(), "bytecode": sys.dont_write_bytecode,
}
print(json.dumps(said))
print("problem", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize("kind", ["a text", "a file"])
def test_a_copy_has_what_it_was_started_with(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(TELL)
    program = ["-c", TELL] if kind == "a text" else [str(file)]
    variables = {**os.environ, "TEST_VARIABLE": "é", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *program, "one", "two"], cwd=tmp_path, env=variables, input="words", capture_output=True,
        text=True, check=False, start_new_session=True,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert said.pop("torch"), "it was executed"
    assert (done.returncode, done.stderr) == (3, "problem\n")
    assert said == {
        "argv": [program[0], "one", "two"],
        "path": "" if kind == "a text" else str(tmp_path),
        "folder": str(tmp_path),
        "variable": "é",
        "parent": os.getpid(),
        "main": ["json", "os", "sys", "time"],
        "tests": [],
        "input": "words",
        "open": [0, 1, 2],
        "session": True,
        "bytecode": True,
    }


def test_a_copy_ends_as_a_new_python_does(tmp_path: Path) -> None:
    def ended(program: str) -> tuple[int, list[str]]:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.splitlines()

    assert ended("import atexit, sys; atexit.register(sys.stderr.write, 'bye')") == (0, ["bye"])
    assert ended("import sys; sys.exit('no')") == (1, ["no"])
    assert ended("import os, signal; os.kill(os.getpid(), signal.SIGTERM)") == (-15, [])
    status, lines = ended("1 / 0")
    assert (status, lines[-1], "template" in "".join(lines)) == (1, "ZeroDivisionError: division by zero", False)


def test_copies_share_no_state_and_none_is_left(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        "import sys, torch\nprint(torch.rand(1).item(), hasattr(sys, 'mark'))\nsys.mark = 1"
    )
    before = set(psutil.Process().children(recursive=True))
    command = [sys.executable, "-c", "import other"]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = [subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert said[0] != said[1]
    assert all(each.endswith("False\n") for each in said)
    assert set(psutil.Process().children(recursive=True)) <= before


def test_pipes_that_are_passed_on_keep_their_numbers() -> None:
    reading, writing = os.pipe()
    program = f"import os, sys; assert 'torch' in sys.modules; os.write({writing}, b'here')"
    subprocess.run([sys.executable, "-c", program], pass_fds=(writing,), check=True)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "here"


MODEL = """
import os, sys, torch
with open("seen.txt", "a") as file:
    print(os.getpid(), "tests.forks" in open("/proc/self/cmdline").read(), file=file)
class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 64)
"""


def test_memlint_as_a_command_is_a_copy_and_so_are_its_children(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    command = [sys.executable, "-P", "-m", "memlint", "check", "--no-cache", "model.py"]
    before = set(psutil.Process().children(recursive=True))
    done = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    is_copy = "tests.forks" in " ".join(psutil.Process(done.pid).cmdline())
    said, problems = done.communicate()
    assert is_copy, "it was executed"
    assert (done.returncode, problems) == (0, "")
    assert said.startswith("model.py::Model needs ")
    lines = (tmp_path / "seen.txt").read_text().splitlines()
    assert lines
    assert all(line.endswith("True") for line in lines), "a child of the command was executed"
    assert str(done.pid) not in {line.split()[0] for line in lines}
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.parametrize(
    ("options", "variables"), [(["-W", "ignore"], {}), (["-S"], {}), ([], {"PYTHONUTF8": "1"}), ([], {"LC_ALL": "C"})]
)
def test_what_python_reads_when_it_starts_needs_a_new_one(options: list[str], variables: dict[str, str]) -> None:
    command = [sys.executable, *options, "-c", "import sys; print('torch' in sys.modules)"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_pytorch_sets_once_it_has_compiled_needs_no_new_one(tmp_path: Path) -> None:
    name = "TORCHINDUCTOR_CACHE_DIR"
    command = [sys.executable, "-c", f"import os, sys; print('torch' in sys.modules, os.environ[{name!r}])"]
    done = subprocess.run(command, env={**os.environ, name: str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", str(tmp_path)]
