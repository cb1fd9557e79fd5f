"""The hooks of .pre-commit-hooks.yaml in git repositories, run by the real pre-commit and the real prek.

Most tests take only the manifest from a repository, with the command of this environment. One for each runner installs
memlint from a clone, as users do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFEST = ".pre-commit-hooks.yaml"
PACKAGE = ("memlint", "rules", "pyproject.toml", "README.md", "LICENSE", MANIFEST)
RUNNERS = ("pre-commit", "prek")
CORRECTABLE = """
import torch


def fit(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss
    print(total)
"""
CLEAN = CORRECTABLE.replace("+= loss", "+= loss.detach()")
LEAK = CLEAN.replace("    print", "        torch.cuda.empty_cache()\n    print")
ATTENTION = """
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width=256, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        {}
        return (y.transpose(1, 2).reshape(b, n, w)).mean()
"""
FUSED = ATTENTION.format("y = F.scaled_dot_product_attention(q, k, v)")
MATERIALISED = ATTENTION.format("y = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1) @ v")
MODEL = """
import os
from pathlib import Path

import torch
from attention import Attention

with Path(os.environ["TEST_RUNS"]).open("a") as file:
    file.write("run\\n")


def memlint_workload(batch):
    return Attention(), torch.randn(batch, 1024, 256)
"""


class Repository:
    """A git repository that uses the hooks, in an environment without settings of whoever runs the tests."""

    def __init__(self, directory: Path, runner: str, homes: Path) -> None:
        self.directory = directory
        self.runner = str(Path(sysconfig.get_path("scripts")) / runner)
        ours = [*RUNNERS, "GIT", "PIP_", "FORCE_COLOR", "NO_COLOR", "CLICOLOR"]
        own = tuple(name.upper().replace("-", "_") for name in ours)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(own) or k.startswith("PIP_")}
        self.environment = {
            **kept,
            "PATH": os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"])),
            "PRE_COMMIT_HOME": str(homes / "pre-commit"),
            "PREK_HOME": str(homes / "prek"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            "TEST_RUNS": str(directory.with_suffix(".runs")),
        }
        directory.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        return self._run("git", *arguments, check=True).stdout

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            file = self.directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(dedent(text).lstrip("\n"))

    def commit(self, files: dict[str, str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Write and commit files; what git and the hooks say is all in `stdout`."""
        self.write(files)
        self.git("add", "--all")
        return self._run("git", "commit", "-q", "-m", "x", **environment)

    def use(self, source: Path, *hooks: dict[str, Any]) -> None:
        """Configure hooks of the git repository `source` and install the runner."""
        revision = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=source, capture_output=True, text=True, check=True
        ).stdout.strip()
        repository = {"repo": str(source), "rev": revision, "hooks": list(hooks)}
        other = {"repo": "meta", "hooks": [{"id": "identity"}]}  # prek refuses to skip all there are
        self.write({".pre-commit-config.yaml": yaml.safe_dump({"repos": [repository, other]})})
        assert self._run(self.runner, "install").returncode == 0

    def runs(self) -> int:
        """How often the model's file was imported."""
        file = Path(self.environment["TEST_RUNS"])
        return len(file.read_text().splitlines()) if file.exists() else 0

    def _run(self, *command: str, check: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.directory,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=check,
        )


def _published(directory: Path, files: tuple[str, ...]) -> Path:
    """A git repository with these files of memlint."""
    directory.mkdir()
    for name in files:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, directory / name)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for command in (("init", "-q"), ("add", "--all"), ("commit", "-q", "-m", "x")):
        subprocess.run(["git", *identity, *command], cwd=directory, check=True)
    return directory


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return _published(tmp_path_factory.mktemp("published") / "memlint", (MANIFEST,))


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(params=RUNNERS)
def repository(request, tmp_path, homes):
    return Repository(tmp_path / "repository", request.param, homes)


HERE = {"language": "unsupported"}
"""For `memlint-source`: the command of this environment, which takes no installation."""


def test_the_source_hook_passes_what_is_clean_or_excluded_fails_and_is_skipped(repository, manifest):
    repository.use(manifest, {"id": "memlint-source", **HERE})
    excluding = "[tool.memlint]\nexclude = ['vendor']\n"
    clean = repository.commit({"loop.py": CLEAN, "a b.py": "", "pyproject.toml": excluding, "vendor/leak.py": LEAK})
    assert (clean.returncode, "Passed" in clean.stdout) == (0, True), clean.stdout
    found = repository.commit({"leak.py": LEAK})
    assert found.returncode != 0
    assert "leak.py:12:9: MEM601" in found.stdout
    assert "Traceback" not in found.stdout
    skipped = repository.commit({}, SKIP="memlint-source")
    assert (skipped.returncode, "MEM601" in skipped.stdout) == (0, False), skipped.stdout
    others = repository.commit({"notes.md": "x\n", "script.sh": "#!/bin/sh\n"})
    assert (others.returncode, "no files to check" in others.stdout) == (0, True), others.stdout


def test_the_source_hook_corrects_where_it_is_asked_to_and_fails_once(repository, manifest):
    repository.use(manifest, {"id": "memlint-source", "args": ["--fix"], **HERE})
    first = repository.commit({"-loop.py": CORRECTABLE})
    assert first.returncode != 0
    assert "files were modified by this hook" in first.stdout
    assert (repository.directory / "-loop.py").read_text() == CLEAN.lstrip("\n")
    second = repository.commit({})
    assert second.returncode == 0, second.stdout
    assert repository.git("show", "HEAD:-loop.py") == CLEAN.lstrip("\n")


@pytest.mark.parametrize("repository", ["pre-commit", pytest.param("prek", marks=pytest.mark.slow)], indirect=True)
def test_only_the_workloads_of_a_commit_are_run_and_worse_attention_is_found(repository, manifest):
    repository.commit({"model.py": MODEL, "attention.py": FUSED, "tokens.py": "SIZE = 1\n", "conf.toml": ""})
    repository.use(manifest, {"id": "memlint", "verbose": True})
    unrelated = repository.commit({"tokens.py": "SIZE = 2\n", "conf.toml": "x = 1\n"})
    assert unrelated.returncode == 0, unrelated.stdout
    assert "not affected by these files: model.py" in unrelated.stdout
    assert repository.runs() == 0
    worse = repository.commit({"attention.py": MATERIALISED})
    assert worse.returncode != 0
    assert "attention.py:15:1: MEM103" in worse.stdout, worse.stdout
    assert "model.py::memlint_workload needs" in worse.stdout
    assert repository.runs() == 1
    if "pre-commit" in repository.runner:
        assert [line for line in _block("<!-- output -->")[1:] if line not in worse.stdout.splitlines()] == []


@pytest.mark.slow
def test_a_workload_that_no_commit_changes_is_run_once(repository, manifest):
    files = {"model.py": MODEL, "attention.py": FUSED, "pyproject.toml": "[tool.memlint]\nselect = 'MEM103'\n"}
    repository.use(manifest, {"id": "memlint", "verbose": True})
    assert repository.commit(files).returncode == 0
    assert repository.runs() == 1
    same_settings = {"pyproject.toml": "# the same\n[tool.memlint]\nselect = 'MEM103'\n"}
    again = repository.commit(same_settings, OF_ANOTHER_SHELL="1")
    assert again.returncode == 0, again.stdout
    assert "model.py::memlint_workload needs" in again.stdout
    assert repository.runs() == 1


@pytest.mark.slow
def test_in_a_worktree_the_hook_looks_at_the_worktree(repository, manifest):
    repository.commit({"model.py": MODEL, "attention.py": FUSED})
    repository.use(manifest, {"id": "memlint"})
    repository.commit({}, SKIP="memlint")
    repository.git("worktree", "add", "-q", "-b", "other", "../other tree")
    repository.directory = repository.directory.parent / "other tree"
    worse = repository.commit({"attention.py": MATERIALISED})
    assert worse.returncode != 0
    assert "attention.py:15:1: MEM103" in worse.stdout, worse.stdout


@pytest.mark.slow
def test_the_source_hook_installs_from_a_clone_without_pytorch(repository, tmp_path):
    clone = _published(tmp_path / "memlint", PACKAGE)
    repository.use(clone, {"id": "memlint-source", "args": ["--fix"]})
    repository.environment["PATH"] = os.pathsep.join(
        place for place in repository.environment["PATH"].split(os.pathsep) if place != sysconfig.get_path("scripts")
    )
    first = repository.commit({"loop.py": CORRECTABLE})
    assert first.returncode != 0
    assert "files were modified by this hook" in first.stdout, first.stdout
    assert repository.commit({}).returncode == 0
    found = repository.commit({"leak.py": LEAK})
    assert "leak.py:12:9: MEM601" in found.stdout, found.stdout
    homes = Path(repository.environment["PRE_COMMIT_HOME"]).parent
    commands = [file for file in homes.rglob("memlint*") if file.parent.name in ("bin", "Scripts")]
    assert commands
    for command in commands:
        [python] = (file for file in command.parent.glob("python*") if file.stem == "python")
        done = subprocess.run([python, "-c", "import memlint, torch"], capture_output=True, text=True, check=False)
        assert "No module named 'torch'" in done.stderr, done.stderr


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_manifest_is_valid(runner):
    command = [str(Path(sysconfig.get_path("scripts")) / runner), "validate-manifest", str(ROOT / MANIFEST)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_documented_configuration_is_valid(tmp_path):
    text = "\n".join(_block("<!-- pre-commit -->"))
    (tmp_path / "config.yaml").write_text(text)
    command = [
        str(Path(sysconfig.get_path("scripts")) / "pre-commit"),
        "validate-config",
        str(tmp_path / "config.yaml"),
    ]
    assert subprocess.run(command, check=False).returncode == 0
    published = {hook["id"] for hook in yaml.safe_load((ROOT / MANIFEST).read_text())}
    assert {hook["id"] for repo in yaml.safe_load(text)["repos"] for hook in repo["hooks"]} <= published


def _block(mark: str) -> list[str]:
    """Lines of the code block that follows a mark in docs/pre-commit.md."""
    page = (ROOT / "docs" / "pre-commit.md").read_text(encoding="utf-8")
    return page.partition(mark)[2].split("```")[1].splitlines()[1:]


def test_the_commands_of_the_hooks_are_those_of_this_version():
    for hook in yaml.safe_load((ROOT / MANIFEST).read_text()):
        done = subprocess.run(
            [sys.executable, "-m", *hook["entry"].split(), "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_hooks_of_this_repository_are_valid_and_of_the_pinned_versions():
    file = ROOT / ".pre-commit-config.yaml"
    command = [str(Path(sysconfig.get_path("scripts")) / "pre-commit"), "validate-config", str(file)]
    assert subprocess.run(command, check=False).returncode == 0
    hooks = [hook for repo in yaml.safe_load(file.read_text())["repos"] for hook in repo["hooks"]]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format", "mypy", "memlint"]
    pins = {pin for hook in hooks for pin in hook.get("additional_dependencies", ())}
    assert pins
    assert pins <= set((ROOT / "constraints.txt").read_text().splitlines())
