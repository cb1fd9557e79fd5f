"""`memlint check --watch`: again on each change, with what it changed, and PyTorch imported once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from memlint import cli
from memlint.commands.check.check import check
from memlint.commands.check.targets import CheckOptions
from memlint.commands.check.watching import watch
from memlint.commands.targets import resolve
from memlint.worker import parallel, server_client
from memlint.worker.capture_store import Store
from memlint.worker.parallel import server_held

pytestmark = pytest.mark.usefixtures("copied_pythons")

MODEL = """import torch

def memlint_workload(batch):
    return torch.nn.Linear(1024, 1024), torch.zeros(batch, 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is kept")
def test_each_change_is_a_line_and_pytorch_is_imported_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    edits = [
        lambda: None,
        lambda: file.write_text(MODEL.replace("1024, 1024)", "1024, 4096)")),
        lambda: file.write_text(MODEL + "undefined\n"),
        lambda: (tmp_path / "memlint.toml").write_text("batch = 0\n"),
        lambda: (tmp_path / "memlint.toml").write_text("batch = 16\n"),
        lambda: file.write_text(MODEL),
    ]
    servers = []
    begin = server_client._Server.__init__
    monkeypatch.setattr(
        server_client._Server, "__init__", lambda self, *arguments: servers.append(self) or begin(self, *arguments)
    )
    runs = watch(["model.py"], {"optimizer": "sgd"}, CheckOptions(), pause=lambda _seconds: edits.pop(0)())
    first = next(runs)
    assert first.difference == ""
    assert first.checked.report.workloads[0].batch == 8
    lines = [next(runs).difference for _ in range(4)]
    assert lines[0].startswith("model.py: peak GPU memory +")
    assert "1 workload not analysed" in lines[1]
    assert "NameError" in lines[1]
    assert "memlint.toml: " in lines[2]
    assert "batch" in lines[2]
    assert edits
    last = next(runs)
    assert "not analysed in base" in last.difference
    assert last.checked.report.workloads[0].batch == 16
    assert len(servers) == 1
    runs.close()
    assert servers[0].process.poll() is not None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is kept")
def test_what_a_kept_process_answers_about_a_changed_file_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "model.py"
    with server_held():
        for width in (1024, 512):
            file.write_text(MODEL.replace("1024, 1024)", f"1024, {width})"))
            asked = check(["model.py"], {}, CheckOptions()).report
            kept = Store(resolve("model.py", {}).requests[0])
            assert kept.is_valid, "it was changed after the server had begun, and before it was read"
            with monkeypatch.context() as patched:
                patched.setattr(server_client, "answers", None)
                patched.setattr(parallel._Held, "server", None)
                assert check(["model.py"], {}, CheckOptions()).report == asked


@pytest.mark.parametrize("option", ["--init", "--fix", "--output-format=json", "--affected"])
def test_what_watching_has_no_use_for_is_refused(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    result = CliRunner().invoke(cli.main, ["check", "model.py", "--watch", option])
    assert result.exit_code == 2
    assert "--watch" in result.output
