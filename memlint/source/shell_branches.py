"""The commands of a shell script's lines, and the branches of `if` that run where its tests compare known texts."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {"=": operator.eq, "==": operator.eq, "!=": operator.ne}
_OF_NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
_UNKNOWN = re.compile(r"[$`*?]")
UNQUOTED = r"(?=(?:[^'\"]|'[^']*'|\"[^\"]*\")*$)"
_SEPARATORS = re.compile(rf"\s*(?:&&|\|\||;|\||(?<![>&\d])&(?![>&\d]))\s*{UNQUOTED}")


def commands_of(line: str) -> Iterator[str]:
    """Yield the commands of one line, each word of an `if` or a loop that stands before one by itself."""
    for command in _SEPARATORS.split(line.strip()):
        yield from filter(None, re.split(r"^(do|then|else)\s+", command.strip()))


class Branches:
    """The `if` around each of the lines that come one after the other.

    A branch runs unless a test says otherwise; a test that only a shell could do says nothing.
    """

    def __init__(self) -> None:
        self._ifs: list[_If] = []
        self._is_in_test = False

    def read(self, words: Sequence[str]) -> None:
        """Take the next line, of these words."""
        first = words[0] if words else ""
        if first == "if":
            self._ifs.append(_If())
        elif first == "fi":
            del self._ifs[-1:]
        if self._ifs and first in ("if", "elif", "else"):
            self._ifs[-1].begin(_result(words[1:]) if first != "else" else True)
        elif self._ifs and self._is_in_test and first != "then":  # `&&` and `||` join several tests
            self._ifs[-1] = _If()
        self._is_in_test = first in ("if", "elif") or (self._is_in_test and first != "then")

    @property
    def run(self) -> bool:
        """True if the line that was read last runs."""
        return all(each.runs for each in self._ifs)


class _If:
    """One `if`: the branch that is being read, and the knowledge that an earlier one ran."""

    def __init__(self) -> None:
        self.runs = True
        self._has_run = False

    def begin(self, result: bool | None) -> None:
        self.runs = not self._has_run and result is not False
        self._has_run = self._has_run or result is True


def _result(test: Sequence[str]) -> bool | None:
    """Return the result of `[ -n text ]`, `[ text = other ]` and the like; None where it is not known."""
    match [word for word in test if word not in ("[", "[[", "]", "]]")]:
        case ["!", *rest]:
            result = _result(rest)
            return None if result is None else not result
        case ["-n" | "-z" as question, text] if not _UNKNOWN.search(text):
            return bool(text) == (question == "-n")
        case [left, symbol, right] if symbol in _COMPARISONS and not _UNKNOWN.search(left + right):
            return _COMPARISONS[symbol](left, right)
        case [left, symbol, right] if symbol in _OF_NUMBERS and left.isdecimal() and right.isdecimal():
            return _OF_NUMBERS[symbol](int(left), int(right))
    return None
