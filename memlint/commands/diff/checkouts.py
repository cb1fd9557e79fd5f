"""The files of one side: where they are, or where git puts them while they are analysed, and what is imported there."""

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

_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")  # a checkout for memlint is none of their business
_OF_A_COMMIT = ("GIT_INDEX_FILE", "GIT_PREFIX")
"""What git tells a hook of the commit that is being made: a checkout would write into its index."""
_ONE_AT_A_TIME = threading.Lock()
_HALF_MADE, _ATTEMPTS, _PATIENCE = "commondir", 5, 0.2
"""git fails on a worktree that another process is just making, for a moment (seconds)."""
_SUBMODULE = "160000"
"""How git marks the commit of a submodule among the files of a tree."""
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
"""Asks an environment where it imports from: its path, and what `pip install -e` finds otherwise, but for memlint."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """Files that can be analysed."""

    directory: Path
    """Where to run memlint."""
    commit: str | None = None
    original: Path | None = None
    """The repository that a revision was taken from; nothing should be imported from it."""
    root: Path | None = None
    """Where the top of the repository of a revision stands here."""
    missing: tuple[str, ...] = ()
    """Submodules whose commits are not on this machine: their folders are empty."""


def commit_of(revision: str) -> str:
    """The commit that a git revision stands for. Raises UsageError where there is none, and says why."""
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
    """The files of a revision in a worktree of their own, at the place below its root that we are at below ours.

    Submodules stand in it as far as their commits are on this machine. Raises UsageError where there is no such
    revision, TargetError where it cannot be checked out.
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
    """The variables for a run in `place` of the `python` given with its options.

    What is imported from below the working tree comes from the same folder of the revision, and so does what the
    revision has below `src`. Other folders with code memlint's workers put first themselves.
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
    except (OSError, ValueError):  # what is wrong with it, the run itself says
        return []


def _moved(path: str, original: Path, root: Path) -> Path | None:
    """The folder of the revision that stands for one of the working tree; None for what is not in that."""
    folder, real = Path(path).resolve(), original.resolve()
    return root / folder.relative_to(real) if Path(path).is_absolute() and folder.is_relative_to(real) else None


def _add(repository: Path | None, commit: str, place: Path, worktrees: list[tuple[Path | None, Path]]) -> str:
    """Put the files of a commit at `place`, which goes to `worktrees`; if git does not, say why.

    The repository is that of the submodule in a folder, or None for the one that we are in.
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
    """Put the submodules of a commit of the repository at `root` where they belong, from their clones here.

    Yields those that are not there.
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
    """Run git, in English, in this directory or inside of the submodule in another."""
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
