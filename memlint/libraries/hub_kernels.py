"""Kernels of the Hub, which `kernels.get_kernel` downloads: one that is FlashAttention is the library of that name."""

import re
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from memlint.libraries.library import Library

library = Library("kernels", distribution="kernels", version="0.17.2")
_FLASH_ATTENTION = re.compile(r"flash-att(?:n|ention)[-_]?([23]?)$")
_LIBRARIES = {"": "flash_attn", "2": "flash_attn", "3": "flash_attn_interface"}
"""The library by the generation at the end of a repository's name, as in `kernels-community/vllm-flash-attn3`."""


def library_of(repository: str) -> str | None:
    """Return the name of the library that a kernel's repository builds; None for one that memlint does not know."""
    found = _FLASH_ATTENTION.search(repository)
    return _LIBRARIES[found[1]] if found else None


def install(use: Callable[[str], None]) -> None:
    """Call `use` with the library that a program gets as a kernel."""

    @library.provides("kernels")
    def get_kernel(repo_id: str, *args: Any, **kwargs: Any) -> Any:
        name = library_of(repo_id)
        if name is None:
            return _own("get_kernel")(repo_id, *args, **kwargs)
        use(name)
        return kernel(name)

    @library.provides("kernels")
    def has_kernel(repo_id: str, *args: Any, **kwargs: Any) -> bool:
        return library_of(repo_id) is not None or bool(_own("has_kernel")(repo_id, *args, **kwargs))


def _own(name: str) -> Callable[..., Any]:
    """Return the package's own function; where it is not installed, one that says so."""
    function: Callable[..., Any] = getattr(import_module("kernels.utils"), name)
    return function


def kernel(name: str) -> ModuleType:
    """Import a library as its kernel is: the build of either generation has the functions in a module of this name."""
    module = import_module(name)
    if name == "flash_attn_interface":
        module.__dict__[name] = module
    return module
