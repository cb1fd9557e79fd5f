"""Keeps TorchDynamo out of the process until somebody really uses it, and runs compiled functions eagerly.

PyTorch's optimizers, checkpoints and reference kernels import it, over a second's work, only to say that it should not
compile them, torchvision to ask whether it could, and checkpoints and transformers for single modules that need nothing
else of it. Stand-ins answer that; any other attribute loads the real modules in their place.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "torch._dynamo"
UTILS = "torch._dynamo.utils"
WITHOUT_THE_REST = ("torch._dynamo.config", "torch._dynamo._trace_wrapped_higher_order_op")
"""Modules that import nothing of TorchDynamo."""


class _StandIn(ModuleType):
    @staticmethod
    def disable(fn: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
        """Nothing is compiled here, so every function is disabled as it is."""
        return fn if fn is not None else lambda f: f

    @staticmethod
    def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
        """Nothing is compiled here, so no result is folded."""
        return fn

    @staticmethod
    def allow_in_graph(fn: Any) -> Any:
        """There is no graph to allow it in."""
        return fn

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None:
        """There is no graph to break."""

    def __getattr__(self, name: str) -> Any:
        # `inspect` asks every module for its file, and the import system asks for the path of a package.
        if name.startswith("__") and not (name == "__path__" and self.__name__ == NAME):
            raise AttributeError(name)
        if f"{self.__name__}.{name}" in WITHOUT_THE_REST:
            return _alone(f"{self.__name__}.{name}")
        _remove()
        return getattr(importlib.import_module(self.__name__), name)


class _UtilsStandIn(_StandIn):
    @staticmethod
    def is_compile_supported(_device_type: object) -> bool:
        """Nothing is compiled here."""
        return False


class _OneModule(_StandIn):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_alone(self.__name__), name)


def _alone(name: str) -> ModuleType:
    """One module, loaded without the package it is in."""
    module = sys.modules.get(name)
    if module is None or isinstance(module, _StandIn):
        file = Path(torch.__file__).parent / "_dynamo" / f"{name.rpartition('.')[2]}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def _remove() -> None:
    """Make room for the real modules."""
    for name in (NAME, UTILS, *WITHOUT_THE_REST):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]
    if isinstance(torch.__dict__.get("_dynamo"), _StandIn):
        del torch.__dict__["_dynamo"]


def install() -> None:
    """Put the stand-ins where TorchDynamo would be, unless it is loaded already."""
    if NAME not in sys.modules:
        stand_in = _StandIn(NAME)
        sys.modules[NAME], sys.modules[UTILS] = stand_in, _UtilsStandIn(UTILS)
        sys.modules.update({name: _OneModule(name) for name in WITHOUT_THE_REST})
        torch.__dict__["_dynamo"] = stand_in


class Compilation:
    """What became of `torch.compile` in this process."""

    asked = False
    """Whether the program called it."""


def compile_nothing(model: Any = None, **_: Any) -> Any:
    """Stand in for `torch.compile`: what it was given runs as it is."""
    Compilation.asked = True
    return model if model is not None else lambda function: function


def run_eagerly() -> None:
    """Let `torch.compile` compile nothing in this process from now on."""
    torch.compile = compile_nothing
