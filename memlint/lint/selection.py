"""Which rules were asked for, and in which files they are not to be reported.

As with ruff a code or the beginning of codes selects or ignores, and the longest beginning decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from memlint.base.errors import UsageError
from memlint.config import code_prefix
from memlint.lint.diagnostics import Diagnostic
from memlint.lint.rule import Rule

OWN_LETTERS = "MEM"
"""The letters with which the codes of the built-in rules begin."""


def select_rules(
    rules: Iterable[Rule],
    select: Sequence[str] = ("ALL",),
    ignore: Sequence[str] = (),
    extend_select: Sequence[str] = (),
    *,
    complete: bool = True,
) -> tuple[Rule, ...]:
    """Choose rules by `select`, `extend_select` and `ignore`, which hold codes, beginnings of codes, or `ALL`.

    The longest beginning that matches decides, and `ignore` wins between equals. Diagnostics need no selecting. Raises
    UsageError for a code no rule begins with; unless `complete`, only for one that would be a built-in rule's, because
    the others may be of rules that could not be loaded.
    """
    rules = tuple(rules)
    chosen = [
        *prefixes("select", select, rules, complete=complete),
        *prefixes("extend-select", extend_select, rules, complete=complete),
    ]
    ignored = prefixes("ignore", ignore, rules, complete=complete)
    return tuple(
        rule
        for rule in rules
        if _longest(rule.code, chosen) > (unwanted := _longest(rule.code, ignored))
        or (isinstance(rule, Diagnostic) and unwanted < 0)
    )


@dataclass(frozen=True, slots=True)
class FileIgnores:
    """`per-file-ignores`: beginnings of codes by pattern of paths below `root`."""

    root: Path
    by_pattern: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(
        cls, table: Mapping[str, Sequence[str]], root: Path, rules: Sequence[Rule], *, complete: bool = True
    ) -> Self:
        """Read the table; raises UsageError for a code no rule begins with, as `select_rules` does."""
        return cls(
            root.resolve(),
            tuple(
                (pattern, prefixes(f'per-file-ignores, "{pattern}"', codes, rules, complete=complete))
                for pattern, codes in table.items()
            ),
        )

    def ignores(self, code: str, path: str | Path) -> bool:
        """Return True if a finding of `code` in the file at `path` is not wanted."""
        return any(
            code.startswith(ignored) and _matches(self.root, Path(path), pattern)
            for pattern, ignored in self.by_pattern
        )


def _matches(root: Path, path: Path, pattern: str) -> bool:
    """Return True if the name or the path below `root` matches; `*` also stands for `/`, and a leading `!` negates."""
    if pattern.startswith("!"):
        return not _matches(root, path, pattern[1:])
    absolute = path.resolve()
    below = absolute.relative_to(root) if absolute.is_relative_to(root) else absolute
    patterns = {pattern.removeprefix("./"), pattern.removeprefix("**/")}
    return any(fnmatchcase(text, each) for text in (below.as_posix(), below.name) for each in patterns)


def prefixes(key: str, texts: Iterable[str], rules: Sequence[Rule], *, complete: bool = True) -> tuple[str, ...]:
    """Upper-case beginnings of codes, `ALL` as the empty one. Raises UsageError that names `key`."""
    return tuple(_prefix(key, text, rules, complete=complete) for text in texts)


def _prefix(key: str, text: str, rules: Sequence[Rule], *, complete: bool) -> str:
    prefix = code_prefix(text)
    if text.strip() and any(rule.code.startswith(prefix) for rule in rules):
        return prefix
    if text.strip() and not complete and not prefix.startswith(OWN_LETTERS):
        return prefix
    raise unknown(text, rules, key)


def _longest(code: str, prefixes: Iterable[str]) -> int:
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=-1)


def closest_code(code: str, codes: Iterable[str]) -> str | None:
    """Find the code that was most likely meant: the same characters in another order, else the most similar ones."""
    code = code.strip().upper()

    def likeness(other: str) -> tuple[bool, float, int]:
        return (
            sorted(code) == sorted(other),
            SequenceMatcher(None, code, other).ratio(),
            sum(code.startswith(other[:length]) for length in range(1, len(other) + 1)),
        )

    best = max(codes, key=likeness, default=None)
    return best if best is not None and likeness(best)[1] >= 0.6 else None


def unknown(code: str, rules: Iterable[Rule], key: str = "") -> UsageError:
    """The error for a code, or a beginning of codes, that no rule has; `key` says where it stands."""
    rules = tuple(rules)
    names = {rule.name: rule.code for rule in rules}
    by_name = [names[name] for name in get_close_matches(code.strip().lower(), names, n=1)]
    close = by_name[0] if by_name else closest_code(code, names.values())
    hint = f"Did you mean {close}? " if close else ""
    if not by_name and len(code.strip()) < min(map(len, names.values()), default=0):
        hint = f"Codes begin with {', '.join(sorted({known[:-2] for known in names.values()}))}. "
    where = f"{key}: " if key else ""
    return UsageError(f"{where}there is no rule {code!r}", f"{hint}`memlint rule --all` lists the rules.")
