"""The language server, driven as an editor drives it: findings while one types, traces on save, and what they show."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

pytest.importorskip("pytest_lsp")
pytest.importorskip("torch")

from pytest_lsp import LspSpecificationWarning

from memlint import cli
from memlint.base.version import install_command
from tests.language_server.client import Editor

pytestmark = pytest.mark.usefixtures("copied_pythons")

MLP = (Path(__file__).parents[2] / "fixtures" / "models" / "mlp.py").read_text(encoding="utf-8")
EVALUATION = """import torch

def evaluate(model, loader):
    model.eval()
    for x in loader:
        print(model(x).sum().item())
"""
MODEL = """import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 4096)
        self.second = nn.Linear(4096, 8)

    def forward(self, x):
        hidden = self.first(x)
        return self.second(hidden.relu())

def memlint_workload(batch=4096):
    return Model(), torch.zeros(batch, 64)
"""


def edited(folder, scenario, **options):
    """Run a scenario with a fresh server; it keeps to the protocol, and no process is left of it."""

    async def run():
        editor = Editor(folder)
        await editor.start(**options)
        try:
            await scenario(editor)
        finally:
            server = psutil.Process(editor.client._server.pid)
            family = [server, *server.children(recursive=True)]
            await editor.stop()
            assert psutil.wait_procs(family, timeout=20)[1] == []

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LspSpecificationWarning)
        asyncio.run(run())
    assert not [each.message for each in caught if each.category is LspSpecificationWarning]


@pytest.mark.parametrize("name", ["visual-studio-code", "neovim"])
def test_findings_follow_the_text(tmp_path, name):
    async def scenario(editor):
        editor.open("evaluation.py", EVALUATION)
        (finding,) = await editor.published_for("evaluation.py", 1)
        assert (finding.code, finding.range.start.line) == ("MEM404", 4)
        version = editor.edit("evaluation.py", "# a comment\n\n", (0, 0))
        (finding,) = await editor.published_for("evaluation.py", version)
        assert finding.range.start.line == 6
        version = editor.edit("evaluation.py", "    return (\n", (7, 0))
        (broken,) = await editor.published_for("evaluation.py", version)
        assert broken.code == "MEM001"
        version = editor.replace("evaluation.py", "import torch\n")
        assert await editor.published_for("evaluation.py", version) == []

    edited(tmp_path, scenario, name=name)


def test_of_fifty_quick_edits_the_last_one_counts(tmp_path):
    async def scenario(editor):
        editor.open("evaluation.py", EVALUATION)
        await editor.published_for("evaluation.py", 1)
        for _ in range(49):
            editor.edit("evaluation.py", "# 𐐀nicode\n", (0, 0))
        version = editor.edit("evaluation.py", "# the last\n", (0, 0))
        (finding,) = await editor.published_for("evaluation.py", version)
        assert finding.range.start.line == 54
        versions = [each.version for each in editor.published]
        assert versions == sorted(versions)

    edited(tmp_path, scenario)


def test_ranges_are_in_the_units_of_the_client(tmp_path):
    async def scenario(editor):
        line = '    print("𝔘ä", [model(x).sum().item() for x in loader])\n'
        editor.open("evaluation.py", EVALUATION.partition("    for")[0] + line)
        (finding,) = await editor.published_for("evaluation.py", 1)
        text = line.rstrip().encode("utf-16-le")
        start, end = finding.range.start.character, finding.range.end.character
        assert end == len(text) // 2
        assert text[2 * start :].decode("utf-16-le").startswith("[model(x)")

    edited(tmp_path, scenario)


def test_a_finding_can_be_corrected_and_ignored(tmp_path):
    async def scenario(editor):
        editor.open("evaluation.py", EVALUATION)
        await editor.published_for("evaluation.py", 1)
        actions = {action.title.partition(":")[0]: action for action in await editor.actions("evaluation.py", 4)}
        ignored = applied(EVALUATION, actions["Ignore MEM404 here"])
        assert "    # memlint: ignore[MEM404]\n    for x in loader:\n" in ignored
        (corrected,) = (action for title, action in actions.items() if title.startswith("MEM404"))
        for text in (ignored, applied(EVALUATION, corrected)):
            version = editor.replace("evaluation.py", text)
            assert await editor.published_for("evaluation.py", version) == []
        assert not await editor.actions("evaluation.py", 0, ["source.organizeImports"])

    edited(tmp_path, scenario)


def applied(text, action):
    ((_uri, edits),) = action.edit.changes.items()
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    for edit in sorted(edits, key=lambda edit: (edit.range.start.line, edit.range.start.character), reverse=True):
        first, last = (starts[at.line] + at.character for at in (edit.range.start, edit.range.end))
        text = text[:first] + edit.new_text + text[last:]
    return text


def test_a_configuration_that_makes_no_sense_is_said(tmp_path):
    async def scenario(editor):
        (tmp_path / "memlint.toml").write_text("batch = 0\n")
        editor.open("evaluation.py", EVALUATION)
        assert "batch" in await editor.until(lambda: editor.messages and editor.messages[-1])

    edited(tmp_path, scenario)


def test_saved_files_are_traced_and_opened_ones_are_not(tmp_path):
    marker = tmp_path / "ran"
    text = MODEL + f"\nopen({str(marker)!r}, 'w').close()\n"

    async def scenario(editor):
        # Opened: nothing runs.
        editor.open("model.py", text)
        assert await editor.published_for("model.py", 1) == []
        assert await editor.lenses("model.py") == []
        assert not marker.exists()
        # Saved: the verdict over what declares it, the bytes beside the line that holds them.
        editor.save("model.py")
        await editor.traced(1)
        assert marker.exists()
        ((line, verdict),) = await editor.lenses("model.py")
        assert line == 13
        assert re.fullmatch(r"[\d.]+ MiB on NVIDIA A100 80 GB, fits to batch \d+", verdict)
        hints = dict(await editor.hints("model.py"))
        assert hints[11].startswith("64.0 MiB saved for backward"), hints  # hidden.relu(): 4096 x 4096 float32
        assert "64.0 MiB saved for backward" in await editor.hover("model.py", 11)
        assert "torch.cuda.max_memory_allocated" in await editor.hover("model.py", 13)
        # Edited: what is known moves along.
        version = editor.edit("model.py", "# a comment\n\n", (0, 0))
        await editor.published_for("model.py", version)
        assert [line for line, _text in await editor.lenses("model.py")] == [15]
        assert 13 in dict(await editor.hints("model.py"))
        # Other options: the same again.
        changed = await editor.command("memlint.change", {"batch": 8192, "gpu": "rtx4090"})
        assert (changed["batch"], changed["gpu"]) == (8192, "rtx4090")
        await editor.traced(2)
        ((_line, verdict),) = await editor.lenses("model.py")
        assert "on NVIDIA GeForce RTX 4090" in verdict
        # Crash of the code: a diagnostic at its line; the server lives.
        crashing = MODEL.replace("return self.second(hidden.relu())", "return self.first(hidden)")
        version = editor.replace("model.py", crashing)
        editor.save("model.py", crashing)
        await editor.traced(3)
        errors = await editor.until(
            lambda: [each for each in editor.diagnostics("model.py") or [] if each.code == "not-analysed"]
        )
        assert [each.range.start.line for each in errors] == [11]
        assert "cannot be multiplied" in errors[0].message
        for death in ("import os\nos._exit(3)\n", "import os\nos.kill(os.getpid(), 9)\n", "raise SystemExit\n"):
            editor.replace("model.py", death + MODEL)
            number = editor.num_ended()
            editor.save("model.py", death + MODEL)
            await editor.traced(number + 1)
            assert [each.code for each in editor.diagnostics("model.py") or []] == ["not-analysed"]
        # Mended: the error is gone.
        editor.replace("model.py", MODEL)
        number = editor.num_ended()
        editor.save("model.py", MODEL)
        await editor.traced(number + 1)
        assert not [each for each in editor.diagnostics("model.py") or [] if each.code == "not-analysed"]
        assert len(await editor.lenses("model.py")) == 1

    edited(tmp_path, scenario, batch=4096)


def test_a_trace_is_stopped_by_the_user_and_by_a_newer_save(tmp_path):
    (tmp_path / "memlint.toml").write_text("sweep = false\n")
    hanging = "import time\ntime.sleep(100)\n" + MODEL

    async def scenario(editor):
        editor.open("model.py", hanging)
        editor.save("model.py")
        token = await editor.until(lambda: [each.token for each in editor.progress if running(each)])
        editor.client.window_work_done_progress_cancel(cancel(token[0]))
        await editor.traced(1)
        assert editor.progress[-1].value["message"] == "stopped"
        editor.save("model.py")
        await editor.until(lambda: [each for each in editor.progress if running(each) and each.token != token[0]])
        editor.replace("model.py", MODEL)
        editor.save("model.py", MODEL)
        await editor.traced(3)
        ends = [each.value["message"] for each in editor.progress if each.value["kind"] == "end"]
        assert ends == ["stopped", "stopped", "done"]
        assert len(await editor.lenses("model.py")) == 1

    edited(tmp_path, scenario)


def running(progress):
    return progress.value["kind"] == "report"


def cancel(token):
    from lsprotocol import types

    return types.WorkDoneProgressCancelParams(token=token)


@pytest.mark.slow
def test_a_workload_that_was_found_can_be_declared(tmp_path):
    async def scenario(editor):
        editor.open("mlp.py", MLP)
        editor.save("mlp.py")
        await editor.traced(1)
        ((line, _verdict),) = await editor.lenses("mlp.py")
        assert "Declare this workload" in {each.title for each in await editor.actions("mlp.py", line)}
        await editor.command("memlint.declare", editor.uri("mlp.py"), f"{tmp_path / 'mlp.py'}::MLP")
        edit = (await editor.until(lambda: editor.edits))[0]
        create, change = edit.document_changes
        assert create.uri.endswith("/pyproject.toml")
        (tmp_path / "pyproject.toml").write_text(change.edits[0].new_text)
        editor.save("mlp.py")
        await editor.traced(3)
        assert "Declare this workload" not in {each.title for each in await editor.actions("mlp.py", line)}

    edited(tmp_path, scenario)


SCRIPT = """import torch

model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    loss = model(torch.zeros(8, 1024, device="cuda")).sum()
    loss.backward()
    optimizer.step()
"""


def test_a_script_runs_by_command_and_files_without_models_run_not_at_all(tmp_path):
    marker = tmp_path / "ran"
    folder = tmp_path / "scripts"
    folder.mkdir()

    async def scenario(editor):
        assert "batch" in await editor.until(lambda: editor.messages and editor.messages[-1])
        editor.open("scripts/train.py", SCRIPT)
        await editor.published_for("scripts/train.py", 1)
        assert await editor.lenses("scripts/train.py") == [(0, "Run its first steps without a GPU")]
        editor.open("scripts/both.py", SCRIPT.replace("import torch\n", MODEL, 1))
        await editor.published_for("scripts/both.py", 1)
        assert await editor.lenses("scripts/both.py") == [(0, "Run its first steps without a GPU")]
        await editor.command("memlint.run", editor.uri("scripts/train.py"))
        await editor.traced(1)
        ((line, verdict),) = await editor.lenses("scripts/train.py")
        assert line == 0
        assert verdict.endswith("on NVIDIA A100 80 GB, fits")
        # A file that has nothing to do with PyTorch is not run, and one without models is no mistake.
        editor.open("other.py", f"open({str(marker)!r}, 'w').close()\n")
        editor.save("other.py")
        editor.open("functions.py", "import torch\n\ndef double(x):\n    return 2 * torch.relu(x)\n")
        editor.save("functions.py")
        await editor.traced(2)
        assert not marker.exists()
        assert editor.diagnostics("functions.py") == []

    edited(tmp_path, scenario, batch=-1)


def test_without_pygls_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    result = CliRunner().invoke(cli.main, ["lsp", "--stdio"])
    assert result.exit_code == 2
    assert install_command("lsp") in result.output


def test_the_server_ends_with_its_editor(tmp_path):
    server = subprocess.Popen(
        [sys.executable, "-m", "memlint", "lsp", "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    )
    server.stdin.close()
    assert server.wait(60) == 0
    assert not psutil.pid_exists(server.pid) or os.name == "nt"
