"""What a user may type after `memlint check`: a file, a name in it, a Hugging Face config."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from memlint.base.errors import TargetError

SEPARATOR = "::"


class Target(NamedTuple):
    """A target taken apart. Exactly one of `path` and `module` is set."""

    text: str
    path: Path | None
    """Absolute."""
    module: str
    """Name of an installed module, as in `transformers::LlamaConfig`."""
    qualname: str
    """The name after `::`, may be dotted; empty for the whole file."""

    @property
    def is_config(self) -> bool:
        """Whether it is a Hugging Face `config.json`."""
        return self.path is not None and self.path.suffix == ".json"


def parse_target(text: str, base: Path) -> Target:
    """Take `text` apart; relative paths count from `base`.

    A folder with a `config.json` stands for that. Raises TargetError for what is neither a file nor a module's name.
    """
    place, _, qualname = text.partition(SEPARATOR)
    if not place.endswith((".py", ".json")) and qualname and all(part.isidentifier() for part in place.split(".")):
        return Target(text, None, place, qualname)
    path = (base / os.path.expanduser(place)).resolve()  # noqa: PTH111 -- a file may be called ~x.py
    if path.is_dir() and (path / "config.json").is_file():
        path /= "config.json"
    hint = "Write path.py, path.py::Name or the path of a config.json."
    if not path.exists():
        raise TargetError(f"{place} does not exist", hint)
    if path.is_dir() or path.suffix not in {".py", ".json"}:
        raise TargetError(f"{place} is neither a Python file nor a Hugging Face config.json", hint)
    return Target(text, path, "", qualname)
