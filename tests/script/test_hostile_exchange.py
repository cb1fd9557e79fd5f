"""Scripts that put something else in the place of the files by which memlint speaks with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memlint.base.temporary import exchange_folder
from memlint.commands.exit_status import exit_status
from memlint.worker.child import PARTIAL, REASON, REPLY, STDOUT
from tests.script.running import run_text

if TYPE_CHECKING:
    from memlint.commands.check.check import Checked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what files may be is told for Linux")

BEGIN = """
import os, shutil, time, torch
x = torch.zeros(1 << 20, device="cuda")
folder = os.path.dirname(os.path.dirname(os.environ["TMPDIR"]))
def put(name):
    place = os.path.join(folder, name)
    try: os.unlink(place)
    except OSError: shutil.rmtree(place, ignore_errors=True)
    return place
"""
SHAPES = {
    "fifo": "os.mkfifo(put({name!r}))",
    "folder": "os.mkdir(put({name!r}))\nopen(os.path.join(folder, {name!r}, 'inside'), 'w').close()",
    "loop of links": "os.symlink({name!r}, put({name!r}))",
    "zeros": "with open(put({name!r}), 'wb') as file: file.truncate(3 << 30)",
}


def only(checked: Checked) -> tuple[str, str]:
    """The message and the hint of the only Workload."""
    (workload,) = checked.report.workloads
    assert workload.error is not None
    return workload.error.message, workload.error.hint


@pytest.mark.slow  # sixteen scripts
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [REPLY, PARTIAL, STDOUT, REASON])
def test_whatever_stands_there_the_answer_is_the_usual_one(tmp_path: Path, name: str, shape: str) -> None:
    text = BEGIN + SHAPES[shape].format(name=name)
    checked = run_text(tmp_path, f"{text}\ntime.sleep(0.5)\n", settings={"timeout": 100.0})
    assert only(checked)[0] == "the script ran to its end, and no model was called on the GPU"
    assert exit_status(checked.report) == 2


@pytest.mark.slow  # waits for a time limit
@pytest.mark.parametrize("shape", SHAPES)
def test_a_script_that_never_ends_is_stopped_though_it_shapes_the_reason(tmp_path: Path, shape: str) -> None:
    text = BEGIN + SHAPES[shape].format(name=REASON)
    message, _hint = only(run_text(tmp_path, f"{text}\nwhile True: pass\n", settings={"timeout": 15.0}))
    assert message.startswith("it was stopped after 15 s")


@pytest.mark.slow  # waits for a time limit
def test_signals_blocked_beyond_python_cost_no_patience(tmp_path: Path) -> None:
    text = """
        import ctypes, torch
        x = torch.zeros(1 << 20, device="cuda")
        mask = (ctypes.c_uint8 * 128)(*[255] * 128)
        ctypes.CDLL(None).pthread_sigmask(0, mask, None)
        while True: pass
    """
    checked = run_text(tmp_path, text, settings={"timeout": 15.0})
    assert only(checked)[0].startswith("no answer within 15 s")
    assert exit_status(checked.report) == 2


def test_output_counts_wherever_its_file_is_by_now(tmp_path: Path) -> None:
    text = BEGIN + "os.unlink(os.path.join(folder, 'stdout.txt'))\nwhile True: os.write(1, b'x' * 2**20)\n"
    checked = run_text(tmp_path, text, settings={"timeout": 100.0})
    assert only(checked)[0].startswith("it was stopped because it wrote more than 64.0 MiB to stdout and stderr")


def test_output_is_shown_though_its_file_was_removed(tmp_path: Path) -> None:
    text = BEGIN + "os.unlink(os.path.join(folder, 'stdout.txt'))\nprint('still here')\n"
    checked = run_text(tmp_path, text, settings={"timeout": 100.0})
    assert checked.outputs[0].stdout == "still here\n"


def test_a_deep_tree_is_removed() -> None:
    with exchange_folder() as name:
        folder = os.getcwd()  # noqa: PTH109
        os.chdir(name)
        try:
            for _level in range(1500):  # deeper than recursion goes, and than a path can tell
                os.mkdir("n" * 8)  # noqa: PTH102
                os.chdir("n" * 8)
        finally:
            os.chdir(folder)
    assert not Path(name).exists()


def test_files_that_may_not_be_changed_are_removed_or_left_without_an_error() -> None:
    with exchange_folder() as name:
        for place in (Path(name, "file"), Path(name, "folder", "file")):
            place.parent.mkdir(exist_ok=True)
            place.write_text("kept")
        flags = [subprocess.run(["chattr", "+i", each], check=False).returncode for each in _immutable(name)]
        (Path(name) / "closed").mkdir(mode=0)
    assert not Path(name).exists(), flags


def _immutable(name: str) -> tuple[Path, ...]:
    return Path(name, "file"), Path(name, "folder", "file"), Path(name, "folder")
