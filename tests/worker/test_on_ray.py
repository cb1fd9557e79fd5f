"""What goes to another machine and comes back, and a sweep on a real Ray cluster of this one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import uuid
import zipfile
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest
from click.testing import CliRunner

from memlint.base.errors import TargetError, UsageError
from memlint.base.version import install_command
from memlint.cli import main
from memlint.worker.protocol import Answer, Limits
from memlint.worker.ray import archive as packing
from memlint.worker.ray import cluster as on_ray
from memlint.worker.ray import worker as ray_worker
from memlint.worker.ray.archive import pack, unpack
from memlint.worker.ray.messages import moved, received, sent

if TYPE_CHECKING:
    from memlint.worker.task import Task


def packed(root: Path, **options) -> list[str]:
    return zipfile.ZipFile(BytesIO(pack(root, **options))).namelist()


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "project"
    for name in (
        "model.py", "src/parts/block.py", "config.json", "configs/small.yaml", "data.txt", "weights.pt", "LICENSE",
        ".env", ".secret.json", ".git/config.txt", "env/pyvenv.cfg", "env/lib/torch.py", "__pycache__/model.py",
        ".venv/lib/site.py", "kept/CACHEDIR.TAG", "kept/entry.json", "runs/log.txt", "notes/run.json",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_code_and_text_are_packed_and_no_secrets_caches_environments_or_weights(root):
    assert packed(root) == [
        "config.json", "configs/small.yaml", "data.txt", "model.py", "notes/run.json", "runs/log.txt",
        "src/parts/block.py",
    ]  # fmt: skip


def test_what_is_excluded_stays_out_but_never_a_target(root):
    names = packed(root, exclude=("runs/", "*.json", "src/parts", "model.py"), targets=(root / "model.py",))
    assert names == ["configs/small.yaml", "data.txt", "model.py"]


def test_the_same_files_are_the_same_bytes_and_come_out_as_they_went_in(root, tmp_path):
    archive = pack(root)
    os.utime(root / "model.py", (0, 0))
    assert pack(root) == archive
    unpack(archive, tmp_path / "there")
    assert pack(tmp_path / "there") == archive
    (root / "model.py").write_text("other")
    assert pack(root) != archive


def test_too_much_is_an_error_that_says_what_and_how_to_leave_it_out(root, monkeypatch):
    (root / "data").mkdir()
    (root / "data" / "train.json").write_text("x" * 200_000)
    monkeypatch.setattr(packing, "PACKED_NBYTES", 100_000)
    with pytest.raises(TargetError, match=r"data/train\.json \(195\.3 KiB\)") as caught:
        pack(root)
    assert 'exclude = ["data"]' in caught.value.hint
    assert "data/train.json" not in packed(root, exclude=("data",))


def test_many_small_files_are_too_much_as_well(root, monkeypatch):
    monkeypatch.setattr(packing, "PACKED_NBYTES", 4096 * 6)
    with pytest.raises(TargetError, match="7 Python and text files"):
        pack(root)


def test_a_target_outside_of_the_project_is_an_error(root, tmp_path):
    with pytest.raises(TargetError, match="is not in the project"):
        pack(root, targets=(tmp_path / "elsewhere.py",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/u/p", "/t/x"),
        ("/home/u/p/a.py::Net", "/t/x/a.py::Net"),
        ("at /home/u/p/a.py:3 in f, /home/u/p.", "at /t/x/a.py:3 in f, /t/x."),
        ("/home/u/p2/a.py", "/home/u/p2/a.py"),
        ("/home/u/p-old", "/home/u/p-old"),
        ("/home/u/p.py", "/home/u/p.py"),
        ("/mnt/home/u/p/a.py", "/mnt/home/u/p/a.py"),
    ],
)
def test_only_the_project_is_moved(text, expected):
    assert moved({text: [text, 3, None]}, Path("/home/u/p"), Path("/t/x")) == {expected: [expected, 3, None]}


def task_of(project, code: str) -> Task:
    return project.task(code)


def away(task: Task, monkeypatch) -> Answer:
    """The Answer of a machine that has nothing of the project but the archive."""
    archive, order = pack(Path(task.request.root)), sent(task)
    Path(task.request.root).rename(Path(task.request.root).with_name("gone"))
    monkeypatch.chdir("/")
    return received(ray_worker.carry_out(archive, order, ray_worker.versions()))


def test_a_task_elsewhere_finds_its_files_and_says_paths_as_they_are_here(project, monkeypatch):
    (project.directory / "models").mkdir()
    (project.directory / "models" / "sizes.json").write_text("[3]")
    monkeypatch.chdir(project.directory / "models")
    code = """
        import json, pathlib, sys
        here = json.loads(pathlib.Path("sizes.json").read_text())
        said = [__file__, here, str(pathlib.Path.cwd())]
        print("in", __file__)
        """
    answer = away(task_of(project, code), monkeypatch)
    assert answer.error is None, answer.error
    assert json.loads(answer.result.skipped[0].reason) == [
        str(project.script), [3], str(project.script.parent)
    ]  # fmt: skip
    assert answer.stdout == f"in {project.script}\n"


def test_an_error_elsewhere_is_the_error_it_would_be_here(project, monkeypatch):
    code = """
        from memlint.base.errors import TargetError
        from memlint.worker.child import write_partial
        from memlint.worker.protocol import Result
        write_partial(Result(torch="1"))
        raise TargetError(f"{__file__} is odd", "Mend it.")
        """
    answer = away(task_of(project, code), monkeypatch)
    assert type(answer.error) is TargetError
    assert (answer.error.message, answer.error.hint) == (f"{project.script} is odd", "Mend it.")
    assert answer.traceback[-1].startswith(f"{project.script}:")
    assert answer.partial.torch == "1"


def test_limits_hold_elsewhere(project, monkeypatch):
    task = task_of(project, "import time; time.sleep(60)")
    answer = away(task._replace(limits=Limits(seconds=5)), monkeypatch)
    assert f"no answer within 5 s, at {project.script}:1" in answer.error.message


def test_a_worker_with_other_versions_says_so_before_anything_else(monkeypatch):
    wanted = {**ray_worker.versions(), "memlint": "0.0.1"}
    assert json.loads(ray_worker.carry_out(b"no archive", "no task", wanted))["versions"] == ray_worker.versions()
    monkeypatch.setitem(sys.modules, "memlint", None)
    assert ray_worker.versions()["memlint"] == "not installed"


def test_other_versions_are_an_error_that_names_both():
    here = {"memlint": "0.2.0", "torch": "2.13.0", "Python": "3.12"}
    said = json.dumps({"versions": {**here, "torch": "2.10.0"}, "node": "node-7"})
    error = on_ray._answer(SimpleNamespace(get=lambda _task: said), None, here).error
    assert error is not None
    assert "on node-7 has memlint 0.2.0, torch 2.10.0, Python 3.12" in error.message
    assert "here there is memlint 0.2.0, torch 2.13.0, Python 3.12" in error.message
    assert "torch==2.13.0" in error.hint


WITHOUT_MEMLINT = """
import pickle, sys
sys.modules["memlint"] = None
print(pickle.load(sys.stdin.buffer)(b"", "", {}))
"""


@pytest.mark.slow
def test_what_ray_sends_runs_where_there_is_no_memlint():
    cloudpickle = pytest.importorskip("ray").cloudpickle
    cloudpickle.register_pickle_by_value(ray_worker)
    code = cloudpickle.dumps(ray_worker.carry_out)
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMLINT], input=code, capture_output=True, check=True)
    assert json.loads(done.stdout)["versions"] == {**ray_worker.versions(), "memlint": "not installed"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "memlint.toml").touch()
    (tmp_path / "project" / "model.py").write_text("from torch import nn\nlayer = nn.Linear\n")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def test_without_ray_the_error_says_what_to_install(folder, monkeypatch):
    pytest.importorskip("torch")
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else known(name))
    result = CliRunner().invoke(main, ["sweep", "model.py", "--executor", "ray"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert install_command("ray") in result.stderr


def test_an_address_without_ray_is_an_error(folder):
    result = CliRunner().invoke(main, ["sweep", "model.py", "--address", "auto"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Add --executor ray." in result.stderr


def test_a_local_sweep_imports_no_ray():
    code = (
        "import sys, memlint.cli, memlint.commands.sweep.sweep as c; c.executor_of('local', None); assert 'ray' not in"
        " sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "no-such-host.invalid", "127.0.0.1:x"])
def test_an_address_where_nobody_answers_is_an_error(folder, address):
    pytest.importorskip("torch")
    pytest.importorskip("ray")
    result = CliRunner().invoke(main, ["sweep", "model.py", "--executor", "ray", "--address", address])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Ray cannot be reached at {address}: " in result.stderr


def test_a_cluster_that_was_lost_is_an_error_or_another_is_started(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(on_ray, "_NOTED", tmp_path / "noted")
    (tmp_path / "noted").write_text("127.0.0.1:1")
    with pytest.raises(UsageError, match=r"cannot be reached at 127\.0\.0\.1:1"), on_ray._connected("auto"):
        pass
    asked = []
    monkeypatch.setattr("ray.init", lambda address, **_options: asked.append(address))
    with on_ray._connected(None):
        pass
    assert asked == ["local"]


CLUSTER = """
import ray
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=50)
print(ray.get_runtime_context().gcs_address, flush=True)
input()
ray.shutdown()
"""


@pytest.fixture(scope="module")
def cluster():
    """The address of a Ray cluster with two CPUs."""
    pytest.importorskip("torch")
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_AUTH_MODE", "token")  # its own, or else Ray writes one into the home directory
        environment.setenv("RAY_AUTH_TOKEN", uuid.uuid4().hex)
        command = [sys.executable, "-c", CLUSTER]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdin is not None
            assert running.stdout is not None
            yield running.stdout.readline().strip()
            running.stdin.write("\n")
            running.stdin.close()
            running.wait(60)


NET = """
from parts.net import Net
class Plain(Net):
    pass
"""
PARTS = """
import json, pathlib
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        width = json.loads((pathlib.Path(__file__).parent / "width.json").read_text())
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x).tanh()
"""
FIRST_WAITS = """
import os, pathlib, time
marks = pathlib.Path({marks!r})
try:
    os.close(os.open(marks / "first", os.O_CREAT | os.O_EXCL))
except FileExistsError:
    pass
else:
    (marks / "new").write_text(str(os.getppid()))
    (marks / "new").rename(marks / "worker")
    while True:
        time.sleep(0.02)
"""
ARGUMENTS = ("--batch", "4:8", "--dtype", "float32,bf16-amp", "--gpu", "t4,h100-80gb", "--output-format", "json")


@pytest.fixture
def project_of_parts(folder):
    (folder / "parts").mkdir()
    (folder / "parts" / "net.py").write_text(PARTS)
    (folder / "parts" / "width.json").write_text("1024")
    (folder / "model.py").write_text(NET)
    return folder


def begun(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "memlint", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_a_sweep_that_loses_a_worker_says_what_it_says_here(project_of_parts, cluster):
    here = CliRunner().invoke(main, ["sweep", "model.py::Plain", *ARGUMENTS])
    assert here.exit_code == 0, here.stderr
    marks = project_of_parts.parent / "marks"
    marks.mkdir()
    (project_of_parts / "model.py").write_text(NET + FIRST_WAITS.format(marks=str(marks)))
    running = begun("sweep", "model.py::Plain", *ARGUMENTS, "--executor", "ray", "--address", cluster)
    deadline = time.monotonic() + 120
    while not (marks / "worker").exists():
        assert time.monotonic() < deadline
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    (project_of_parts / "parts").rename(project_of_parts.parent / "parts")  # workers have what was sent
    worker = psutil.Process(int((marks / "worker").read_text()))
    assert worker.name().startswith("ray::")
    worker.kill()
    stdout, stderr = running.communicate(timeout=300)
    assert (running.returncode, stderr) == (0, "")
    assert json.loads(stdout) == json.loads(here.stdout)
    assert len(json.loads(stdout)["sweeps"]) == 4


@pytest.mark.slow
def test_a_task_whose_workers_are_all_lost_is_an_error_beside_the_other_tables(project_of_parts, cluster):
    (project_of_parts / "kills.py").write_text(NET + "\nimport os\nos.kill(os.getppid(), 9)\n")
    command = ("sweep", "kills.py::Plain", "model.py::Plain", "--batch", "4", "--output-format", "json")
    running = begun(*command, "--executor", "ray", "--address", cluster)
    stdout, stderr = running.communicate(timeout=300)
    assert running.returncode == 2
    assert [each["name"] for each in json.loads(stdout)["sweeps"]] == ["Plain"]
    assert "kills.py::Plain: the Ray worker was lost 4 times" in stderr


INTERRUPTED = """
import json, pathlib, signal, sys
from memlint.commands.sweep.sweep import order_of, sweep
from memlint.worker.ray.cluster import answers_on_ray

marks = pathlib.Path(sys.argv[2])

def executor(tasks, *, on_wait):
    answered = []
    def wait(task, seconds):
        if answered and (marks / "waits").exists():
            signal.raise_signal(signal.SIGINT)
    for number, answer in answers_on_ray(tasks, address=sys.argv[1], on_wait=wait):
        answered.append(number)
        yield number, answer

order = order_of("4", None, None, ["seq=32,96"])
found = sweep(["quick.py", "waits.py", "waits.py::memlint_workload"], order, {}, executor=executor)
print(json.dumps([found.status, [each.target for each in found.document.sweeps], [f.message for f in found.missing]]))
"""
SEQUENCE = """
import pathlib, time, torch
from torch import nn

def memlint_workload(batch, seq=32):
    if {waits} and seq == 96:
        pathlib.Path({marks!r}, "waits").touch()
        time.sleep(600)
    return nn.Linear(64, 64), {{"input": torch.randn(batch, seq, 64)}}
"""


@pytest.mark.slow
def test_a_cluster_that_wants_a_token_says_so(folder, cluster, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    running = begun("sweep", "model.py", "--executor", "ray", "--address", cluster)
    stdout, stderr = running.communicate(timeout=120)
    assert (running.returncode, stdout) == (2, "")
    assert f"error: Ray cannot be reached at {cluster}: " in stderr
    assert "Authentication token is missing or incorrect" in stderr
    assert "RAY_AUTH_TOKEN" in stderr
    assert len(stderr.splitlines()) == 2


@pytest.mark.slow
def test_an_interrupted_sweep_keeps_what_there_is(folder, cluster):
    for name in ("quick", "waits"):
        code = SEQUENCE.format(waits=name == "waits", marks=str(folder.parent))
        (folder / f"{name}.py").write_text(code)
    command = [sys.executable, "-c", INTERRUPTED, cluster, str(folder.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    status, tables, messages = json.loads(done.stdout)
    assert status == 130
    assert [table.partition("::")[0] for table in tables] == ["quick.py", "quick.py", "waits.py"]
    assert len(messages) == 2
    assert all(message.startswith("interrupted") for message in messages)
    assert done.stderr == ""
