"""Full disks, systems without /proc, names that are not UTF-8, output that a terminal would obey: one clear message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memlint.cli.printing import print_outputs
from memlint.commands.report import _is_report

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these limits are Linux's")

MODEL = "import torch\n\ndef workload():\n    return torch.nn.Linear(8, 8), torch.zeros(2, 8)\n"
FULL = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
"""No file may have a single byte, as on a full disk."""
NO_PROC = (
    "import pathlib, runpy, sys; exists = pathlib.Path.exists; pathlib.Path.exists = lambda path, **kw: "
    "not str(path).startswith('/proc') and exists(path, **kw); "
)
RUN = "sys.argv[0] = 'memlint'; runpy.run_module('memlint', run_name='__main__', alter_sys=True)"


def memlint(project: Path, before: str, *arguments: str | bytes) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", before + RUN, *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "memlint.toml").touch()
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(MODEL)
    return tmp_path


@pytest.mark.parametrize("arguments", [("rules",), ("check", "model.py", "--no-exec")], ids=" ".join)
def test_what_writes_nothing_needs_no_place_for_temporary_files(project: Path, arguments: tuple[str, ...]) -> None:
    done = memlint(project, FULL, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("check", "model.py"), ("run", "train.py")], ids=" ".join)
def test_on_a_full_disk_nothing_is_taken_for_a_finding(project: Path, arguments: tuple[str, ...]) -> None:
    done = memlint(project, FULL, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "no temporary file can be written" in done.stderr
    assert "TMPDIR=" in done.stderr


@pytest.mark.parametrize("arguments", [("check", "model.py"), ("run", "train.py")], ids=" ".join)
def test_without_proc_nothing_is_run_and_that_is_said(project: Path, arguments: tuple[str, ...]) -> None:
    done = memlint(project, NO_PROC, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "there is no /proc" in done.stderr
    assert "--no-exec" in done.stderr


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("name", [b"b\xffd.py", b"b\xffd/model.py"])
def test_a_name_that_is_not_utf_8_is_one_message(project: Path, command: str, name: bytes) -> None:
    file = project / os.fsdecode(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text(MODEL)
    done = memlint(project, "import runpy, sys; ", command, name)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "is not UTF-8" in done.stderr + done.stdout


def test_what_a_script_prints_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    written = "\x1b]0;title\x07\n::error::mine\n\u202eolleh\n##[error]mine\n 1%\r99%\r\n\tplain é\n"
    print_outputs([("train.py", written, "")])
    shown = capsys.readouterr().err
    assert shown.isascii() or shown.replace("é", "").isascii()
    assert not any(character in shown for character in "\x1b\x07\r\u202e")
    lines = shown.splitlines()
    assert lines[1:] == [
        "\\x1b]0;title\\x07",
        "\\x3a:error::mine",
        "\\u202eolleh",
        "#\\x23[error]mine",
        "99%",
        "        plain é",
    ]


def test_a_file_that_is_dated_in_the_future_is_kept_in_the_cache(tmp_path: Path) -> None:
    watched = """
import os, sys, time
from pathlib import Path
from memlint.worker.dependencies import Watch
file, other = map(Path, sys.argv[1:3])
watch = Watch(Path("/nowhere"))
file.read_text()
print(str(file) in watch.dependencies().files)
other.read_text()
time.sleep(0.1)
os.utime(other, (1, 1))
print(watch.dependencies())
"""
    for name in ("file", "other"):
        (tmp_path / name).write_text("x")
    os.utime(tmp_path / "file", (2**32, 2**32))
    command = [sys.executable, "-c", watched, str(tmp_path / "file"), str(tmp_path / "other")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "None"]  # and one that is changed meanwhile is not, whatever its date


@pytest.mark.parametrize("content", ["{}", '{"model_type": "gpt2"}', '{"architectures": ["GPT2LMHeadModel"]}'])
def test_what_is_in_a_file_does_not_decide_that_anything_is_run(tmp_path: Path, content: str) -> None:
    (tmp_path / "report.json").write_text(content)
    (tmp_path / "config.json").write_text(content)
    assert _is_report(str(tmp_path / "report.json"))
    assert not _is_report(str(tmp_path / "config.json"))
