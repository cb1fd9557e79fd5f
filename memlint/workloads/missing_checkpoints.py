"""Checkpoints that are not on this machine, and what a missing file is for: weights, which change no size, or data."""

from __future__ import annotations

import contextlib
import errno
import functools
import linecache
import os
import re
from collections.abc import Callable
from pathlib import PurePath
from types import ModuleType
from typing import Any

import numpy as np
import torch

from memlint.base.after_import import after_import
from memlint.base.frames import user_frames
from memlint.base.variables import variables_of
from memlint.workloads.absent_weights import Absent, replace_loading

_OF_WEIGHTS = re.compile(
    r"ckpts?|check_?points?|pre_?train(ed|ing)?|weights?|snapshots?|models?|resumed?|backbones?|finetuned?|state_?dicts?"
)
"""A word in the name of a file, or in the line that reads it, that says that it holds weights."""
_OF_DATA = re.compile(
    r"data|datas?ets?|train|val|valid|validation|test|splits?|features?|embeddings?|latents?|tokens?|samples?|images?|"
    r"labels?|targets?|inputs?|processed|cached?"
)
"""A word that says that it holds data, unless another one says weights."""
_WEIGHT_SUFFIXES = frozenset((".pth", ".ckpt", ".safetensors"))
_BOTH_SUFFIXES = frozenset((".bin", ".npz", ".npy", ".pkl", ".pt", ".h5", ".tar", ".gz", ".zip", ""))
"""Ends of the names of files that may hold either."""
STANDS_FOR = b"memlint: a record that is not here\n"
"""Content of a file that stands for one that is not there: its parts have names that only its readers know."""
_FILE_SUFFIX = re.compile(r"\.[a-z]\w*")
"""End of the name of a file; that of a folder may be as in Llama-3.1-8B."""
OF_TENSORS = _WEIGHT_SUFFIXES | {".pt", ".bin"}
"""Ends of the names of files that hold weights where they come out of a model's repository."""
Note = Callable[[str], object]
Put = Callable[[Any, str, Any], object]


def is_of_weights(path: str | os.PathLike[Any]) -> bool:
    """Return True if a file, which need not be there, holds weights by its name and by the running line that reads it.

    A file that no word tells apart holds weights if its name ends like those of PyTorch's checkpoints.
    """
    place = PurePath(os.fsdecode(path))
    suffix = suffix_of(place)
    if suffix not in _WEIGHT_SUFFIXES | _BOTH_SUFFIXES:
        return False
    frames = list(user_frames())
    if any(isinstance(variables_of(frame).get("self"), torch.utils.data.Dataset) for frame in frames):
        return False
    words = [word for part in place.parts[-3:] for word in _words(part)]
    for frame in frames[:1]:
        words += _words(linecache.getline(frame.f_code.co_filename, frame.f_lineno)) + _words(frame.f_code.co_name)
    if any(map(_OF_WEIGHTS.fullmatch, words)):
        return True
    return suffix in (*_WEIGHT_SUFFIXES, ".pt") and not any(map(_OF_DATA.fullmatch, words))


def suffix_of(path: PurePath) -> str:
    """Return the end of a file's name in small letters, with its dot; empty for what is no such end."""
    suffix = path.suffix.lower()
    return suffix if _FILE_SUFFIX.fullmatch(suffix) else ""


def _words(text: str) -> list[str]:
    """Return the words of names: `loadFrom_weights1` has load, from and weights. Joined ones count, too."""
    names = re.findall(r"[A-Za-z_]+", text)
    split = (re.split(r"_|(?<=[a-z])(?=[A-Z])", name) for name in names)
    return [word.lower() for name, parts in zip(names, split, strict=True) for word in (name, *parts) if word]


def replace_loads(put: Put, note: Note) -> None:
    """Make loads of missing checkpoints return absent weights; `put` sets an attribute, `note` takes an assumption."""

    def replaced(load: Callable[..., Any], *, ends_in_weights: bool = False) -> Callable[..., Any]:
        @functools.wraps(load)
        def loaded(*arguments: Any, **named: Any) -> Any:
            try:
                content = load(*arguments, **named)
                if ends_in_weights and not content:  # a file that stands for weights
                    return Absent(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(arguments[0])))
                return content
            except (FileNotFoundError, NotADirectoryError) as error:
                path = next(iter((*arguments, *named.values())), None)
                if not isinstance(path, str | os.PathLike) or os.path.exists(path):  # noqa: PTH110 -- as it is asked
                    raise
                if not (ends_in_weights or is_of_weights(path)):
                    raise
                error.filename = os.fspath(path)  # as the program names it
                note(f"the checkpoint {os.fspath(path)} is not there: the weights stay as they were initialized")
                return Absent(error)

        return loaded

    replace_loading(put)
    put(torch.jit, "load", _loading_scripts(torch.jit.load))
    put(torch, "load", replaced(torch.load))
    put(np, "load", replaced(np.load))

    def replace_safetensors(module: ModuleType) -> None:
        load_model = module.load_model

        @functools.wraps(load_model)
        def loaded(model: Any, filename: Any, *arguments: Any, **named: Any) -> Any:
            if isinstance(filename, str | os.PathLike) and not os.path.exists(filename):  # noqa: PTH110 -- as it is asked
                module.load_file(filename)
                return set(), []  # nothing is missing, though the file would have each shared tensor once
            return load_model(model, filename, *arguments, **named)

        put(module, "load_file", replaced(module.load_file, ends_in_weights=True))
        put(module, "load_model", loaded)

    after_import("safetensors.torch", replace_safetensors)


def _loading_scripts(load: Callable[..., Any]) -> Callable[..., Any]:
    """Let a model of TorchScript that is not there be absent weights, as those that a state dict was saved from."""

    @functools.wraps(load)
    def loaded(file: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return load(file, *arguments, **named)
        except (RuntimeError, ValueError):  # the latter for a file that is not there
            with contextlib.suppress(Exception):
                if isinstance(content := torch.load(file), Absent):
                    return content
            raise

    return loaded
