"""The files of one side, in place or checked out by git for the analysis, and the import paths there."""

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memlint.base.errors import TargetError, UsageError

_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")  # hooks are for the user's own checkouts
_OF_A_COMMIT = ("GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables that git sets for a hook about the commit in progress: a checkout would write into its index."""
_ONE_AT_A_TIME = threading.Lock()
_HALF_MADE, _ATTEMPTS, _PATIENCE = "commondir", 5, 0.2
"""git fails for a moment (seconds) on a worktree that another process is creating."""
_SUBMODULE = "160000"
"""git's mode of a submodule's commit among the files of a tree."""
_IMPORT_PATHS = """
import json, os, sys
from importlib.metadata import distributions
from urllib.parse import urlsplit
from urllib.request import url2pathname

paths = [path for path in sys.path if path]
for each in distributions():
    origin = json.loads(each.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        folder = url2pathname(urlsplit(origin["url"]).path)
        source = os.path.join(folder, "src")
        paths.append(source if os.path.isdir(source) else folder)
ours = ("memlint", "memlint_libraries", "memlint_rules")
print(json.dumps([path for path in paths if not any(os.path.isdir(os.path.join(path, name)) for name in ours)]))
"""
"""Script that prints an environment's import paths: sys.path, and the folders of `pip install -e`, except memlint's."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """Files to analyse."""

    directory: Path
    """Working directory for memlint."""
    commit: str | None = None
    original: Path | None = None
    """The repository of a revision; nothing should be imported from it."""
    root: Path | None = None
    """The top of the revision's repository in the checkout."""
    missing: tuple[str, ...] = ()
    """Submodules whose commits are not on this machine: their folders are empty."""


def commit_of(revision: str) -> str:
    """Return the commit of a git revision. Raises UsageError with the reason if there is none."""
    if not revision.strip():
        raise UsageError(
            f"{revision!r} names nothing", "Give a directory, a report or a git revision, or leave it out."
        )
    if revision.startswith("-"):
        raise UsageError(f"{revision} is not a revision", "Options go before `--`: see `memlint diff --help`.")
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit.returncode == 0:
        return commit.stdout.strip()
    repository = _git("rev-parse", "--git-dir")
    if repository.returncode:
        raise _no_repository(revision, repository.stderr)
    if _git("rev-parse", "--verify", "--quiet", "HEAD").returncode:
        raise UsageError(f"{revision} is not in this repository: it has no commit yet", "Commit something first.")
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() == "true":
        raise UsageError(
            f"{revision} is not in this clone: it is shallow, and ends before that",
            "Run `git fetch --unshallow`; with actions/checkout write `fetch-depth: 0`.",
        )
    hint = "See `git log --oneline --all`, or fetch it: `git fetch origin`."
    raise UsageError(f"{revision} is not a file, a directory or a revision of this repository", hint)


def _no_repository(revision: str, output: str) -> UsageError:
    if not output or "not a git repository" in output:
        return UsageError(
            f"{revision} is not a file or a directory, and this is no git repository",
            "Give a directory, a report that `memlint check --output-format json` wrote, or a git revision.",
        )
    reason, *advice = [line.strip() for line in output.splitlines() if line.strip()]
    return UsageError(f"git says of {revision}: {reason.removeprefix('fatal: ')}", " ".join(advice))


@contextmanager
def checkout(revision: str) -> Iterator[Checkout]:
    """Check out a revision in a worktree of its own, and give the folder there that corresponds to the current one.

    The worktree includes the submodules whose commits are on this machine. Raises UsageError if there is no such
    revision, TargetError if it cannot be checked out.
    """
    commit = commit_of(revision)
    root = Path(_git("rev-parse", "--show-toplevel").stdout.strip())
    below = _git("rev-parse", "--show-prefix").stdout.strip()
    with tempfile.TemporaryDirectory(prefix="memlint-diff-", ignore_cleanup_errors=True) as folder:
        place = Path(folder).resolve() / root.name
        worktrees: list[tuple[Path | None, Path]] = []
        try:
            if reason := _add(None, commit, place, worktrees):
                raise TargetError(f"{revision} cannot be checked out: {reason}", "Try `git worktree prune`.")
            missing = tuple(_add_submodules(root, commit, place, worktrees))
            directory = place / below
            if not directory.is_dir():
                raise TargetError(
                    f"{revision} has no {below.rstrip('/')}", "Run memlint diff in a directory that both sides have."
                )
            yield Checkout(directory, commit, root, place, missing)
        finally:
            for repository, worktree in reversed(worktrees):
                _git("worktree", "remove", "--force", str(worktree), inside=repository)


def environment_of(python: Sequence[str], place: Checkout) -> dict[str, str]:
    """Return the environment variables for a run of `python`, given with its options, in `place`.

    Import paths below the working tree become the same folders of the revision, and the revision's `src` is added.
    memlint's workers put other folders with code first themselves.
    """
    if place.original is None or place.root is None:
        return dict(os.environ)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    moved = (_moved(path, place.original, place.root) for path in (*known, *_import_paths(python)))
    own = dict.fromkeys([str(place.directory / "src"), *(str(path) for path in moved if path is not None)])
    paths = [*(path for path in own if Path(path).is_dir()), *filter(None, known)]
    return {**os.environ, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def _import_paths(python: Sequence[str]) -> list[str]:
    try:
        answer = subprocess.run([*python, "-c", _IMPORT_PATHS], capture_output=True, text=True, check=False)
        return list(json.loads(answer.stdout)) if answer.returncode == 0 else []
    except (OSError, ValueError):  # the run itself reports the error
        return []


def _moved(path: str, original: Path, root: Path) -> Path | None:
    """Return the revision's folder for one of the working tree; None for a folder outside it."""
    folder, real = Path(path).resolve(), original.resolve()
    return root / folder.relative_to(real) if Path(path).is_absolute() and folder.is_relative_to(real) else None


def _add(repository: Path | None, commit: str, place: Path, worktrees: list[tuple[Path | None, Path]]) -> str:
    """Check out a commit at `place`, and add `place` to `worktrees`; returns why git failed, if it did.

    `repository` is the folder of a submodule, or None for the current repository.
    """
    worktrees.append((repository, place))
    for _attempt in range(_ATTEMPTS):
        with _ONE_AT_A_TIME:
            added = _git(*_NO_HOOKS, "worktree", "add", "--quiet", "--detach", str(place), commit, inside=repository)
        if added.returncode == 0:
            return ""
        if _HALF_MADE not in added.stderr:
            break
        time.sleep(_PATIENCE)
    return added.stderr.strip()


def _add_submodules(
    root: Path, commit: str, place: Path, worktrees: list[tuple[Path | None, Path]], parent: str = ""
) -> Iterator[str]:
    """Check out the submodules of a commit of the repository at `root`, from their clones on this machine.

    Yields the missing ones.
    """
    if not (place / ".gitmodules").is_file():
        return
    listed = _git("ls-tree", "-r", "-z", "--full-tree", commit, inside=root if parent else None).stdout
    for entry in filter(None, listed.split("\0")):
        about, _, path = entry.partition("\t")
        mode, _kind, revision = about.split()
        if mode != _SUBMODULE:
            continue
        clone = root / path
        if not (clone / ".git").exists() or _add(clone, revision, place / path, worktrees):
            yield f"{parent}{path}"
        else:
            yield from _add_submodules(clone, revision, place / path, worktrees, f"{parent}{path}/")


def _git(*arguments: str, inside: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run git, in English, in the current directory or inside the submodule in another."""
    without = _OF_A_COMMIT if inside is None else (*_OF_A_COMMIT, "GIT_DIR", "GIT_WORK_TREE")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=inside,
            env={**environment, "LC_ALL": "C"},
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed", "Install it, or give report files or directories.") from error
