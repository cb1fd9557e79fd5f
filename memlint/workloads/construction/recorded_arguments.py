"""The arguments of a constructor as bytes that a later process can read.

Classes and functions of the project's own files are written as their file and name: a script's own are in `__main__`,
which is another module in that process, and its search path may be another one too. Of tensors, those of modules among
the arguments too, only the shapes and dtypes are written.
"""

import io
import os
import pickle
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from memlint.base.errors import WorkloadError
from memlint.base.ownership import is_users
from memlint.source.scripts import training_at_import
from memlint.source.text import source_at
from memlint.targets.target import Target
from memlint.workloads.loading import load_object
from memlint.workloads.placeholders.objects import is_placeholder

_MOST_NBYTES = 1 << 22
"""Arguments that take more hold data."""


def dump_arguments(positional: tuple[Any, ...], named: Mapping[str, Any]) -> bytes | None:
    """Write arguments while their script runs; None if they cannot be pickled.

    Settings, which hold a script's logger as well as its sizes, are written without what cannot.
    """
    written = _written(positional, named)
    if written is None:
        written = _written(tuple(map(_picklable, positional)), {key: _picklable(each) for key, each in named.items()})
    return written


def _picklable(settings: Any) -> Any:
    """Return a dictionary or namespace without the entries that cannot be pickled; any other value as it is."""
    if not isinstance(settings, dict | Namespace | SimpleNamespace):
        return settings
    entries = settings if isinstance(settings, dict) else vars(settings)
    inner = {key: each if _written((each,), {}) else _picklable(each) for key, each in entries.items()}
    kept = {key: each for key, each in inner.items() if _written((each,), {})}
    return kept if isinstance(settings, dict) else type(settings)(**kept)


def _written(positional: tuple[Any, ...], named: Mapping[str, Any]) -> bytes | None:
    buffer = _Bounded()
    with suppress(Exception):  # whatever the code of the user's objects raises
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump((positional, dict(named)))
        return buffer.getvalue()
    return None


def load_arguments(data: bytes, root: Path | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read what `dump_arguments` wrote. Raises what importing the project's files and unpickling raise."""
    positional, named = _Unpickler(io.BytesIO(data), root).load()
    return positional, named


class _Bounded(io.BytesIO):
    def write(self, data: Any, /) -> int:
        if self.tell() + len(data) > _MOST_NBYTES:
            raise pickle.PicklingError("it is too large")
        return super().write(data)


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        """Return file and name of a class or function of the project, what a tensor is; None for any other object."""
        if isinstance(obj, torch.Tensor):
            if obj.layout is not torch.strided:
                raise pickle.PicklingError("it is sparse")
            return id(obj), tuple(obj.shape), obj.dtype, isinstance(obj, nn.Parameter), obj.requires_grad
        if is_placeholder(obj):
            raise pickle.PicklingError("it is of a missing package: nobody knows its value")
        if not isinstance(obj, type | FunctionType):
            return None
        file = getattr(sys.modules.get(obj.__module__), "__file__", None)
        if file is None or not is_users(file):
            return None
        if "<" in obj.__qualname__:
            raise pickle.PicklingError("it is local to a function")
        return os.path.realpath(file), obj.__qualname__


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, root: Path | None) -> None:
        super().__init__(file)
        self._root = root
        self._files: set[str] = set()
        self._tensors: dict[int, torch.Tensor] = {}

    def persistent_load(self, pid: Any) -> object:
        """Load a class or function from its file, or make a tensor."""
        if isinstance(pid[0], int):
            return self._tensor(*pid)
        path, qualname = pid
        source = source_at(path) if path not in self._files else None
        if source is not None and training_at_import(source) is not None:
            raise WorkloadError(f"{qualname} is defined in {path}, whose import would train")
        self._files.add(path)
        return load_object(Target(f"{path}::{qualname}", Path(path), "", qualname), self._root)

    def _tensor(
        self, key: int, shape: tuple[int, ...], dtype: torch.dtype, is_parameter: bool, requires_grad: bool
    ) -> torch.Tensor:
        """Make a tensor, the same for each that was the same."""
        if key not in self._tensors:
            is_index = not (
                dtype.is_floating_point or dtype.is_complex
            )  # 0 is one of any tensor, unlike what was there
            made = torch.zeros(shape, dtype=dtype) if is_index else torch.empty(shape, dtype=dtype)
            self._tensors[key] = (
                nn.Parameter(made, requires_grad) if is_parameter else made.requires_grad_(requires_grad)
            )
        return self._tensors[key]
