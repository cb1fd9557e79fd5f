"""Trackers and plots: what sends figures to another machine keeps silent, TensorBoard writes by itself."""

import contextlib
import functools
import sys
from types import ModuleType
from typing import Any

from memlint.base.after_import import after_import


def silence_trackers() -> None:
    """Let wandb and swanlab do nothing, also where the script says `mode="online"`: that wants an account."""
    for name in ("wandb", "swanlab"):
        after_import(name, _silence)


def write_without_tensorflow() -> None:
    """Let TensorBoard write its files by itself where TensorFlow is installed, whose compiled code nobody redirects."""
    after_import("tensorboard.compat", _choose_own)


def draw_in_any_style() -> None:
    """Let matplotlib draw as it does without a style that this version does not have."""
    after_import("matplotlib.style", _take_known_styles)


def _take_known_styles(module: ModuleType) -> None:
    use = module.use

    @functools.wraps(use)
    def use_known(style: Any) -> None:
        with contextlib.suppress(OSError):
            use(style)

    module.use = use_known  # type: ignore[attr-defined]


def _choose_own(module: ModuleType) -> None:
    """Let it find `notf`, the module by whose presence it knows that it is to do without."""
    notf = ModuleType(f"{module.__name__}.notf")
    sys.modules[notf.__name__] = module.notf = notf  # type: ignore[attr-defined]


def _silence(module: ModuleType) -> None:
    init = module.init

    @functools.wraps(init)
    def begin(*args: Any, **kwargs: Any) -> Any:
        kwargs["mode"] = "disabled"
        try:
            return init(*args, **kwargs)
        except TypeError:  # some versions copy no mapping of another library
            return init(*args, **kwargs | {"config": None})

    module.init = begin  # type: ignore[attr-defined]
    if (settings := getattr(module, "Settings", None)) is not None:  # of which none count, whatever the version knows
        module.Settings = lambda *_args, **_kwargs: settings()  # type: ignore[attr-defined]
