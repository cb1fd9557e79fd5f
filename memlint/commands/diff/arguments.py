"""What stands after `--`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the runs of `memlint check` are told."""

    words: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Those of the words that are targets."""

    def without(self, paths: Sequence[str]) -> Arguments:
        """The same without some of the targets."""
        words = list(self.words)
        for path in paths:
            del words[len(words) - 1 - words[::-1].index(path)]
        return Arguments(tuple(words), tuple(path for path in self.paths if path not in paths))
