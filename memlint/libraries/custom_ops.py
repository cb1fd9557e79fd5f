"""Operators that a program defines with `torch.library`: their bodies run here where they can, else their fakes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from memlint.accelerator.dispatch import assume_kernel_takes_nothing, run
from memlint.accelerator.kernel import OF_PYTORCH, kernel_of
from memlint.accelerator.private import CustomOpDef, fake_of, qualified_name
from memlint.accelerator.registration import KEY
from memlint.libraries.library import UnknownFunctionError

_register = CustomOpDef.register_kernel
_implement: Callable[..., None] = torch.library.Library.impl


def install() -> None:
    """Let operators defined in this process from now on fall back on their fakes, and those of CUDA run here."""
    CustomOpDef.register_kernel = _register_kernel  # type: ignore[method-assign]
    torch.library.Library.impl = _impl  # type: ignore[method-assign, assignment]


def _register_kernel(
    definition: CustomOpDef, device_types: str | Sequence[str] | None, fn: Callable[..., Any] | None = None, /
) -> Any:
    """Stand in for `CustomOpDef.register_kernel`."""
    if fn is None:
        return functools.partial(_register_kernel, definition, device_types)

    def fall_back(error: Exception, *args: Any, **kwargs: Any) -> Any:
        if fake_of(definition) is None:
            raise error
        assume_kernel_takes_nothing(qualified_name(definition), f"it cannot run here ({type(error).__name__})")
        return fake_of(definition)(*args, **kwargs)

    _register(definition, device_types, _tried(fn, fall_back))  # what is for CUDA comes by `_impl` here as well
    return fn


def _impl(library: torch.library.Library, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
    """Stand in for `torch.library.Library.impl`: what is written in Python for CUDA runs here as well."""
    _implement(library, op_name, fn, dispatch_key, **options)
    if (dispatch_key or library.dispatch_key) != "CUDA" or library.ns in OF_PYTORCH or options.get("with_keyset"):
        return
    packet, _, overload = (op_name if isinstance(op_name, str) else op_name.name()).rpartition("::")[2].partition(".")

    def fall_back(_error: Exception, *args: Any, **kwargs: Any) -> Any:
        op = getattr(getattr(getattr(torch.ops, library.ns), packet), overload or "default")
        return run(kernel_of(op), args, kwargs)

    _implement(library, op_name, _tried(fn, fall_back), KEY, **options)


def _tried(fn: Callable[..., Any], fall_back: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, and where it cannot run here what `fall_back` gives, which is called with the error as well."""

    @functools.wraps(fn)
    def run_or_fall_back(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except UnknownFunctionError:
            raise
        except Exception as error:
            return fall_back(error, *args, **kwargs)

    return run_or_fall_back
