"""PyTorch's compiler, loaded before a process is copied: each copy would load it for itself, which takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.accelerator import lazy_imports, state
from memlint.accelerator.private import CALL_COMPILED
from memlint.cuda.simulated import Simulated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn


def load_compiler(models: Iterable[nn.Module], *, is_used: bool = False) -> None:
    """Load it if one of these models, or a part of one, will be compiled when it is called, or if it `is_used`."""
    running = state.current
    if not isinstance(running, Simulated) or not running.compiles:
        return
    if is_used or any(getattr(part, CALL_COMPILED, None) for model in models for part in model.modules()):
        with lazy_imports.while_loading():
            lazy_imports.make_room()
            import memlint.compile.simulation  # noqa: F401, PLC0415 -- for its imports
