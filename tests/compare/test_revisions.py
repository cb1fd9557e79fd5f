"""Where the files of a revision come from, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import memlint
from memlint.base.errors import UsageError
from memlint.cli import main
from memlint.commands.diff.checkouts import Checkout, checkout, environment_of

pytestmark = pytest.mark.usefixtures("copied_pythons")

IDENTITY = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "protocol.file.allow=always")
LOOP = "import torch\n\n\ndef run(model, loader):\n    model.eval()\n    for x in loader:\n        print(model(x).sum().item())\n"


def git(folder, *arguments: str) -> str:
    done = subprocess.run(["git", *IDENTITY, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def diff(*arguments: str):
    return CliRunner().invoke(main, ["diff", *arguments])


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """One commit of a project without workloads."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("import torch\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("how", [["-a"], ["."], ["--only", "train.py"], []])
def test_in_a_hook_the_commit_that_is_being_made_stays_what_it_is(repository, how):
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\n{sys.executable} -m memlint diff HEAD -- --no-exec > ../said 2>&1 || exit 1\n")
    hook.chmod(0o755)
    (repository / "train.py").write_text(LOOP)
    git(repository, "add", "train.py")
    (repository / "other.py").write_text("")
    git(repository, "commit", "-q", "-m", "two", *how)
    assert git(repository, "show", "--name-only", "--format=", "HEAD") == "train.py"
    assert git(repository, "status", "--short") == "?? other.py"
    assert "1 new finding" in (repository.parent / "said").read_text()


def test_submodules_of_a_revision_are_those_of_its_commit(repository, tmp_path):
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    (library / "sizes.py").write_text("WIDTH = 1\n")
    git(library, "add", "-A")
    git(library, "commit", "-q", "-m", "one")
    git(repository, "submodule", "--quiet", "add", library.as_uri(), "lib")
    git(repository, "commit", "-q", "-m", "with it")
    (repository / "lib" / "sizes.py").write_text("WIDTH = 2\n")
    git(repository / "lib", "commit", "-q", "-a", "-m", "two")
    git(repository, "commit", "-q", "-a", "-m", "another of it")
    for revision, text in (("HEAD~1", "WIDTH = 1\n"), ("HEAD", "WIDTH = 2\n")):
        with checkout(revision) as place:
            assert (place.directory / "lib" / "sizes.py").read_text() == text
            assert place.missing == ()
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository / "lib", "worktree", "list").count("\n") == 0


def test_a_submodule_that_is_not_here_is_said(repository, tmp_path, monkeypatch):
    test_submodules_of_a_revision_are_those_of_its_commit(repository, tmp_path)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repository), str(clone))
    monkeypatch.chdir(clone)
    told = json.loads(diff("HEAD", "--output-format", "json", "--", "--no-exec").stdout)
    assert any("HEAD was analysed without its submodules lib" in note for note in told["notes"])


def test_a_path_that_one_side_lacks_is_new_or_gone(repository):
    (repository / "loop.py").write_text(LOOP)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "two")
    words = ("--output-format", "json", "--", "--no-exec")
    for paths in (["loop.py"], ["train.py", "loop.py"]):
        told = json.loads(diff("HEAD~1", "HEAD", *words, *paths).stdout)
        assert [each["path"] for each in told["findings_new"]] == ["loop.py"]
    told = json.loads(diff("HEAD", "HEAD~1", *words, "loop.py").stdout)
    assert [each["path"] for each in told["findings_fixed"]] == ["loop.py"]
    nowhere = diff("HEAD~1", "HEAD", *words, "none.py")
    assert nowhere.exit_code == 2
    assert "HEAD~1 cannot be analysed: none.py does not exist\n  help: Give a file" in nowhere.stderr


def test_what_belongs_to_diff_itself_is_refused_however_it_is_written(repository):
    for words in (["-oX"], ["--output-file=X"], ["-o", "X"], ["--fix"], ["--exit-zero"]):
        result = diff("HEAD", "--", *words)
        assert result.exit_code == 2, words
        assert "cannot be given to the two runs of memlint check" in result.stderr
    assert not (repository / "X").exists()
    assert "No such option '--batc'" in diff("HEAD", "--", "--batc", "8").stderr


def test_a_relative_python_is_that_of_the_current_directory(repository):
    (repository / ".venv-main").symlink_to(sys.prefix)
    python = Path(".venv-main") / Path(sys.executable).relative_to(sys.prefix)
    result = diff("HEAD", "--base-python", str(python), "--", "--no-exec", "train.py")
    assert result.exit_code == 0, result.stderr


def test_what_is_installed_from_the_working_tree_comes_from_the_revision(repository, tmp_path, monkeypatch):
    installed = tmp_path / "site"
    for name in ("one", "two", "three"):
        (repository / "packages" / name / "src").mkdir(parents=True)
    for name, origin in (("one", repository / "packages" / "one"), ("elsewhere", tmp_path / "elsewhere")):
        about = installed / f"{name}-1.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        told = {"url": origin.as_uri(), "dir_info": {"editable": True}}
        (about / "direct_url.json").write_text(json.dumps(told))
    known = [str(installed), str(repository / "packages" / "two"), str(repository / "packages" / "three" / "src")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(known))
    revision = tmp_path / "revision"
    for folder in ("packages/one/src", "packages/two", "src"):
        (revision / folder).mkdir(parents=True)
    place = Checkout(revision, "c0ffee", repository, revision)
    paths = environment_of([sys.executable, "-P"], place)["PYTHONPATH"].split(os.pathsep)
    assert paths == [*(str(revision / each) for each in ("src", "packages/two", "packages/one/src")), *known]
    assert environment_of([sys.executable], Checkout(repository))["PYTHONPATH"] == os.pathsep.join(known)


def test_the_installed_memlint_analyses_its_own_revisions():
    """Not the one in the revision, although it is installed with `pip install -e` where memlint is developed."""
    ours = Path(memlint.__file__).parents[1]
    place = Checkout(ours, "c0ffee", ours, ours)
    assert str(ours) not in environment_of([sys.executable, "-P"], place).get("PYTHONPATH", "").split(os.pathsep)


def test_a_repository_that_git_does_not_trust_is_told_in_its_words(repository, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UsageError, match="dubious ownership") as error, checkout("HEAD"):
        pass
    assert "safe.directory" in (error.value.hint or "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_whoever_is_told_to_end_leaves_no_worktree_and_no_process(repository, tmp_path, number):
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *memlint*check*) echo $$ >> {tmp_path}/pids; exec sleep 120;; esac\n')
    slow.chmod(0o755)
    command = [sys.executable, "-m", "memlint", "diff", "HEAD", "HEAD"]
    folder = tmp_path / "temporary"
    folder.mkdir()
    process = subprocess.Popen(
        [*command, "--base-python", str(slow), "--head-python", str(slow)],
        env={**os.environ, "TMPDIR": str(folder)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    pids = tmp_path / "pids"
    deadline = time.monotonic() + 60
    while (not pids.exists() or pids.read_text().count("\n") < 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(30) == (130 if number == signal.SIGINT else 128 + number)
    assert git(repository, "worktree", "list").count("\n") == 0
    assert list(folder.iterdir()) == []
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
