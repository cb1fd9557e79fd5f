"""Contents of files that are not on this machine: black images, silence, zeros, words, rows.

What a file holds goes by its name and by the function that reads it.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import random
import re
import string
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from memlint.script.checkpoint_files import write_pieces, write_ranks
from memlint.script.fake_images import PHOTO, black_image
from memlint.script.fake_rows import columns_named_by_script, has_tokenized_data, keys_of_script, silence, text_of_words
from memlint.workloads.missing_checkpoints import STANDS_FOR

NUM_ELEMENTS = 2**24
"""Number of elements in a file of numbers of unknown size."""
_NUM_LINES, _NUM_WORDS = 4096, 16
"""Lines of a text, and words of each: 256 KiB and more, so that character models find their vocabulary."""
_VOCABULARY = 33_278
"""Different words in a text: those of WikiText-2 (Merity et al., 2016), for models with a vocabulary of words."""
_NUM_ROWS = 256
_OF_TEXT = frozenset(
    ("path", "file", "filename", "name", "image", "img", "video", "audio", "id", "url", "text", "caption", "title")
)
"""Words in names of what is a text even where a script has no tokenizer."""
_NUM_TOKENS, _MOST_NAMES = 256, 8
"""Different numbers in rows of tokens, and names of columns that are shown."""
_OF_BOXES = frozenset(("instances", "coco", "annotations"))
"""Words in the names of files of objects in images."""
_NUM_BOXES, _NUM_CATEGORIES = 8, 80
_PACKED_SIDE, _NUM_PACKED_CLASSES = 256, 10
"""Side and classes of the images in an archive whose name does not say the side."""
_SAMPLING_RATE = 24_000
_KINDS = {
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".gif"), "image"),
    **dict.fromkeys((".wav", ".flac", ".mp3", ".ogg", ".m4a", ".opus"), "audio"),
    **dict.fromkeys((".npz", ".pkl", ".pickle", ".h5", ".hdf5", ".mat", ".pt", ".pth"), "record"),
    **dict.fromkeys((".jsonl", ".ndjson"), "lines"),
    **dict.fromkeys((".bin", ".dat", ".raw"), "zeros"),
    ".npy": "array",
    ".json": "json",
    ".parquet": "parquet",
    ".zip": "zip",
    ".csv": "table",
    ".tsv": "table",
    ".txt": "text",
    ".model": "pieces",
}
"""Contents of files by the ends of their names."""
_OF_TOKENS = re.compile(r"token|sentencepiece|spiece|spm|bpe")
"""Part of the name of a `.model` that is a vocabulary."""
PLAIN = frozenset(("record", "lines", "json", "table", "parquet", "text"))
"""Kinds of files that need not be data: settings and lists have such names, too."""
_MASKS = frozenset(("mask", "masks", "label", "labels", "annotation", "annotations", "seg", "gt", "target", "targets"))


def kind_by_name(place: str) -> str:
    """Return what a file at `place` holds, by its name: a kind; empty if that says nothing."""
    path = PurePath(place)
    suffix = path.suffix.lower()
    return "" if suffix == ".model" and not _OF_TOKENS.search(path.stem.lower()) else _KINDS.get(suffix, "")


def written(kind: str, place: str, path: Path, options: Mapping[str, Any]) -> str:
    """Write a file of `kind` that stands for `place` to `path`; return a description of its content.

    `options` are variables of the function that reads it: a shape, a dtype; and `seq`, the words of texts in rows.
    """
    return _WRITERS[kind](PurePath(place), path, options)


def _image(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    mode = "L" if _MASKS & {word for part in place.parts[-3:] for word in part.lower().split("_")} else "RGB"
    suffix = place.suffix.lower() if kind_by_name(str(place)) == "image" else ".png"
    file = io.BytesIO()
    from PIL import Image  # noqa: PLC0415 -- whoever loads images has it

    black_image(PHOTO, mode).save(file, Image.registered_extensions()[suffix])
    path.write_bytes(file.getvalue())
    return f"a black image of {PHOTO[0]} x {PHOTO[1]} pixels"


def _audio(_place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    recording = silence(_SAMPLING_RATE)
    path.write_bytes(recording)
    return f"silence, sampled {_SAMPLING_RATE:,} times a second"


def _zeros(_place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    dtype = np.dtype(options.get("dtype") or np.uint16)
    shape = options.get("shape")
    count = NUM_ELEMENTS if shape is None else int(np.prod(shape))
    with path.open("wb") as file:
        file.truncate(int(options.get("offset") or 0) + count * dtype.itemsize)
    return f"{count:,} zeros"


def _array(_place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    with path.open("wb") as file:
        header = {"descr": "<u2", "fortran_order": False, "shape": (NUM_ELEMENTS,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 2 * NUM_ELEMENTS)
    return f"{NUM_ELEMENTS:,} zeros"


def _text(_place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write lines of words, which have all printable characters of usual text."""
    chance = random.Random(0)
    letters = string.ascii_letters
    words = [f"{letter}{mark}" for letter in letters for mark in ".,:;!?'-&3$"]
    distinct = dict.fromkeys(words)
    while len(distinct) < _VOCABULARY:
        distinct["".join(chance.choice(letters) for _ in range(chance.randrange(1, 9)))] = None
    words = list(distinct) * (_NUM_LINES * _NUM_WORDS // _VOCABULARY + 1)
    chance.shuffle(words)
    lines = (" ".join(words[start : start + _NUM_WORDS]) for start in range(0, _NUM_LINES * _NUM_WORDS, _NUM_WORDS))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"{_NUM_LINES:,} lines of {_NUM_WORDS} random words"


def _rows(options: Mapping[str, Any], *, is_row: bool = False) -> list[dict[str, Any]]:
    """Return rows with the usual columns that the script names; of dictionaries, with all keys that it takes."""
    chance = random.Random(0)
    kinds = {
        name: kind.partition(" ")[0]
        for name, kind in columns_named_by_script().items()
        if not kind.startswith(("talk", "turns"))
    }
    values: dict[str, Callable[[int], Any]] = {
        "class": lambda i: i % 2,
        "image": "{}.jpg".format,
        "images": "{}.jpg".format,
        "audio": "{}.wav".format,
    }

    def text(_row: int) -> str:
        return text_of_words(chance, options.get("seq"))

    if is_row:
        are_tokens = has_tokenized_data()
        for name in dict.fromkeys((*kinds, *keys_of_script())):
            is_text = not are_tokens or not _OF_TEXT.isdisjoint(re.split(r"[\W_]+", name.lower()))
            kinds[name] = kinds.get(name) or ("" if is_text else "tokens")
        values["tokens"] = lambda i: [(i + place) % _NUM_TOKENS for place in range(_NUM_WORDS)]
    makes = {name: values.get(kind, text) for name, kind in (kinds or {"text": ""}).items()}
    return [{name: make(i) for name, make in makes.items()} for i in range(_NUM_ROWS)]


def _described(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(rows[0])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{len(rows)} rows with {', '.join(names[:_MOST_NAMES])}{more}"


def _json(place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    if _OF_BOXES & set(place.stem.lower().split("_")):
        return _boxes(path)
    rows = _rows(options, is_row=True)
    path.write_text(json.dumps(rows), encoding="utf-8")
    return _described(rows)


def _boxes(path: Path) -> str:
    """Write images with objects in boxes as COCO has them: 80 classes, and on average 7.3 objects to an image."""
    width, height = PHOTO
    names = range(_NUM_ROWS)
    images = [{"id": i, "file_name": f"{i}.jpg", "width": width, "height": height} for i in names]
    side = min(PHOTO) // 4
    boxes = [
        {
            "id": i,
            "image_id": i // _NUM_BOXES,
            "category_id": 1 + i % _NUM_CATEGORIES,
            "bbox": [side, side, side, side],
            "segmentation": [[side, side, 2 * side, side, 2 * side, 2 * side]],
            "area": side**2,
            "iscrowd": 0,
        }
        for i in range(_NUM_BOXES * _NUM_ROWS)
    ]
    categories = [{"id": 1 + i, "name": f"class {i}"} for i in range(_NUM_CATEGORIES)]
    path.write_text(json.dumps({"images": images, "annotations": boxes, "categories": categories}), encoding="utf-8")
    return f"{_NUM_BOXES} boxes of {_NUM_CATEGORIES} classes in each of {_NUM_ROWS} images of {width} x {height} pixels"


def _lines(_place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    rows = _rows(options, is_row=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return _described(rows)


def _table(place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    rows = _rows(options)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if place.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return _described(rows)


def _parquet(_place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    pyarrow: Any = importlib.import_module("pyarrow")
    rows = _rows(options)
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), str(path))
    return _described(rows)


def _record(_place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    path.write_bytes(STANDS_FOR)
    return "values that go by their names"


def _zip(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write images, and a class for each in `dataset.json`, as data sets of image generators are packed."""
    from PIL import Image  # noqa: PLC0415 -- as above

    named = re.search(r"(\d{2,4})(?:x(\d{2,4}))?(?!\d)", place.stem.rpartition("-")[2])
    side = int(named[1]) if named is not None else _PACKED_SIDE
    file = io.BytesIO()
    Image.new("RGB", (side, int(named[2]) if named is not None and named[2] else side)).save(file, "png")
    names = [f"00000/img{number:08}.png" for number in range(_NUM_ROWS)]
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, file.getvalue())
        labels = [[name, number % _NUM_PACKED_CLASSES] for number, name in enumerate(names)]
        archive.writestr("dataset.json", json.dumps({"labels": labels}))
    return f"{len(names)} black images of {side} pixels in {_NUM_PACKED_CLASSES} classes"


_WRITERS: dict[str, Callable[[PurePath, Path, Mapping[str, Any]], str]] = {
    "image": _image,
    "audio": _audio,
    "zeros": _zeros,
    "array": _array,
    "text": _text,
    "json": _json,
    "lines": _lines,
    "table": _table,
    "parquet": _parquet,
    "record": _record,
    "zip": _zip,
    "pieces": write_pieces,
    "ranks": write_ranks,
}
