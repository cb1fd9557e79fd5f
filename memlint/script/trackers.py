"""Trackers of experiments that a script asks to send its figures to another machine: they keep silent."""

import functools
from types import ModuleType
from typing import Any

from memlint.base.after_import import after_import


def silence_trackers() -> None:
    """Let wandb and swanlab do nothing, also where the script says `mode="online"`: that wants an account."""
    for name in ("wandb", "swanlab"):
        after_import(name, _silence)


def _silence(module: ModuleType) -> None:
    init = module.init

    @functools.wraps(init)
    def begin(*args: Any, **kwargs: Any) -> Any:
        return init(*args, **kwargs | {"mode": "disabled"})

    module.init = begin  # type: ignore[attr-defined]
