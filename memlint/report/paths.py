"""Paths in a report as people write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def relative(value: Any, directory: Path, typed: Iterable[Path] = ()) -> Any:
    """`value` with `directory` and the slash after it taken out of every text in it.

    Of files elsewhere that were `typed` as `../train.py` the folder is written like that.
    """
    folders = {f"{file.parent.resolve()}/": f"{file.parent}/" for file in typed if file.parts[:1] == ("..",)}
    folders[f"{directory}/".replace("//", "/")] = ""
    longest_first = sorted(folders, key=len, reverse=True)
    return _written(value, re.compile(r"(?<![\w./-])(?:" + "|".join(map(re.escape, longest_first)) + ")"), folders)


def _written(value: Any, beginning: re.Pattern[str], folders: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return beginning.sub(lambda found: folders[found[0]], value)
    if isinstance(value, dict):
        return {key: _written(item, beginning, folders) for key, item in value.items()}
    return [_written(item, beginning, folders) for item in value] if isinstance(value, list | tuple) else value
