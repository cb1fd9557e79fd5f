"""Paths in a report as people write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def relative(value: Any, directory: Path) -> Any:
    """`value` with `directory` and the slash after it taken out of every text in it."""
    return _without(value, re.compile(r"(?<![\w./-])" + re.escape(f"{directory}/".replace("//", "/"))))


def _without(value: Any, beginning: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return beginning.sub("", value)
    if isinstance(value, dict):
        return {key: _without(item, beginning) for key, item in value.items()}
    return [_without(item, beginning) for item in value] if isinstance(value, list | tuple) else value
