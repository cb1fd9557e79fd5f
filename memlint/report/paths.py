"""Paths in a report as people write them."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def relative(value: Any, directory: Path, typed: Iterable[Path] = ()) -> Any:
    """`value` with `directory` and the slash after it taken out of every text in it.

    Of files elsewhere that were `typed` as `../train.py` the folder is written like that.
    """
    folders = {f"{file.parent.resolve()}/": f"{file.parent}/" for file in typed if file.parts[:1] == ("..",)}
    folders[f"{directory}/".replace("//", "/")] = ""
    return _rewritten(value, folders)


def relative_to_parents(value: Any, directory: Path, root: Path) -> Any:
    """`value` with paths below `root`, one of the folders that `directory` is in, as `directory` sees them."""
    steps = enumerate((directory, *directory.parents))
    return _rewritten(value, {f"{folder}/": "../" * up for up, folder in steps if folder.is_relative_to(root)})


def _rewritten(value: Any, folders: Mapping[str, str]) -> Any:
    """`value` with the beginnings of paths in every text replaced, the longest that fits."""
    longest_first = sorted(folders, key=len, reverse=True)
    beginning = re.compile(r"(?<![\w./-])(?:" + "|".join(map(re.escape, longest_first)) + ")")

    def rewritten(item: Any) -> Any:
        match item:
            case str():
                return beginning.sub(lambda match: folders[match[0]], item)
            case dict():
                return {key: rewritten(each) for key, each in item.items()}
            case list() | tuple():
                return [rewritten(each) for each in item]
        return item

    return rewritten(value)
