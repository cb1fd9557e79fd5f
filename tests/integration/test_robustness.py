"""Full disks, odd configurations, damaged files and exhausted systems: one clear message, and nothing half done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from memlint.base.errors import TargetError, UsageError
from memlint.base.temporary import exchange_folder
from memlint.base.writing import write_file
from memlint.config import find_settings, override
from memlint.report.reading import parse_report

pytestmark = pytest.mark.usefixtures("copied_pythons")

MODEL = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.memlint]\nsweep = false\n")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def memlint(project: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memlint", *arguments]
    options = {"stdout": subprocess.PIPE, "cwd": project, **options}
    return subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, timeout=120, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize(
    "arguments", [["rules"], ["--help"], ["check", "model.py", "--no-exec", "--output-format", "json"]]
)
def test_a_full_device_is_said_and_is_no_mistake_of_memlint(project: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = memlint(project, *arguments, stdout=full)
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        [
            "error: what is printed cannot be written: No space left on device",
            "  help: Free space there, or write to another place.",
        ],
    )


@pytest.mark.skipif(sys.platform == "win32", reason="resource is of Unix")
def test_a_file_that_does_not_fit_stays_as_it_was(tmp_path: Path) -> None:
    program = """
import resource, signal, sys
from pathlib import Path
from memlint.base.errors import UsageError
from memlint.base.writing import write_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for name in ("old.json", "new.json"):
    try:
        write_file(Path(name), bytes(100_000))
    except UsageError as error:
        print(error.message)
"""
    (tmp_path / "old.json").write_text("old")
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        f"{name} cannot be written: File too large" for name in ("old.json", "new.json")
    ]
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("old.json", "old")]


def test_a_file_is_written_through_links_with_the_mode_it_had(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "real.json").chmod(0o640)
    (tmp_path / "link.json").symlink_to("real.json")
    write_file(tmp_path / "link.json", b"new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"
    assert (tmp_path / "real.json").stat().st_mode & 0o777 == 0o640
    write_file(Path(os.devnull), b"new")
    assert not Path(os.devnull).is_file()


def test_an_output_file_in_a_folder_that_is_not_there_is_an_error(project: Path) -> None:
    done = memlint(project, "check", "model.py", "--no-exec", "--output-format", "json", "-o", "nowhere/report.json")
    assert done.returncode == 2
    assert "nowhere/report.json cannot be written: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tool = 3", "tool is not a table (got 3)"),
        ('[tool]\nmemlint = "x"', "tool.memlint is not a table (got 'x')"),
        ("a = " + "[" * 3000 + "]" * 3000, "too many brackets"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(UsageError) as caught:
        find_settings(tmp_path)
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["pyproject.toml", "memlint.toml"])
def test_a_configuration_that_is_no_file_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder" / name).mkdir(parents=True)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / name)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / name).symlink_to("nowhere")
    for place in ("folder", "pipe", "link"):
        with pytest.raises(UsageError, match=f"{name} is not a file"):
            find_settings(tmp_path / place)


def test_a_pyproject_of_other_tools_is_passed_over(tmp_path: Path) -> None:
    for content in ("", "[tool.ruff]\nline-length = 100\n", "[project]\nname = 'x'\n"):
        (tmp_path / "pyproject.toml").write_text(content)
        assert find_settings(tmp_path)[0].batch is None


@pytest.mark.parametrize("argument", ["", " ", "::Net"])
def test_an_argument_that_names_nothing_is_an_error(project: Path, argument: str) -> None:
    done = memlint(project, "check", argument)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {argument!r} names no file" in done.stderr


@pytest.mark.parametrize(
    ("command", "message"), [("run", "error: '' is not a file"), ("diff", "error: '' names nothing")]
)
def test_an_empty_argument_stands_for_nothing(project: Path, command: str, message: str) -> None:
    done = memlint(project, command, "")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize("batch", [2**31, 10**23])
def test_a_batch_that_no_tensor_can_have_is_refused(tmp_path: Path, batch: int) -> None:
    with pytest.raises(UsageError, match="--batch: input should be less than or equal to 2147483647"):
        override(find_settings(tmp_path)[0], batch=batch)


def test_rules_have_their_pages_without_docstrings(project: Path) -> None:
    environment = {**os.environ, "PYTHONOPTIMIZE": "2"}
    plain, optimized = (memlint(project, "rule", "MEM301", env=env) for env in (None, environment))
    assert "## What it does" in plain.stdout
    assert plain.stdout == optimized.stdout
    assert memlint(project, "check", "model.py", "--no-exec", env=environment).returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="the current directory cannot be removed")
def test_a_working_directory_that_was_removed_is_named(project: Path) -> None:
    (project / "gone").mkdir()
    command = f'cd gone && rmdir ../gone && "{sys.executable}" -m memlint check ../model.py'
    done = subprocess.run(command, check=False, shell=True, cwd=project, capture_output=True, text=True)
    assert done.returncode == 2
    assert "error: the working directory does not exist any more" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="ulimit is of Unix")
def test_too_few_open_files_are_named(project: Path) -> None:
    command = f'ulimit -n 7; exec "{sys.executable}" -m memlint check model.py --no-cache'
    done = subprocess.run(["bash", "-c", command], check=False, cwd=project, capture_output=True, text=True)
    assert done.returncode == 2
    assert "help: Allow more open files" in done.stderr
    assert "mistake in memlint" not in done.stderr


UNPRINTABLE = (
    MODEL
    + """
class UnprintableError(Exception):
    def __str__(self):
        raise ValueError

class Net(Net):
    def forward(self, x):
        raise UnprintableError
"""
)
DEEP = MODEL.replace(
    "nn.Linear(16, 16)",
    "nn.Linear(16, 16)\n        for _ in range(3000):\n            self.layer = nn.Sequential(self.layer)",
)


def test_an_exception_that_cannot_be_shown_is_the_users(project: Path) -> None:
    (project / "model.py").write_text(UNPRINTABLE)
    done = memlint(project, "check", "model.py::Net", "--no-cache")
    assert done.returncode == 2
    assert "UnprintableError: its message raises ValueError" in done.stdout
    at_import = UNPRINTABLE.replace("(Exception)", "(BaseException)").replace(
        "raise ValueError", "raise KeyboardInterrupt"
    )
    (project / "model.py").write_text(f"{at_import}\nraise UnprintableError\n")
    done = memlint(project, "check", "model.py::Net", "--no-cache")
    assert done.returncode == 2
    assert "UnprintableError: " in done.stdout
    assert "os._exit" not in done.stdout


@pytest.mark.usefixtures("executed_pythons")
@pytest.mark.parametrize("command", ["check", "run"])
def test_a_pytorch_that_cannot_be_imported_is_named(project: Path, command: str) -> None:
    broken = project / "packages" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libtorch_cuda.so: undefined symbol: ncclCommResume')\n")
    done = memlint(project, command, "model.py", env={**os.environ, "PYTHONPATH": str(broken.parent)})
    assert done.returncode == 2
    assert "PyTorch cannot be imported: ImportError: libtorch_cuda.so: undefined symbol: ncclCommResume" in done.stdout
    assert "python -c 'import torch'" in done.stdout


def test_modules_that_are_nested_too_deep_are_the_users(project: Path) -> None:
    (project / "model.py").write_text(DEEP)
    done = memlint(project, "check", "model.py", "--no-cache")
    assert done.returncode == 2
    assert "nested deeper than Python follows" in done.stdout
    assert "mistake in memlint" not in done.stdout


@pytest.mark.parametrize("version", [True, None, 1.0])
def test_a_report_without_a_version_is_refused(version: object) -> None:
    document = {"version": version, "tool": "memlint 0.1.0", "workloads": [], "findings": [], "skipped": []}
    with pytest.raises(TargetError, match="it says no version of the format"):
        parse_report(json.dumps(document).encode(), "report.json")
    del document["version"]
    with pytest.raises(TargetError, match="it says no version of the format"):
        parse_report(json.dumps(document).encode(), "report.json")


def test_a_damaged_cache_is_none(project: Path) -> None:
    first = memlint(project, "check", "model.py")
    entries = [*(project / ".memlint_cache").rglob("*.json")]
    assert entries
    for entry in entries:
        entry.write_text("[" * 100_000)
    again = memlint(project, "check", "model.py")
    assert (again.returncode, again.stdout, again.stderr) == (first.returncode, first.stdout, first.stderr)


def test_folders_that_killed_processes_left_are_removed_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with exchange_folder() as name:
        prefix = Path(name).name[:-8]
    old = time.time() - 25 * 3600
    for left, at in (("old", old), ("working", old), ("new", time.time())):
        (tmp_path / f"{prefix}{left}" / "inner").mkdir(parents=True)
        (tmp_path / f"{prefix}{left}" / "inner" / "reply.json").touch()
        for file in (*(tmp_path / f"{prefix}{left}").rglob("*"), tmp_path / f"{prefix}{left}"):
            os.utime(file, (at, at))
    os.utime(tmp_path / f"{prefix}working" / "inner" / "reply.json")
    (tmp_path / "memlint-of-the-user").mkdir()
    os.utime(tmp_path / "memlint-of-the-user", (old, old))
    (tmp_path / f"{prefix}link").symlink_to(tmp_path / "memlint-of-the-user")
    with exchange_folder() as name:
        assert {file.name for file in tmp_path.iterdir()} == {
            *(f"{prefix}{left}" for left in ("working", "new", "link")),
            *("memlint-of-the-user", Path(name).name),
        }
