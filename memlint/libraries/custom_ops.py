"""Operators that a program defines with `torch.library`: their bodies run here where they can, else their fakes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch._library.custom_ops import CustomOpDef

from memlint.accelerator import state
from memlint.accelerator.device import NAME

_register = CustomOpDef.register_kernel


def install() -> None:
    """Let operators defined in this process from now on fall back on their fakes, and those of CUDA run here."""
    CustomOpDef.register_kernel = _register_kernel  # type: ignore[method-assign]


def _register_kernel(
    definition: CustomOpDef, device_types: str | Sequence[str] | None, fn: Callable[..., Any] | None = None, /
) -> Any:
    """Stand in for `CustomOpDef.register_kernel`."""
    if fn is None:
        return functools.partial(_register_kernel, definition, device_types)
    types = [device_types] if isinstance(device_types, str) else device_types
    if types is not None and "cuda" in types:
        types = [*types, NAME]
    _register(definition, types, _tried(definition, fn))
    return fn


def _tried(definition: CustomOpDef, fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            fake = definition._abstract_fn
            if fake is None:
                raise
            reason = f"its kernel cannot run here ({type(error).__name__})"
            state.assume(f"memory that {definition._qualname} takes for itself is not counted: {reason}")
        return fake(*args, **kwargs)

    return run
