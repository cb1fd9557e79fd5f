"""Patches to modules of other packages, applied as soon as the program imports them, never before."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, cast

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec

_patches: dict[str, list[Callable[[ModuleType], None]]] = {}
"""Patches that wait for the import of a module, by the module's name."""
_preparations: dict[str, Callable[[], None]] = {}
"""Functions to call before a module is executed, by the module's name."""


def after_import(name: str, patch: Callable[[ModuleType], None]) -> None:
    """Call `patch` with the module `name` as soon as its import is over, or at once if it is imported already.

    It is called before the statement that imports the module goes on. A module that is never imported is never patched.
    A patch of a module to come that misses one of its names, as other versions have others, ends in a warning.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        patch(module)
        return
    _find_first()
    _patches.setdefault(name, []).append(patch)


def before_import(name: str, prepare: Callable[[], None]) -> None:
    """Call `prepare` when the program imports the module `name`, before the module's own code runs.

    It is not called where there is no such module, and at once where it is imported already.
    """
    if name in sys.modules:
        prepare()
        return
    _find_first()
    _preparations[name] = prepare


def _find_first() -> None:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """Import hook that finds the modules for which patches wait."""

    _searching: ClassVar[set[str]] = set()

    @classmethod
    def find_spec(cls, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Find the module and have its patches run before and after its execution."""
        if not (name in _patches or name in _preparations) or name in cls._searching:
            return None
        cls._searching.add(name)
        try:
            spec = find_spec(name)
        finally:
            cls._searching.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", _PatchingLoader(spec.loader))
        return spec


class _PatchingLoader:
    """Wrapper of a module's loader that runs patches before and after the execution of the module."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Prepare for the module, execute it with its own loader, then call the patches."""
        name = module.__name__
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        if prepare := _preparations.pop(name, None):
            prepare()
        self._loader.exec_module(module)
        for patch in _patches.pop(name, ()):
            try:
                patch(sys.modules.get(name, module))  # some modules replace themselves in `sys.modules`
            except (AttributeError, KeyError) as error:  # the program would end of what it has nothing to do with
                warnings.warn(f"memlint does not know this version of {name}: {error}", stacklevel=2)
