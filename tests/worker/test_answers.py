"""Answers of children that are kept: when they are given again, when not, and what cannot break them."""

from __future__ import annotations

import base64
import errno
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from memlint.base import cache as cachedir
from memlint.base.exchange import Exchange
from memlint.cli import main
from memlint.commands import early
from memlint.config import Settings
from memlint.worker import server_client
from memlint.worker.capture_store import Known, Store
from memlint.worker.child import JOBS
from memlint.worker.dependencies import digest_of_path
from memlint.worker.protocol import Answer, Dependencies, Limits, Request
from memlint.worker.session import Session
from memlint.worker.start import Started, start_python
from memlint.worker.supervisor_pool import ask_child
from memlint.worker.task import CHILD
from tests.worker.conftest import fake_analyse, fake_task

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("copied_pythons")

NOTHING = Dependencies(files={}, packages={}, variables={})


class Project:
    """A directory with a program in it, which says what the worker answers."""

    def __init__(self, directory: Path, way: str) -> None:
        self.directory = directory
        self.way = way
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
        started: list[Path] = []
        with pytest.MonkeyPatch.context() as counting:
            start = Session.start
            counting.setattr(Session, "start", lambda session: [started.append(self.directory), start(session)])
            is_known = Store(request).is_valid
            answer = self.ask(request)
        assert answer.error is None, answer.error
        assert answer.result is not None
        if self.way == "python":  # a copy is started elsewhere
            assert bool(started) is not is_known
        return json.loads(answer.result.skipped[0].reason), is_known

    def ask(self, request: Request | None = None) -> Answer:
        """The Answer to a request, from what is kept or of a child."""
        task = fake_task(request or self.request(), Limits(seconds=60), cache=True)
        if self.way == "copy":
            ((_number, answer),) = server_client.answers([task], 1, lambda _task, _seconds: None)
            return answer
        return ask_child(task)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Project:
    fake_analyse(tmp_path, monkeypatch)
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
    known = Store(project.request())
    assert known.is_valid
    assert known.output == ("hello\n", "")
    assert project.ask().stdout == "hello\n"


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
        "try:\n    import later\n    said = later.WIDTH\nexcept ModuleNotFoundError:\n    said = 'none'",
    ],
    ids=[
        "itself",
        "import",
        "open",
        "path",
        "absent",
        "variable",
        "whether_set",
        "all_variables",
        "package",
        "missing",
    ],
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
    elif name == "missing":
        project.write("site-packages/later/__init__.py", "WIDTH = 2\n")
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
@pytest.mark.usefixtures("executed_pythons")  # a copy may write within the tick of the clock in which it began
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
    assert project.ask().error is not None
    assert not Store(project.request()).is_valid
    assert not (project.directory / cachedir.NAME).exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: json.dumps({**json.loads(text), "known": {"FindWorkloads()": 3}}),
        lambda text: json.dumps({**json.loads(text), "known": []}),
        lambda text: json.dumps({**json.loads(text), "checksum": 3}),
        lambda text: json.dumps({**json.loads(text), "output": "x"}),
        lambda text: json.dumps({**json.loads(text), "dependencies": {}}),
        lambda text: "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_a_damaged_entry_is_none(project: Project, damage) -> None:
    project.write("model.py", "said = 1")
    project.answer()
    (entry,) = (project.directory / cachedir.NAME / "captures").glob("*.json")
    entry.write_text(damage(entry.read_text()), encoding="utf-8")
    assert project.answer() == (1, False)
    assert project.answer() == (1, True)


def test_ten_runs_at_the_same_time_corrupt_nothing(project: Project) -> None:
    project.write("model.py", "said = 1")

    def run(number: int) -> bool:
        for batch in range(1, 9):
            store = Store(project.request(batch=batch))
            known = store.known("FindWorkloads()")
            if known is not None and (known.record != batch or bytes(known.capture or b"") != bytes([batch]) * 10_000):
                return False
            new = {"FindWorkloads()": Known(batch, bytes([batch]) * 10_000), f"{number}": Known(number, b"x" * number)}
            store.write(new, NOTHING, ("x" * 10_000, ""))
        return True

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(run, range(40)))
    files = list((project.directory / cachedir.NAME / "captures").iterdir())
    assert sorted(file.suffix for file in files) == [".bin"] * 8 + [".json"] * 8


def test_nothing_is_kept_where_nothing_can_be_written(project: Project) -> None:
    (project.directory / cachedir.NAME).write_text("no directory")
    project.write("model.py", "said = 1")
    assert project.answer() == (1, False)
    assert project.answer() == (1, False)


def _no_permission(*_arguments: object, **_options: object) -> object:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def _no_room(handle: int, *_arguments: object, **_options: object) -> object:
    os.close(handle)
    return Path("/dev/full").open("wb")


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
    other = {"FindWorkloads()": Known({"text": "1"}, b"capture")}
    with monkeypatch.context() as broken:
        broken.setattr(owner, name, failing)
        Store(project.request(batch=2)).write(other, NOTHING, ("", ""))
        assert not Store(project.request(batch=2)).is_valid
        assert Store(project.request()).is_valid
    files = (project.directory / cachedir.NAME / "captures").iterdir()
    assert sorted(file.suffix for file in files) == [".bin", ".json"]
    assert project.answer() == (1, True)
    Store(project.request(batch=2)).write(other, NOTHING, ("", ""))
    assert Store(project.request(batch=2)).is_valid


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

    monkeypatch.setattr(json, "dumps", interrupt)
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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Jobs that reached a child, and `start` for each child."""
    reached: list[str] = []
    start, say = Session.start, Exchange.say

    def started(session: Session, running: Started | None = None) -> None:
        reached.append("start")
        start(session, running)

    def said(exchange: Exchange, name: str, message: bytes) -> None:
        if name == JOBS:
            reached.append(type(pickle.loads(base64.b64decode(message))).__name__)
        say(exchange, name, message)

    monkeypatch.setattr(Session, "start", started)
    monkeypatch.setattr(Exchange, "say", said)
    return reached


@pytest.fixture
def early_pythons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules of Pythons that start before it is known what they are asked, on a machine with two cores."""
    modules: list[str] = []

    def started(module: str, *arguments: str, **files: Any) -> subprocess.Popen[bytes]:
        modules.append(module)
        return start_python(module, *arguments, **files)

    monkeypatch.setattr(early, "start_python", started)
    monkeypatch.setattr(early.os, "cpu_count", lambda: 2)
    return modules


def checked(*options: str) -> str:
    done = CliRunner().invoke(main, ["check", "model.py", "--no-sweep", *options])
    assert done.exit_code in (0, 1), done.output
    return done.stdout


FIRST = ["start", "FindWorkloads", "TraceWorkload", "Finish"]


@pytest.mark.skipif(sys.platform == "win32", reason="one system is enough")
def test_a_second_check_says_the_same_and_starts_no_process(
    project: Project, asked: list[str], early_pythons: list[str]
) -> None:
    project.write("model.py", MODEL)
    quiet = ("--select", "MEM0")
    reports = [checked(*quiet) for _ in range(2)]
    assert reports[0] == reports[1]
    assert reports[0].startswith("model.py::Model needs ")
    assert asked == FIRST
    assert early_pythons == [CHILD], "the first imports PyTorch before it is known what it is asked, and answers then"
    assert checked(*quiet, "--no-cache") == reports[0]
    assert asked[4:6] == FIRST[:2], "without the cache a child is asked"
    assert early_pythons == [CHILD] * 2
    del asked[:]
    project.write("model.py", MODEL.replace("64, 64", "64, 32"))
    assert checked(*quiet) != reports[0]
    assert asked == FIRST
    assert early_pythons == [CHILD] * 3, "no answer about what has changed is kept"


@pytest.mark.skipif(sys.platform == "win32", reason="one system is enough")
def test_other_looks_at_the_same_program_trace_nothing(project: Project, asked: list[str]) -> None:
    project.write("model.py", MODEL)
    checked("--select", "MEM0")
    assert asked == FIRST
    looks: list[tuple[str, ...]] = [
        ("--select", "MEM0", "-v"),
        ("--select", "MEM001,MEM003"),
        ("--select", "MEM0", "--budget", "2MiB"),
        ("--select", "MEM0", "--output-format", "json"),
        ("--select", "MEM0", "--timeout", "77"),
    ]
    for look in looks:
        assert checked(*look)
        assert asked == FIRST, look


@pytest.mark.skipif(sys.platform == "win32", reason="one system is enough")
def test_what_a_look_simulates_is_kept_for_the_next_one(project: Project, asked: list[str]) -> None:
    project.write("model.py", MODEL)
    checked("--select", "MEM0")
    del asked[:]
    first = checked()
    assert asked[:1] in ([], ["start"])
    assert "FindWorkloads" not in asked
    assert "TraceWorkload" not in asked, "what is known is not asked for again"
    del asked[:]
    assert checked() == first
    assert asked == []


@pytest.mark.skipif(sys.platform == "win32", reason="one system is enough")
@pytest.mark.parametrize(
    "damage",
    [lambda content: b"", lambda content: content[: len(content) // 2], lambda content: content[:-1] + b"?", None],
    ids=["empty", "half", "changed", "gone"],
)
def test_a_damaged_file_of_captures_is_made_anew(
    project: Project, asked: list[str], damage: Callable[[bytes], bytes] | None
) -> None:
    project.write("model.py", MODEL)
    first = checked("--select", "MEM0")
    (file,) = (project.directory / cachedir.NAME / "captures").glob("*.bin")
    file.unlink() if damage is None else file.write_bytes(damage(file.read_bytes()))
    assert checked("--select", "MEM0") == first
    assert asked == FIRST * 2
    assert checked("--select", "MEM0") == first
    assert asked == FIRST * 2


def test_what_any_child_has_read_counts_for_all_that_is_kept(project: Project) -> None:
    def child_read(name: str) -> Dependencies:
        return Dependencies(files={str(project.directory / name): digest_of_path(name)}, packages={}, variables={})

    for name in ("one.txt", "two.txt"):
        project.write(name, "1")
    Store(project.request()).write({"first": Known(1, b"1")}, child_read("one.txt"), ("", ""))
    Store(project.request()).write({"second": Known(2, None)}, child_read("two.txt"), ("", ""))
    both = Store(project.request())
    assert (both.known("first"), both.known("second")) == ((1, b"1"), (2, None))
    project.write("one.txt", "2")
    assert not Store(project.request()).is_valid, "the second child has not read it, but the first one had"


def test_what_is_known_goes_when_a_child_finds_that_it_no_longer_holds(project: Project) -> None:
    project.write("one.txt", "1")
    before = Dependencies(
        files={str(project.directory / "one.txt"): digest_of_path("one.txt")}, packages={}, variables={}
    )
    Store(project.request()).write({"first": Known(1, b"1")}, before, ("", ""))
    store = Store(project.request())
    assert store.is_valid
    project.write("one.txt", "2")  # meanwhile
    after = before.model_copy(update={"files": {str(project.directory / "one.txt"): digest_of_path("one.txt")}})
    store.write({"second": Known(2, None)}, after, ("", ""))
    kept = Store(project.request())
    assert kept.known("first") is None
    assert kept.known("second") == (2, None)


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
    assert {file.parent.name for file in entries} >= {"captures"}
    assert {file.suffix for file in entries} == {".bin", ".json"}
    assert all(json.loads(file.read_bytes()) for file in entries if file.suffix == ".json")
    only_the_cache_can_answer = "from memlint.worker.session import Session; Session.start = None; "
    assert check(only_the_cache_can_answer).stdout == done[0].stdout
