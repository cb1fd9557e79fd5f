"""Registration of an op's kernel on the virtual device: the decorators `kernel` and `composite`.

`memlint.cuda.hidden.table.hidden` is the third. Most ops need none: their shapes come from PyTorch's meta kernels. See
docs/extending.md for when to use which. Ops are named as in `overload`.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch._ops import OpOverload

from memlint.accelerator.dispatch import run
from memlint.accelerator.kernel import enter_hand_written, kernel_of

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
KEY = "PrivateUse1"
everything = torch.library.Library("_", "IMPL")
library = torch.library.Library("aten", "IMPL")


def overload(name: str) -> OpOverload:
    """Return the overload of an op of `aten` called `add.Tensor`, or `relu` if it is the default one."""
    packet, _, rest = name.partition(".")
    op: OpOverload = getattr(getattr(torch.ops.aten, packet), rest or "default")
    return op


def implement(op: OpOverload, key: str, function: Function) -> None:
    """Register `function` for `op` under a dispatch key."""
    suffix = "" if op._overloadname == "default" else f".{op._overloadname}"
    # Replacing our own kernel is an error by default until torch 2.12.
    library.impl(op._schema.name.split("::")[-1] + suffix, function, key, allow_override=True)


def implement_all(functions: Mapping[str, Function], key: str, on: torch.library.Library) -> None:
    """Register functions under a dispatch key, by the names that ops have in the namespace of a library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch warns that kernels are replaced, which is intended
        for name, function in functions.items():
            on.impl(name, function, key, allow_override=True)


@contextlib.contextmanager
def implemented(functions: Mapping[str, Function], key: str, namespace: str = "aten") -> Iterator[None]:
    """Register functions as `implement_all` does, inside the block only."""
    with torch.library._scoped_library(namespace, "IMPL") as scoped:
        implement_all(functions, key, scoped)
        yield


def kernel(*names: str) -> Callable[[F], F]:
    """Decorator: run these ops as one kernel by the decorated function, which allocates their results."""

    def register(function: F) -> F:
        for name in names:
            packet, _, rest = name.partition(".")
            enter_hand_written(f"aten.{packet}.{rest or 'default'}", function)
            if is_composed(name):
                as_one_kernel(name)
        return function

    return register


def composite(*names: str) -> Callable[[F], F]:
    """Decorator: run these ops by the decorated function, which calls other ops that autograd records."""

    def register(function: F) -> F:
        for name in names:
            for key in (KEY, f"Autograd{KEY}"):
                implement(overload(name), key, function)
        return function

    return register


def is_composed(name: str) -> bool:
    """Return True if PyTorch composes an op of others for a new device; False if this version does not have the op."""
    keys = "CompositeImplicitAutograd", "CompositeExplicitAutograd"
    try:
        return any(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key) for key in keys)
    except RuntimeError:
        return False


def as_one_kernel(name: str) -> None:
    """Run an op as one kernel that PyTorch would compose of others."""
    op = overload(name)
    description = kernel_of(op)
    implement(op, KEY, lambda *args, **kwargs: run(description, args, kwargs))
