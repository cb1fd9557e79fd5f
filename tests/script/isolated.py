"""A script in a project of its own, run in a process of its own, and everything that became of both."""

import hashlib
import importlib.util
import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip a test where one of these modules is not installed; importing it here would cost more than the test."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


DRIVER = Path(__file__).with_name("driver.py")


@dataclass(frozen=True)
class Ran:
    """What came of a script."""

    stdout: str
    stderr: str
    error: str | None
    """What it raised, if anything."""
    assumptions: dict[str, int | None]
    """What was assumed, with a line."""
    writes: dict[str, tuple[int | None, int | None]]
    """Paths relative to the project: bytes (None for one that is removed), and the line."""
    outside: dict[str, int | None]
    """The same for absolute paths elsewhere, without lines."""
    connections: dict[str, int | None]
    """Hosts, and the line."""
    not_guarded: list[str]
    programs: list[str]
    """Commands."""


def tree(folder: Path) -> dict[str, str]:
    """All that is in a folder: types, modes, contents, targets of links."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = ""
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = (
            f"{status.st_mode:o} {status.st_mtime_ns if path.is_file() else ''} {content}"
        )
    return found


def run(project: Path, script: str, *args: str, kept: bool = False, unchanged: bool = True, **options) -> Ran:
    """Run a script, which is written to train.py in `project`, and hold that it left the project as it was."""
    project.mkdir(exist_ok=True)
    (project / "train.py").write_text(textwrap.dedent(script), encoding="utf-8")
    before = tree(project)
    home = project.with_name(project.name + "-run")
    exchange, scratch = home / "exchange", home / "exchange/scratch"
    exchange.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(exist_ok=True)
    request = {
        "script": str(project / "train.py"),
        "args": args,
        "exchange": str(exchange),
        "scratch": str(scratch),
        "kept": kept,
        **options,
    }
    (exchange / "answer.json").unlink(missing_ok=True)
    command = [sys.executable, str(DRIVER), json.dumps(request)]
    ran = subprocess.run(command, check=False, cwd=project, capture_output=True, text=True, timeout=300)
    assert (exchange / "answer.json").exists(), ran.stdout + ran.stderr
    answer = json.loads((exchange / "answer.json").read_text(encoding="utf-8"))
    if unchanged:
        assert tree(project) == before, ran.stderr
    inside, outside = {}, {}
    for write in answer["writes"]:
        line = write["frame"] and write["frame"][1]
        path = Path(write["path"])
        if path.is_relative_to(project.resolve()):
            inside[str(path.relative_to(project.resolve()))] = (write["nbytes"], line)
        else:
            outside[str(path)] = write["nbytes"]
    return Ran(
        ran.stdout,
        ran.stderr,
        answer["error"],
        dict(reversed(answer["assumptions"])),
        inside,
        outside,
        {each["host"]: each["frame"] and each["frame"][1] for each in answer["connections"]},
        answer["not_guarded"],
        [" ".join(command) for command in answer["programs"]],
    )
