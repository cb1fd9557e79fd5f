"""Extensions with CUDA sources that a program compiles when it runs: none is compiled, as on a machine without CUDA.

Their kernels would work on the memory of a GPU. Where a compiler is installed it would take minutes, for nothing.
"""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

from memlint.base.after_import import after_import

_HINT = "Describe its functions with memlint.op, as docs/libraries.md says."


class _RefusedError(OSError):
    """An extension is not compiled."""


_RefusedError.__name__ = _RefusedError.__qualname__ = "OSError"  # which a machine without CUDA raises


def refused(error: BaseException) -> bool:
    """Return True if the error says that an extension was not compiled here."""
    return isinstance(error, _RefusedError)


def install() -> None:
    """Let `load` and `load_inline` of torch.utils.cpp_extension refuse CUDA sources."""
    after_import("torch.utils.cpp_extension", _compile_no_kernels)


def _compile_no_kernels(module: Any) -> None:
    for function in (module.load, module.load_inline):
        setattr(module, function.__name__, _refusing(function))


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(function)

    @functools.wraps(function)
    def load(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(*args, **kwargs).arguments
        sources = given.get("sources", ())
        files = [sources] if isinstance(sources, str | os.PathLike) else sources
        if (
            given.get("cuda_sources")
            or given.get("with_cuda")
            or any(os.fspath(each).endswith(".cu") for each in files)
        ):
            error = _RefusedError(f"the extension {given['name']} is not compiled: its kernels need a GPU")
            error.add_note(_HINT)
            raise error
        return function(*args, **kwargs)

    return load
