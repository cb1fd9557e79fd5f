"""Records that are not on this machine: arrays by name, as archives, pickles and HDF5 files hold them.

A value goes by its name: images, labels, tokens, texts; what has another name is a record of its own. A number is never
made up, since a size may depend on it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memlint.base.after_import import after_import
from memlint.libraries.gym_spaces import spaces_of
from memlint.script.fake_files import VOCABULARY
from memlint.script.fake_images import number_of_script
from memlint.script.fake_rows import texts_of_script
from memlint.script.fake_sensors import array_of_sensors
from memlint.script.forms import forms
from memlint.workloads.absent_weights import Absent
from memlint.workloads.missing_checkpoints import STANDS_FOR, is_of_weights

if TYPE_CHECKING:
    from memlint.script.replacing import Replacing

_LENGTH = 256
"""Number of rows of a record that is read as a list."""
_NUM_TOKENS = 512
_OF_WORDS = re.compile(r"vocab|dictionary|word2id|stoi|itos", re.IGNORECASE)
"""Names of files whose rows are the words that a model knows."""
_SIDE = 224
"""Pixels of an image's sides where the script names none: what most image models take."""
_SIZE = re.compile(r"((img|image|input|crop|output|train)_?)?(size|resolution|sz|dim)", re.IGNORECASE)
"""Names of variables for the sides of an image."""
_IMAGE = frozenset(("image", "images", "img", "imgs", "frame", "frames", "slice", "pixels", "photo", "volume", "x"))
_LABEL = frozenset(("label", "labels", "mask", "masks", "target", "targets", "seg", "gt", "y", "class"))
_TOKENS = frozenset(("ids", "tokens", "token", "input", "inputs"))
_POINTS = frozenset(("data", "points", "point", "pos", "xyz", "pc", "pcd", "pts", "cloud", "pointcloud"))
_NUM_POINTS = re.compile(r"(num|n|number)?_?(of)?_?(point|pt)s?(_?num)?", re.IGNORECASE)
_STEPS = (
    (frozenset(("state", "states", "obs", "observation", "observations")), "(obs|state|observation|low_?dim)"),
    (frozenset(("action", "actions")), "(act|action|ac)"),
)
_NUM_VALUES = tuple((names, re.compile(f"{of}_?(dim|size|dims)", re.IGNORECASE)) for names, of in _STEPS)
"""Words for what a program of control sees and does in a step, and names of variables for its number of values."""
_OF_STEPS = frozenset(("reward", "rewards", "terminal", "terminals", "done", "dones", "timeouts"))
"""Words for what a step of control gives, of which there is one number."""
_STATISTICS = frozenset(("mean", "std", "variance"))
"""Words for what a program scales values by."""
_LENGTHS = frozenset(("lengths", "lens"))
_MOST_POINTS = 2048
"""Points of a cloud in the files of ModelNet40, of which programs take as many as they want."""
_FILE = frozenset(("path", "file", "filename"))
_TEXT = _FILE | {"text", "texts", "caption", "captions", "name", "prompt", "sentence", "title"}
_NUMBER = frozenset(("size", "num", "n", "vocab", "count", "dim", "dims", "length", "len", "width", "height", "depth"))
_UNPACKED = re.compile(r"^\s*(\w+(?:\s*,\s*\w+)+)\s*=\s*(\w+)\.shape\b", re.MULTILINE)
"""A line that takes the sides of an array apart: their number is its rank."""


class Record(dict[Any, Any]):
    """Values by their names, or rows by their numbers."""

    whole_of: str
    """The path of the file that it is the whole of; empty for a value in it."""

    def __init__(self, error: OSError, make: Callable[[np.ndarray[Any, Any]], Any], rank: int = 0) -> None:
        """`error` is raised where a number is needed; `make` turns an array into what the reader of the file gives.

        That may have `rank` dimensions more.
        """
        super().__init__()
        self.__dict__.update(_error=error, _make=make, _more=rank, whole_of="")

    def __missing__(self, key: Any) -> Any:
        name = os.fsdecode(key) if isinstance(key, str | bytes) else ""
        words = {word.rstrip("0123456789") for word in re.split(r"[\W_]+", name.lower())}
        if words & _NUMBER:
            error: OSError = self._error
            error.add_note(f"The number {name!r} is read from it: put the file there, as a size may depend on it.")
            raise error
        value = self._of_words(words) if name else None
        # What a program adds to a row is found again.
        self[key] = Record(self._error, self._make, self._more) if value is None else value
        return self[key]

    def _of_words(self, words: set[str]) -> Any:
        """Return a value of a name with these words; None for other words."""
        if words & _TEXT:
            return "0.jpg" if words & _FILE else "w1 w2 w3"
        if words & _LABEL:
            pixels = next((self[name] for name in list(self.keys()) if name in _IMAGE), None)
            return self._make(np.zeros(() if pixels is None else _sides(len(pixels.shape) - self._more), np.int64))
        if words & _IMAGE:
            asked = forms.of(os.path.realpath(str(self._error.filename))).sides
            return self._make(np.zeros(asked or _sides(_rank(words & _IMAGE)), np.float32))
        if words & _POINTS and (number := number_of_script(_NUM_POINTS)[0]):
            return self._make(np.zeros((max(number, _MOST_POINTS), 3), np.float32))
        if (of_sensors := array_of_sensors(words)) is not None:
            return self._make(of_sensors)
        if words & _STATISTICS:
            return self._make(np.ones((), np.float32))
        return self._of_control(words)

    def _of_control(self, words: set[str]) -> Any:
        """Return a value of a run of steps, or tokens; None for other words."""
        if number := self._num_values(words):
            return self._make(np.zeros((_LENGTH, number), np.float32))
        if words & _OF_STEPS:
            return self._make(np.zeros(_LENGTH, np.float32))
        if words & _LENGTHS:  # of the one run that all rows are of
            return self._make(np.full(1, _LENGTH, np.int64))
        return self._make(np.zeros(_NUM_TOKENS, np.int64)) if words & _TOKENS else None

    def reshape(self, *shape: Any) -> Any:
        """Return rows of the sides that a program says. Raises FileNotFoundError if it says none."""
        number, *sides = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        if not sides or min(sides) < 0:
            raise self._error
        return self._make(np.zeros((_LENGTH if number < 0 else number, *sides), np.float32))

    def _num_values(self, words: set[str]) -> int:
        """Return the numbers that a program sees, or does, in a step, where it or the name of the file says them.

        `hopper-medium-v2.pkl` has steps of gym's Hopper.
        """
        for sees, (names, of) in zip((True, False), _NUM_VALUES, strict=True):
            if words & names:
                spaces = spaces_of(PurePath(str(self._error.filename)).stem)
                actions = spaces.actions if spaces is not None and isinstance(spaces.actions, tuple) else (0,)
                known = 0 if spaces is None else math.prod(spaces.shape) if sees else actions[0]
                return number_of_script(of)[0] or known
        return 0

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(_LENGTH))]
        if isinstance(key, int) and not -_LENGTH <= key < _LENGTH:
            raise IndexError(key)
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self[name]

    def __len__(self) -> int:
        """Return the number of rows; of a vocabulary, by which a model's first layer goes, that of its words."""
        is_of_words = _OF_WORDS.search(PurePath(self.whole_of).stem) is not None
        return VOCABULARY if is_of_words else _LENGTH

    def __iter__(self) -> Iterator[Any]:
        return iter([name for name in super().__iter__() if isinstance(name, str)] or [self[i] for i in range(_LENGTH)])

    def __contains__(self, _key: object) -> bool:
        return True

    def __index__(self) -> int:
        error: OSError = self._error
        raise error

    __int__ = __float__ = __index__

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def close(self) -> None:
        """Close the file."""


def _rank(names: set[str]) -> int:
    """Return the number of sides into which the script takes the shape of a variable of one of these names apart."""
    for text in texts_of_script():
        for sides, name in _UNPACKED.findall(text):
            if name in names or (name in ("img", "image") and names & {"img", "image"}):
                return str(sides).count(",") + 1
    return 3


def _sides(rank: int) -> tuple[int, ...]:
    side: int = number_of_script(_SIZE)[0] or _SIDE
    return (side, side) if rank == 2 else (side, side, 3) if rank == 3 else (1,) * (rank - 2) + (side, side)


def replace_record_readers(replacing: Replacing) -> None:
    """Make readers of archives, pickles and HDF5 files return a Record for a file that is one."""

    def replaced(read: Callable[..., Any], make: Callable[[Any], Any] = np.asarray) -> Callable[..., Any]:
        @functools.wraps(read)
        def reading(file: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return read(file, *args, **kwargs)
            except Exception:
                path = _path_of_record(file)
                if path is None:
                    raise
            return _record(path, make)

        return reading

    def replace(module: ModuleType, name: str, make: Callable[[Any], Any] = np.asarray) -> None:
        replacing.put(module, name, replaced(getattr(module, name), make))

    replace(np, "load")
    replace(pickle, "load")
    replace(torch, "load", torch.from_numpy)
    for module, name in (("scipy.io", "loadmat"), ("joblib", "load")):
        after_import(module, functools.partial(replace, name=name))
    after_import("h5py", lambda module: replacing.put(module.File, "__new__", _new_file))


def _new_file(cls: Any, name: Any, mode: str = "r", *_args: Any, **_kwargs: Any) -> Any:
    """Return a file of h5py, or a Record in place of one that is not there."""
    if mode in ("r", "r+") and isinstance(name, str | os.PathLike):
        with contextlib.suppress(OSError), open(name, "rb"):  # noqa: PTH123 -- which makes it, if it is data
            pass
        if (path := _path_of_record(name)) is not None:
            return _record(path, np.asarray)
    return object.__new__(cls)


def _record(path: str, make: Callable[[Any], Any]) -> Any:
    """Return what stands for the content of a file: weights, rows, one array, or values by their names."""
    error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if is_of_weights(path):
        return Absent(error)
    place = os.path.realpath(path)
    forms.note(place, ())
    if forms.of(place).shape == "rows":
        is_torch = make is torch.from_numpy
        return Record(error, lambda array: torch.from_numpy(_rows_of(array)) if is_torch else _rows_of(array), 1)
    if forms.of(place).shape == "array":
        forms.arrays[place] = forms.of(place).sides
        return make(np.zeros(forms.arrays[place], np.float32))
    record = Record(error, make)
    record.whole_of = place
    return tuple(record[name] for name in forms.of(place).row.fields) or record


class _Images(np.ndarray[Any, Any]):
    """Images of sides that the script gives where it takes them out of their file."""

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """Return as many images of the sides that are asked for, where their number is left open."""
        sides = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        if len(sides) > 1 and sides[0] in (-1, len(self)) and self.ndim > 1 and min(sides[1:]) > 0:
            return np.zeros((len(self), *sides[1:]), self.dtype).view(_Images)
        return super().reshape(*shape, **options)


def _rows_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return rows of an array."""
    return np.zeros((_LENGTH, *array.shape), array.dtype).view(_Images)


def _path_of_record(file: Any) -> str | None:
    """Return the path of a file, given by itself or by its path, if it is a Record that memlint made."""
    path = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    if isinstance(path, str | os.PathLike) and os.path.exists(path):  # noqa: PTH110 -- as the script sees it
        with open(path, "rb") as opened:  # noqa: PTH123
            return os.fspath(path) if opened.read(len(STANDS_FOR)) == STANDS_FOR else None
    return None
