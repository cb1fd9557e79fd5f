"""`exclude`: files and folders left out by patterns as in a .gitignore."""

from collections.abc import Callable, Sequence
from pathlib import Path

from memlint.base.errors import UsageError


def exclusion(patterns: Sequence[str], root: Path) -> Callable[[Path], bool]:
    """Return a predicate: True if `patterns` leave out an absolute path below `root`, or a folder around it.

    `root` itself and paths outside it are never left out. Raises UsageError for a pattern that has no meaning.
    """
    if not patterns:
        return lambda _path: False
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 -- most runs exclude nothing

    try:
        spec = GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise UsageError(f"exclude: {error}", "Write patterns as in a .gitignore: vendor, *_old.py, src/**.") from error

    def is_excluded(path: Path) -> bool:
        if path == root or not path.is_relative_to(root):
            return False
        return spec.match_file(path.relative_to(root).as_posix() + "/" * path.is_dir())

    return is_excluded
