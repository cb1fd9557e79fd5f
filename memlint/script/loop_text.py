"""The text of a training loop, for what a script that ended early has not made."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base.ownership import file_of, is_users
from memlint.config import find_settings
from memlint.memory.records import Assumption, Frame
from memlint.script.frozen_parts import batch_when_freed, frees_later
from memlint.source.fed_calls import FedCall, fed_call
from memlint.source.text import source_at
from memlint.source.training_loop import LoopSetting, loop_of_files
from memlint.targets.built import Setting

if TYPE_CHECKING:
    import ast

    from memlint.targets.script import Script


class LoopText:
    """The training loop as the text of the script and of the project's files that it imported has it."""

    def __init__(self, script: Script) -> None:
        main = [script.path] if script.path else []
        _settings, root = find_settings(Path(os.path.realpath(script.path or os.curdir)).parent)
        self._root = root if script.path else Path.cwd()
        own = (file for file in map(file_of, list(sys.modules.values())) if file.endswith(".py") and is_users(file))
        paths = (Path(os.path.realpath(each)) for each in dict.fromkeys((*main, *own)))
        self._paths = [path for path in paths if path.is_relative_to(self._root)]
        self._used: list[str] = []

    @cached_property
    def _settings(self) -> dict[str, LoopSetting]:
        return loop_of_files(self._paths, self._root)

    def setting(self, name: str) -> Setting | None:
        """Return a setting of the loop, which counts as used; None if the text does not decide it."""
        stated = self._settings.get(name)
        if stated is None:
            return None
        self._used.append(name)
        value = stated.value if isinstance(stated.value, int) else str(stated.value)
        return Setting(value, stated.text, Frame(stated.path, stated.line, ""), is_sure=False)

    def frees_parameters(self) -> bool:
        """Return True if the training frees parameters later that it has frozen at first."""
        return frees_later(self._trees())

    def batch_when_freed(self) -> str:
        """Return the name of the batch size with which it goes on then; empty if the batch stays as it is."""
        return batch_when_freed(self._trees())

    def _trees(self) -> Iterator[ast.Module]:
        return (each.tree for each in map(source_at, self._paths) if each is not None)

    def fed(self, makers: Collection[str]) -> FedCall | None:
        """Return the call of the model that one of these classes or functions gives."""
        sources = (source_at(path) for path in self._paths)
        return fed_call((each for each in sources if each is not None), makers)

    def sizes_with(self, known: Mapping[str, object]) -> dict[str, object]:
        """Return the sizes of images and texts, and those that are `known`: the text has defaults of them."""
        hidden = {"image_size"} if "image_height" in known else set()
        sizes = {name: each.value for name, each in self._settings.items() if type(each.value) is int}
        return {**{name: size for name, size in sizes.items() if name not in hidden}, **known}

    def used(self) -> list[Assumption]:
        """Return what the text said of the optimizer and the loss, where it was needed."""
        return [
            Assumption(f"{name} {each.value}: {each.text}", Frame(each.path, each.line, ""), found=True)
            for name, each in self._settings.items()
            if name in self._used and name in ("optimizer", "loss")
        ]
