"""Answers of children that are kept: when they are given again, when not, and what cannot break them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from memlint.base import cache as cachedir
from memlint.cli import main
from memlint.config import Settings
from memlint.worker import capture_store as answers
from memlint.worker import parallel, server_client
from memlint.worker.parallel import answers_to
from memlint.worker.protocol import Answer, Dependencies, Limits, Request, Result, Task
from memlint.worker.supervise import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ANALYSE = """
import json, os, runpy
from memlint.report.model import Skipped
from memlint.worker.protocol import Result

def analyse(request):
    said = runpy.run_path(request.path).get("said", "")
    return Result(torch="0.0", skipped=[Skipped(reason=json.dumps(said))])
"""


class Project:
    """A directory with a program in it, which says what the worker answers."""

    def __init__(self, directory: Path, way: str) -> None:
        self.directory = directory
        self.way = way
        (directory / "fake_analyse.py").write_text(ANALYSE)
        old = time.time_ns() - 10**10
        self.old = (old, old)

    def write(self, name: str, text: str) -> None:
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, ns=self.old)

    def request(self, **settings: object) -> Request:
        path = str(self.directory / "model.py")
        return Request(
            target="model.py", path=path, root=str(self.directory), settings=Settings.model_validate(settings)
        )

    def answer(self, request: Request | None = None) -> tuple[object, bool]:
        """What the program says, and whether that was known without running it."""
        request = request or self.request()
        known = answers.read(request)
        answer = known or self._ask(request)
        if known is None:
            answers.write(request, answer)
        assert answer.error is None, answer.error
        assert answer.result is not None
        return json.loads(answer.result.skipped[0].reason), known is not None

    def _ask(self, request: Request) -> Answer:
        task = Task(request, Limits(seconds=60), "fake_analyse:analyse")
        if self.way == "copy":
            ((_number, answer),) = server_client.answers([task], 1, lambda _task, _seconds: None)
            return answer
        return ask(task.request, task.limits, analyse=task.analyse)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Project:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")]))))
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path, getattr(request, "param", "python"))


both_ways = pytest.mark.parametrize(
    "project",
    [
        "python",
        pytest.param(
            "copy",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(sys.platform != "linux", reason="there is a server on Linux only"),
            ],
        ),
    ],
    indirect=True,
)
"""Asked of a Python of its own, and of a copy of a server."""


def test_what_has_not_changed_is_not_run_again(project: Project) -> None:
    project.write("model.py", "print('hello')\nsaid = 1")
    assert project.answer() == (1, False)
    assert project.answer() == (1, True)
    known = answers.read(project.request())
    assert known is not None
    assert known.stdout == "hello\n"


def test_another_request_is_another_answer(project: Project) -> None:
    project.write("model.py", "said = 1")
    project.answer()
    assert project.answer(project.request(batch=4)) == (1, False)
    assert project.answer(project.request(batch=4)) == (1, True)
    assert project.answer() == (1, True)


@both_ways
@pytest.mark.parametrize(
    "program",
    [
        "said = 1",
        "import helper; said = helper.WIDTH",
        "import json; said = json.load(open('config.json'))['width']",
        "import pathlib; said = pathlib.Path('config.json').read_text()",
        "try:\n    said = open('new.txt').read()\nexcept FileNotFoundError:\n    said = 'none'",
        "import os; said = os.environ.get('WIDTH', '1')",
        "import os; said = 'WIDTH' in os.environ",
        "import os; said = sorted(os.environ.items()) != []",
        "import pkg; said = pkg.WIDTH",
    ],
    ids=["itself", "import", "open", "path", "absent", "variable", "whether_set", "all_variables", "package"],
)
def test_what_the_program_looked_at_counts(
    project: Project, program: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    site = project.directory / "site-packages"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), os.environ["PYTHONPATH"])))
    project.write("model.py", program)
    project.write("helper.py", "WIDTH = 1\n")
    project.write("config.json", '{"width": 1}')
    project.write("site-packages/pkg/__init__.py", "WIDTH = 1\n")
    first = project.answer()
    assert first == (first[0], False)
    assert project.answer() == (first[0], True)
    name = next(part for part in request.node.callspec.id.split("-") if part not in ("python", "copy"))
    if name == "itself":
        project.write("model.py", "said = 2")
    elif name == "import":
        project.write("helper.py", "WIDTH = 2\n")
    elif name in ("open", "path"):
        project.write("config.json", '{"width": 2}')
    elif name == "absent":
        project.write("new.txt", "here")
    elif name == "package":
        (site / "pkg" / "__init__.py").write_text("WIDTH = 2\n")
    else:
        monkeypatch.setenv("WIDTH", "2")
    again = project.answer()
    assert not again[1]
    assert again[0] != first[0] or name == "all_variables"


@both_ways
def test_new_code_in_a_folder_that_was_searched_counts_and_no_other_new_file(project: Project) -> None:
    project.write(
        "model.py", "import os; said = sum(name == 'train.py' for *_, names in os.walk('.') for name in names)"
    )
    project.write("inside/notes.txt", "")
    assert project.answer() == (0, False)
    project.write("inside/report.json", "{}")
    assert project.answer() == (0, True)
    project.write("inside/train.py", "")
    assert project.answer() == (1, False)


@both_ways
def test_what_it_did_not_look_at_does_not_count(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("model.py", "said = 1")
    project.answer()
    project.write("other.py", "x = 1")
    monkeypatch.setenv("WIDTH", "2")
    monkeypatch.setenv("SHLVL", "7")
    assert project.answer() == (1, True)


@both_ways
@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED"])
def test_variables_that_libraries_read_unseen_count(
    project: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("model.py", "said = 1")
    project.answer()
    monkeypatch.setenv(name, "1")
    assert project.answer() == (1, False)


@both_ways
def test_where_it_runs_counts(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("model.py", "import os; said = os.path.basename(os.getcwd())")
    project.answer()
    project.write("inside/a.txt", "")
    monkeypatch.chdir(project.directory / "inside")
    assert project.answer() == ("inside", False)


@both_ways
def test_a_file_the_program_makes_for_itself_does_not_count(project: Project) -> None:
    project.write(
        "model.py",
        "import tempfile\nopen('log.txt', 'a').write('.')\nopen('made.txt', 'w').write('1')\n"
        "said = open('made.txt').read()\nwith tempfile.TemporaryFile('w+') as f:\n    f.write('x')\n    f.seek(0)\n    f.read()\n",
    )
    assert project.answer() == ("1", False)
    assert project.answer() == ("1", True)


@both_ways
@pytest.mark.parametrize(
    "change", ["open('state.txt', 'w').write(str(said + 1))", "open('state.txt', 'r+').write('9')"]
)
def test_a_file_that_changes_meanwhile_is_nothing_to_rely_on(project: Project, change: str) -> None:
    project.write("model.py", f"said = int(open('state.txt').read())\n{change}\n")
    project.write("state.txt", "1")
    assert project.answer() == (1, False)
    assert not project.answer()[1]


def test_failures_are_not_kept(project: Project) -> None:
    project.write("model.py", "raise ValueError('no such width')")
    answer = ask(project.request(), Limits(seconds=60), analyse="fake_analyse:analyse")
    assert answer.error is not None
    answers.write(project.request(), answer)
    assert answers.read(project.request()) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: json.dumps({**json.loads(text), "result": {"skipped": 3}}),
        lambda text: json.dumps({**json.loads(text), "dependencies": {}}),
        lambda text: "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_a_damaged_entry_is_none(project: Project, damage) -> None:
    project.write("model.py", "said = 1")
    project.answer()
    (entry,) = (project.directory / cachedir.NAME / "workloads").iterdir()
    entry.write_text(damage(entry.read_text()), encoding="utf-8")
    assert project.answer() == (1, False)
    assert project.answer() == (1, True)


def test_ten_runs_at_the_same_time_corrupt_nothing(project: Project) -> None:
    project.write("model.py", "said = 1")
    nothing = Dependencies(files={}, packages={}, variables={})

    def run(number: int) -> bool:
        for batch in range(1, 9):
            request = project.request(batch=batch)
            known = answers.read(request)
            if known is not None and (known.result is None or known.result.torch != str(batch)):
                return False
            answers.write(request, Answer(Result(torch=str(batch)), None, (), "x" * 10_000, "", dependencies=nothing))
        return True

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(run, range(40)))
    assert len(list((project.directory / cachedir.NAME / "workloads").iterdir())) == 8


def test_nothing_is_kept_where_nothing_can_be_written(project: Project) -> None:
    (project.directory / cachedir.NAME).write_text("no directory")
    project.write("model.py", "said = 1")
    assert project.answer() == (1, False)
    assert project.answer() == (1, False)


def _no_permission(*_arguments: object, **_options: object) -> object:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def _no_room(handle: int, *_arguments: object, **_options: object) -> object:
    os.close(handle)
    return Path("/dev/full").open("w", encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is a device that has no room")
@pytest.mark.parametrize(
    ("owner", "name", "failing"),
    [
        (tempfile, "mkstemp", _no_permission),
        (os, "fdopen", _no_room),
        (Path, "replace", _no_permission),
        (Path, "mkdir", _no_permission),
    ],
    ids=["read-only", "full", "replace", "mkdir"],
)
def test_a_cache_that_cannot_be_written_changes_no_report_and_keeps_what_it_has(
    project: Project, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, failing: Callable[..., object]
) -> None:
    project.write("model.py", "said = 1")
    project.answer()
    answer = answers.read(project.request())
    assert answer is not None
    answer = replace(answer, dependencies=Dependencies(files={}, packages={}, variables={}))
    with monkeypatch.context() as broken:
        broken.setattr(owner, name, failing)
        answers.write(project.request(batch=2), answer)
        assert answers.read(project.request(batch=2)) is None
        assert project.answer() == (1, True)
    assert [file.suffix for file in (project.directory / cachedir.NAME / "workloads").iterdir()] == [".json"]
    answers.write(project.request(batch=2), answer)
    assert answers.read(project.request(batch=2)) is not None


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is a device that has no room")
def test_a_cache_that_had_no_room_when_it_was_made_can_be_used_and_cleaned_later(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Path, "write_text", _no_permission)
        cachedir.write(project.directory, "things", "one", "key", {"size": 1})
    assert cachedir.read(project.directory, "things", "one", "key", dict) is None
    cachedir.write(project.directory, "things", "one", "key", {"size": 1})
    assert cachedir.read(project.directory, "things", "one", "key", lambda entry: entry["size"]) == 1
    assert cachedir.clean(project.directory) == project.directory / cachedir.NAME


def test_an_interruption_while_an_entry_is_written_leaves_nothing_half_done(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dump", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cachedir.write(project.directory, "things", "one", "key", {"size": 1})
    assert list((project.directory / cachedir.NAME / "things").iterdir()) == []


MODEL = """
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="one system is enough")
def test_a_second_check_says_the_same_and_starts_no_process(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("model.py", MODEL)
    started: list[str] = []

    def counted(asked: Sequence[Task], **options: Any) -> Iterator[tuple[int, Answer]]:
        started.extend(task.request.target for task in asked)
        return answers_to(asked, **options)

    monkeypatch.setattr(parallel, "answers_to", counted)
    reports = [CliRunner().invoke(main, ["check", "model.py", "--no-sweep"]).stdout for _ in range(2)]
    assert reports[0] == reports[1]
    assert reports[0].startswith("model.py::Model needs ")
    assert started == ["model.py"]
    assert CliRunner().invoke(main, ["check", "model.py", "--no-sweep", "--no-cache"]).stdout == reports[0]
    assert started == ["model.py"] * 2
    project.write("model.py", MODEL.replace("64, 64", "64, 32"))
    assert CliRunner().invoke(main, ["check", "model.py", "--no-sweep"]).stdout != reports[0]
    assert started == ["model.py"] * 3


@pytest.mark.slow
def test_ten_checks_at_the_same_time_say_the_same_and_leave_a_cache_that_answers(project: Project) -> None:
    project.write("memlint.toml", "")
    project.write("model.py", f"import torch\n{MODEL}\ndef memlint_workload(batch):\n    return Model()\n")
    for number in range(5):
        project.write(f"loop{number}.py", "import torch\nlosses = []\nfor loss in (): losses.append(loss)\n")
    command = "import sys; from memlint.cli import main; main(['check', '--output-format', 'json'])"
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), os.environ["PYTHONPATH"]))}

    def check(before: str = "") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-c", before + command], env=environment, capture_output=True, check=False
        )

    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(check, [""] * 10))
    assert {(each.returncode, each.stdout) for each in done} == {(done[0].returncode, done[0].stdout)}
    report = json.loads(done[0].stdout)
    assert [workload["error"] for workload in report["workloads"]] == [None], report
    files = [file for file in (project.directory / cachedir.NAME).rglob("*") if file.is_file()]
    entries = [file for file in files if file.name not in (".gitignore", "CACHEDIR.TAG")]
    assert {file.parent.name for file in entries} >= {"workloads"}
    assert all(file.suffix == ".json" and json.loads(file.read_bytes()) for file in entries)
    only_the_cache_can_answer = "from memlint.worker import parallel; parallel.answers_to = None; "
    assert check(only_the_cache_can_answer).stdout == done[0].stdout
