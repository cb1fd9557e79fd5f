"""Fake data for torchvision datasets that are not on this machine: black images of the right sizes and classes.

Only the data that `__init__` would read is fake; everything else, such as transforms, is the class's own.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import os
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memlint.base.frames import user_frames
from memlint.base.patching import in_place_of
from memlint.base.variables import variables_of
from memlint.script.forms import forms
from memlint.script.settings_by_name import items_of
from memlint.workloads.notes import note, note_fake_data

if TYPE_CHECKING:
    from memlint.script.replacing import Replacing

_NUM_FILES = 10_000
PHOTO = (500, 375)
"""Most frequent width and height in pixels of ImageNet's photographs."""
_TRAIN, _TEST = 60_000, 10_000
_EMNIST = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 27, "digits": 10, "mnist": 10}
_FILES = {
    "CelebA": (40, (178, 218)),
    "LSUN": (10, (342, 256)),
    "VOCSegmentation": (21, PHOTO),
    "Caltech101": (101, (300, 200)),
    "Caltech256": (257, (300, 200)),
    "DTD": (47, (640, 480)),
    "FGVCAircraft": (100, (1024, 695)),
    "Flowers102": (102, (667, 500)),
    "Food101": (101, (512, 512)),
    "GTSRB": (43, (50, 50)),
    "OxfordIIITPet": (37, PHOTO),
    "StanfordCars": (196, (600, 400)),
}
"""Number of classes in torchvision's documentation, and a usual size: images of these datasets vary in size."""
_FEWEST = 2
"""Classes that occur where their number is unknown: every classifier of the script has as many."""
_CLASSES = {"EuroSAT": 10, "ImageNet": 1000}
_NUMBER = re.compile(r"(num|n|nb|number)_?(of_)?(class(es)?|labels|cls|categories)", re.IGNORECASE)
"""Names of variables for the number of classes."""
Fill = Callable[[Any, dict[str, Any]], str]


def replace_datasets(module: ModuleType, replacing: Replacing, *, fake: bool) -> None:
    """Make the classes of `torchvision.datasets` report missing data, or with `fake` replace it."""
    fills: dict[str, Fill] = {
        "MNIST": _fill_digits,
        "CIFAR10": _fill_cifar,
        "SVHN": _fill_svhn,
        "STL10": _fill_stl,
        "USPS": _fill_usps,
        "DatasetFolder": _fill_folder,
        "ImageFolder": _fill_folder,
        "ImageNet": _fill_folder,
        "EuroSAT": _fill_folder,
        **dict.fromkeys(_FILES, _fill_files),
    }
    public = [value for name in module.__all__ if isinstance(value := getattr(module, name), type)]
    bases = (base for value in public for base in value.__mro__ if base.__module__.startswith(module.__name__))
    replaced = {
        base for base in bases if "__init__" in vars(base) and base.__name__ not in ("VisionDataset", "FakeData")
    }
    for cls in replaced:
        replacing.put(cls, "__init__", _filled(cls, fills.get(cls.__name__), replaced, fake=fake))


def _filled(cls: Any, fill: Fill | None, replaced: set[type], *, fake: bool) -> Callable[..., None]:
    init = cls.__init__

    @in_place_of(init)
    def filled(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except (OSError, RuntimeError) as error:
            name = type(self).__name__
            root = args[0] if args else kwargs.get("root")
            if fill is None or not fake:
                if cls is next(base for base in type(self).__mro__ if base in replaced):
                    able = ", or add --fake-data to use fake images" if fill else "; memlint has no fake data for it"
                    note(error, f"wants the data set {name}, which is not in {root}", f"put it there{able}")
                raise
            arguments = dict(zip(_PARAMETERS.get(cls.__name__, ("root",)), args, strict=False)) | kwargs
            if not hasattr(self, "transforms"):
                options = {key: arguments.get(key) for key in ("transform", "target_transform")}
                base = next(base for base in cls.__mro__ if base.__name__ == "VisionDataset")
                base.__init__(self, root, **options)  # which takes no more
            description = fill(self, arguments)
            note_fake_data(f"the data set {name} is not in {root}: replaced by {description}")

    return filled


_PARAMETERS = {
    **dict.fromkeys(("MNIST", "CIFAR10", "USPS"), ("root", "train", "transform", "target_transform", "download")),
    "DatasetFolder": ("root", "loader", "extensions", "transform", "target_transform"),
    "ImageFolder": ("root", "transform", "target_transform", "loader"),
    **dict.fromkeys(("ImageNet", "SVHN"), ("root", "split", "transform", "target_transform")),
    "STL10": ("root", "split", "folds", "transform", "target_transform"),
}
"""Names of positional parameters, for the parameters that are read here."""


def replace_readers_of_timm(module: ModuleType, replacing: Replacing, *, fake: bool) -> None:
    """Make `timm.data` report a missing folder of images, or with `fake` replace it."""
    maker = "create_reader" if hasattr(module, "create_reader") else "create_parser"  # before timm 0.8
    create = getattr(module, maker)

    def create_reader(name: str, root: Any = None, *args: Any, **kwargs: Any) -> Any:
        try:
            return create(name, root, *args, **kwargs)
        except (OSError, RuntimeError, AssertionError) as error:
            if not fake:
                note(
                    error, f"wants images in {root or name}, which are not there", "put them there, or add --fake-data"
                )
                raise
        number, option = number_of_script(_NUMBER)
        images = _Images(number or _CLASSES["ImageNet"], number or _FEWEST)
        number = len(images.class_to_idx)
        reason = f", as {option} says" if option else ""
        note_fake_data(
            f"there are no images in {root or name}: replaced by {_described(_NUM_FILES, photo(), number)}{reason}"
        )
        return images

    replacing.put(module, maker, create_reader)


class _Images:
    """A reader of timm's: an index gives a file and its class."""

    def __init__(self, number: int, num_used: int) -> None:
        self._num_used = num_used
        self.class_to_idx = {f"class {i}": i for i in range(number)}
        file = io.BytesIO()
        black_image(photo()).save(file, "JPEG")
        self._image = file.getvalue()

    def __getitem__(self, index: int) -> tuple[io.BytesIO, int]:
        return io.BytesIO(self._image), index % self._num_used

    def __len__(self) -> int:
        return _NUM_FILES

    def filename(self, index: int, *_kind: bool) -> str:
        """Return the name of a file."""
        return f"{index}.jpg"

    def filenames(self, *_kind: bool) -> list[str]:
        """Return the names of all."""
        return [f"{i}.jpg" for i in range(_NUM_FILES)]


def _classes(count: int, number: int) -> np.ndarray[Any, Any]:
    return np.arange(count) % number


def _described(count: int, size: tuple[int, int], number: int) -> str:
    return f"{count:,} black images of {size[0]} x {size[1]} pixels in {number} classes"


def _fill_digits(self: Any, arguments: dict[str, Any]) -> str:
    """Fill MNIST and similar datasets: `data` is a tensor (N, 28, 28) of uint8."""
    count = _TRAIN if arguments.get("train", True) else _TEST
    number = _EMNIST.get(getattr(self, "split", ""), 10)
    self.data = torch.from_numpy(np.zeros((count, 28, 28), dtype=np.uint8))
    self.targets = torch.from_numpy(_classes(count, number))
    return _described(count, (28, 28), number)


def _fill_cifar(self: Any, arguments: dict[str, Any]) -> str:
    """Fill CIFAR10 and CIFAR100: `data` is an array (N, 32, 32, 3) of uint8."""
    number = 100 if "fine_labels" in str(self.meta.get("key")) or self.base_folder == "cifar-100-python" else 10
    count = 50_000 if arguments.get("train", True) else 10_000
    self.train = arguments.get("train", True)
    self.data = np.zeros((count, 32, 32, 3), dtype=np.uint8)
    self.targets = _classes(count, number).tolist()
    _name_classes(self, number)
    return _described(count, (32, 32), number)


def _fill_svhn(self: Any, arguments: dict[str, Any]) -> str:
    count = {"train": 73_257, "test": 26_032, "extra": 531_131}[arguments.get("split", "train")]
    self.data, self.labels = np.zeros((count, 3, 32, 32), dtype=np.uint8), _classes(count, 10)
    return _described(count, (32, 32), 10)


def _fill_stl(self: Any, arguments: dict[str, Any]) -> str:
    sizes = {"train": 5_000, "test": 8_000, "unlabeled": 100_000, "train+unlabeled": 105_000}
    count = sizes[arguments.get("split", "train")]
    self.data, self.labels = np.zeros((count, 3, 96, 96), dtype=np.uint8), _classes(count, 10)
    _name_classes(self, 10)
    return _described(count, (96, 96), 10)


def _fill_usps(self: Any, arguments: dict[str, Any]) -> str:
    count = 7_291 if arguments.get("train", True) else 2_007
    self.data, self.targets = np.zeros((count, 16, 16), dtype=np.uint8), _classes(count, 10).tolist()
    return _described(count, (16, 16), 10)


def _fill_folder(self: Any, arguments: dict[str, Any]) -> str:
    """Fill a folder of images, or of files that a loader of the script's reads."""
    size = (64, 64) if type(self).__name__ == "EuroSAT" else photo()
    number, num_used, names, reason = _classes_of_folder(self)
    _name_classes(self, number)
    if names:
        self.classes, self.class_to_idx = names, {name: i for i, name in enumerate(names)}
    self.targets = _classes(_NUM_FILES, num_used).tolist()
    self.extensions = tuple(arguments.get("extensions") or (".jpg",))
    self.samples = self.imgs = [
        (f"{self.root}/{self.classes[target]}/{i}{self.extensions[0]}", target) for i, target in enumerate(self.targets)
    ]
    loader = arguments.get("loader")
    is_own = loader is not None and not str(loader.__module__).startswith("torchvision.")
    self.loader = loader if is_own else lambda _path: black_image(size)
    if "split" in arguments or type(self).__name__ == "ImageNet":
        self.split = arguments.get("split", "train")
    return f"{_described(_NUM_FILES, size, number)}{reason}"


def _classes_of_folder(self: Any) -> tuple[int, int, list[str], str]:
    """Return the number of classes in a folder of images, how many of them occur, names if known, and the source."""
    if type(self).__name__ in _CLASSES:
        number = _CLASSES[type(self).__name__]
        return number, number, [], ""
    with contextlib.suppress(OSError):
        names = sorted(each.name for each in os.scandir(self.root) if each.is_dir())
        if names:
            return len(names), len(names), names, ", one for each folder there"
    number, name = number_of_script(_NUMBER)
    if number:
        return number, number, [], f", as {name} says"
    return (
        _CLASSES["ImageNet"],
        _FEWEST,
        [],
        f": if it has others, make an empty folder for each of them in {self.root}",
    )


def number_of_script(names: re.Pattern[str]) -> tuple[int, str]:
    """Return the value of a variable or option in the user's calling lines whose name matches, and the name."""
    for frame in user_frames():
        variables = variables_of(frame)
        for holder in (variables, *map(_attributes, list(variables.values()))):
            for name, value in holder.items():
                if isinstance(value, int) and value > 1 and names.fullmatch(name):
                    return value, name
    return 0, ""


def _attributes(value: Any) -> dict[str, Any]:
    """Return the fields of options: of a plain namespace or dataclass, or of a config of OmegaConf or its like."""
    if isinstance(value, Mapping) and type(value).__name__.lower().endswith(("config", "easydict", "box")):
        return {name: each for name, each in items_of(value) if isinstance(name, str)}
    return vars(value) if isinstance(value, argparse.Namespace) or dataclasses.is_dataclass(value) else {}


def _fill_files(self: Any, _arguments: dict[str, Any]) -> str:
    """Fill a class that opens files itself: an index gives an image and its class."""
    name = next(base.__name__ for base in type(self).__mro__ if base.__name__ in _FILES)
    number, size = _FILES[name]
    _name_classes(self, number)

    def item(self: Any, index: int) -> tuple[Any, Any]:
        if index >= _NUM_FILES:
            raise IndexError(index)  # which ends a loop over all
        image, target = black_image(size), _target(name, size, index, number)
        return (image, target) if self.transforms is None else self.transforms(image, target)

    methods = {"__getitem__": item, "__len__": lambda _self: _NUM_FILES}
    self.__class__ = type(type(self).__name__, (type(self),), methods)
    return _described(_NUM_FILES, size, number)


def _target(name: str, size: tuple[int, int], index: int, number: int) -> Any:
    """Return the class of an image; for some datasets also attributes, or a class for each pixel."""
    if name == "CelebA":
        return torch.zeros(number, dtype=torch.int64)
    if name == "VOCSegmentation":
        return black_image(size, "L")
    return index % number


def _name_classes(self: Any, number: int) -> None:
    self.classes = [f"class {i}" for i in range(number)]
    self.class_to_idx = {name: i for i, name in enumerate(self.classes)}


def photo() -> tuple[int, int]:
    """Return the width and height of a photograph: as usual, or large enough for the crops that the script takes."""
    return PHOTO[0] * forms.times_enlarged, PHOTO[1] * forms.times_enlarged


def black_image(size: tuple[int, int], mode: str = "RGB") -> Any:
    """Return a black image of width and height `size`."""
    from PIL import Image  # noqa: PLC0415 -- whoever loads images has it

    return Image.new(mode, size)
