"""The files of one side: where they are, or where git puts them for as long as they are looked at."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")  # a checkout for memlint is none of their business


@dataclass(frozen=True, slots=True)
class Checkout:
    """Files that can be analysed."""

    directory: Path
    """Where to run memlint."""
    commit: str | None = None
    original: Path | None = None
    """Of a revision the repository that it was taken from, from which nothing should be imported."""


def commit_of(revision: str) -> str:
    """The commit that a git revision stands for. Raises UsageError where there is none, and says why."""
    if revision.startswith("-"):
        raise UsageError(f"{revision} is not a revision", "Options go before `--`: see `memlint diff --help`.")
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found.returncode == 0:
        return found.stdout.strip()
    if _git("rev-parse", "--git-dir").returncode:
        raise UsageError(
            f"{revision} is not a file or a directory, and this is no git repository",
            "Give a directory, a report that `memlint check --output-format json` wrote, or a git revision.",
        )
    if _git("rev-parse", "--verify", "--quiet", "HEAD").returncode:
        raise UsageError(f"{revision} is not in this repository: it has no commit yet", "Commit something first.")
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() == "true":
        raise UsageError(
            f"{revision} is not in this clone: it is shallow, and ends before that",
            "Run `git fetch --unshallow`; with actions/checkout write `fetch-depth: 0`.",
        )
    hint = "See `git log --oneline --all`, or fetch it: `git fetch origin`."
    raise UsageError(f"{revision} is not a file, a directory or a revision of this repository", hint)


@contextmanager
def checkout(revision: str) -> Iterator[Checkout]:
    """The files of a revision in a worktree of their own, at the place below its root that we are at below ours.

    Raises UsageError where there is no such revision, TargetError where it cannot be checked out.
    """
    commit = commit_of(revision)
    root = Path(_git("rev-parse", "--show-toplevel").stdout.strip())
    below = _git("rev-parse", "--show-prefix").stdout.strip()
    with tempfile.TemporaryDirectory(prefix="memlint-diff-", ignore_cleanup_errors=True) as folder:
        place = Path(folder).resolve() / root.name
        try:
            made = _git(*_NO_HOOKS, "worktree", "add", "--quiet", "--detach", str(place), commit)
            if made.returncode:
                raise TargetError(
                    f"{revision} cannot be checked out: {made.stderr.strip()}", "Try `git worktree prune`."
                )
            directory = place / below
            if not directory.is_dir():
                raise TargetError(
                    f"{revision} has no {below.rstrip('/')}", "Run memlint diff in a directory that both sides have."
                )
            yield Checkout(directory, commit, root)
        finally:
            _git("worktree", "remove", "--force", str(place))


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UsageError("git is not installed", "Install it, or give report files or directories.") from error
