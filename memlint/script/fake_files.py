"""Contents of files that are not on this machine: zeros, words, rows, and the media of `fake_media`.

What a file holds goes by its name and by the function that reads it.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import gzip
import importlib
import json
import random
import re
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from memlint.script import fake_media, fake_meshes
from memlint.script.checkpoint_files import write_pieces, write_ranks
from memlint.script.fake_images import photo
from memlint.script.fake_rows import (
    columns_named_by_script,
    compared_by_script,
    has_tokenized_data,
    keys_of_script,
    text_of_words,
    texts_of_script,
)
from memlint.script.fake_sensors import array_of_sensors
from memlint.script.file_kinds import SHEETS
from memlint.script.forms import (
    BOXES,
    ITEM,
    Form,
    Kind,
    Lines,
    Value,
    forms,
    is_labels_of_one,
    is_of_one_item,
    made,
    usual,
)
from memlint.script.public_files import write_public
from memlint.script.settings_by_name import num_variables
from memlint.workloads.missing_checkpoints import STANDS_FOR

NUM_ELEMENTS, _NUM_OF_ITEM = 2**24, 2**16
"""Number of elements in a file of numbers of unknown size, and in one of many that made-up data names."""
_OF_LLM_C = {20240520: (1, np.uint16), 20240801: (7, np.uint32)}
"""Files of tokens as llm.c has them: the number in their header by which they are known, version and type."""
_NUM_LINES, _NUM_WORDS = 4096, 16
"""Lines of a text, and words of each: 256 KiB and more, so that character models find their vocabulary."""
_MOST_TEXTS = 256
"""Different texts of made-up rows: a large table of new ones would take minutes."""
VOCABULARY = 33_278
"""Different words in a text: those of WikiText-2 (Merity et al., 2016), for models with a vocabulary of words."""
_OF_TEXT = frozenset(
    ("path", "file", "filename", "name", "image", "img", "video", "audio", "id", "url", "text", "caption", "title")
)
"""Words in names of what is a text even where a script has no tokenizer."""
_NUM_TOKENS, _MOST_NAMES = 256, 8
"""Different numbers in rows of tokens, and names of columns that are shown."""
_OF_BOXES, _OF_CAPTIONS = frozenset(("instances", "coco", "annotations")), "captions"
"""Words in the names of files of objects in images, and of those that describe images."""
_NUM_BOXES, _NUM_CATEGORIES = 8, 80
_NUM_OF_POINT = 6
"""Coordinates of a point and of the normal there."""
_COLUMNS = {".pts": 3, ".xyz": 3, ".seg": 1}
"""Columns of files of points, and of their classes, by the ends of their names, as ShapeNet's parts have them."""
_NUM_VIEWS = 100
"""Views of a scene of which the cameras are known (Mildenhall et al., 2020)."""
_NUM_OBJECTS = 2
"""Objects in an image that has an annotation of its own."""
_NUM_NUMBERS = 8
"""Columns of a table of which nothing is known."""
_NAME_OF_NUMBER = re.compile(r"x\d+")


_NUM_CHARACTERS = 100_000_000
"""Length of a text that is packed alone, under a name without an end: that of enwik8 and text8."""


def written(kind: str, place: str, path: Path, options: Mapping[str, Any]) -> str:
    """Write a file of `kind` that stands for `place` to `path`; return a description of its content.

    `options` are variables of the function that reads it: a shape, a dtype; and `seq`, the words of texts in rows.
    """
    number = len(forms.made)  # by which files differ, so that a value is found in its own
    shown = PurePath(place)
    is_compressed = shown.suffix.lower() == ".gz" and kind != "nifti"
    inner = shown.with_suffix("") if is_compressed else shown
    description = _WRITERS[kind](inner, path, {**options, "number": number})
    if is_compressed:
        content = path.read_bytes()
        times = 1 if inner.suffix or kind == "public" else _NUM_CHARACTERS // max(1, len(content)) + 1
        path.write_bytes(gzip.compress(content * times, 1))
    return description


def _zeros(_place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    dtype = np.dtype(options.get("dtype") or np.uint16)
    shape = options.get("shape")
    count = NUM_ELEMENTS if shape is None else int(np.prod(shape))
    head = b""
    for magic, (version, numbers) in _OF_LLM_C.items() if shape is None else ():
        if any(str(magic) in text for text in texts_of_script()):
            dtype, head = np.dtype(numbers), np.array([magic, version, count, *[0] * 253], np.int32).tobytes()
    with path.open("wb") as file:
        file.write(head)
        file.truncate(int(options.get("offset") or 0) + len(head) + count * dtype.itemsize)
    return f"{count:,} zeros{' behind the header of a file of tokens' if head else ''}"


def _array(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    if (of_sensors := array_of_sensors(re.split(r"[\W_]+", place.stem.lower()))) is not None:
        with path.open("wb") as file:
            np.save(file, of_sensors)
        return _of_sides(of_sensors.shape)
    count = _NUM_OF_ITEM if forms.is_named(place) else NUM_ELEMENTS
    sides = forms.of(str(place)).sides
    forms.arrays[str(place)] = sides or (count,)
    if sides:
        with path.open("wb") as file:
            np.save(file, np.zeros(sides, np.float32))
        return _of_sides(sides)
    with path.open("wb") as file:
        header = {"descr": "<u2", "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 2 * count)
    return f"{count:,} zeros"


def _text(place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    """Write lines of words, which have all printable characters of usual text, or of the columns that are asked for."""
    form = forms.of(str(place))
    if form.separator is not None:
        return _columns(place, path, form, options)
    if is_labels_of_one(place):
        sides = [str((i + 1) / 10) for i in range(_NUM_BOXES)]
        _write_lines(place, path, [["0", "0.5", "0.5", side, side] for side in sides], " ")
        return f"{_NUM_BOXES} lines of a class and a box"
    count, words = _NUM_BOXES if forms.names(place) else _NUM_LINES, _words(forms.letters)
    lines = [list(words[start : start + _NUM_WORDS]) for start in range(0, count * _NUM_WORDS, _NUM_WORDS)]
    for number, names in form.given.items():
        lines[number][: len(names)] = names
    _write_lines(place, path, lines, " ")
    return f"{count:,} lines of {_NUM_WORDS} random words"


@functools.cache
def _words(letters: str) -> tuple[str, ...]:
    """Return the words of a long text, of these letters alone; without any given, of all letters and marks."""
    chance = random.Random(0)
    marks, letters = "" if letters else ".,:;!?'-&3$", letters or string.ascii_letters
    distinct = dict.fromkeys(f"{letter}{mark}" for letter in letters for mark in marks)
    while len(distinct) < VOCABULARY:
        distinct["".join(chance.choice(letters) for _ in range(chance.randrange(1, 9)))] = None
    words = list(distinct) * (_NUM_LINES * _NUM_WORDS // VOCABULARY + 1)
    chance.shuffle(words)
    return tuple(words)


def _numbers(place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    """Write lines of numbers: as many as clouds of points have, with their normals, if nothing else was asked for."""
    form = forms.of(str(place))
    separator = options.get("sep") or form.separator or " "
    width = form.width or _COLUMNS.get(place.suffix.lower(), 0) or num_variables() or _NUM_OF_POINT
    count = _NUM_BOXES if is_of_one_item(str(place)) else _NUM_LINES
    line = separator.join(str(number % 2) for number in range(width))
    path.write_text(f"{line}\n" * count, encoding="utf-8")
    return f"{count:,} lines of {width} numbers"


def _columns(place: PurePath, path: Path, form: Form, options: Mapping[str, Any]) -> str:
    """Write lines of columns; an empty one after each few where the script looks for such lines."""
    texts = _texts(options)
    columns = [(str(number), form.row.fields.get(str(number), Value(form.rest))) for number in range(form.width)]
    is_short = all(
        (value.kind or form.separator == "") and value.kind not in ("text", "path") for _name, value in columns
    )
    count = _NUM_BOXES if is_of_one_item(str(place)) else _NUM_LINES if is_short else forms.num_rows
    form = dataclasses.replace(form, separator=form.separator or options.get("sep") or "")
    lines = [[_piece(made(_plain(value, form), name, i, texts), form) for name, value in columns] for i in range(count)]
    for number, names in form.given.items():
        lines[number][: len(names)] = names
    _write_lines(place, path, lines, form.separator or " ", options.get("paragraphs"))
    between = {"\t": "tabs", ",": "commas", "": "spaces"}.get(form.separator or "", f"{form.separator!r}")
    return (
        f"{len(lines)} lines of {form.width} columns, with {between} between them"
        if form.width > 1
        else (f"{len(lines)} lines, each of one {_NAMES.get(columns[0][1].kind, 'word')}")
    )


_NAMES = {"whole": "number", "real": "number", "date": "date", "text": "text"}


_SPACES = frozenset((None, "", " "))
"""Separators of columns that the words of a text have between them, too."""


def _plain(value: Value, form: Form) -> Value:
    """Return what a column without a kind holds: where spaces are between columns, a word."""
    return Value("word") if not value.kind and form.separator in _SPACES else value


def _piece(value: Any, form: Form) -> str:
    text = str(value)
    return text.replace(" ", "_") if form.separator in _SPACES else text.replace(str(form.separator), " ")


def _write_lines(
    place: PurePath, path: Path, lines: Sequence[list[str]], separator: str, paragraph: int | None = None
) -> None:
    texts = [separator.join(line) for line in lines]
    forms.note(str(place), Lines(lines, separator))
    if paragraph:
        texts = [text + "\n" * (i % paragraph == paragraph - 1) for i, text in enumerate(texts)]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")


def _texts(options: Mapping[str, Any]) -> Callable[[], str]:
    chance = random.Random(options["number"])
    return lambda: text_of_words(chance, options.get("seq"))


def _rows(options: Mapping[str, Any], *, is_row: bool = False) -> list[dict[str, Any]]:
    """Return rows with the usual columns that the script names; of dictionaries, with all keys that it takes."""
    chance = random.Random(options["number"])
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

    texts = [text_of_words(chance, options.get("seq")) for _ in range(min(forms.num_rows, _MOST_TEXTS))]
    if is_row:
        are_tokens = has_tokenized_data()
        for name in dict.fromkeys((*kinds, *keys_of_script())):
            is_text = not are_tokens or not _OF_TEXT.isdisjoint(re.split(r"[\W_]+", name.lower()))
            kinds[name] = kinds.get(name) or ("" if is_text else "tokens")
        first = options["number"]
        if not BOXES.isdisjoint(kinds):  # of objects, each of which has a class and more
            listed = {name: "items" for name, kind in kinds.items() if kind in ("class", "tokens")}
            kinds |= listed | dict.fromkeys(BOXES.intersection(kinds), "boxes")
        if "messages" in kinds and "from" not in keys_of_script():
            kinds["messages"] = "talk"
            roles = ("user", "assistant")
            values["talk"] = lambda i: [
                {"role": role, "content": texts[(i + place) % len(texts)]} for place, role in enumerate(roles)
            ]
        values["boxes"] = lambda i: made(usual("boxes"), "boxes", i, str)
        values["items"] = lambda i: [(i + place) % 2 for place in range(Value.length)]
        values["tokens"] = lambda i: [(first + i + place) % _NUM_TOKENS for place in range(_NUM_WORDS)]
    makes = [(name, values.get(kind)) for name, kind in (kinds or {"text": ""}).items()]
    return [
        {name: make(i) if make else texts[(i + k) % len(texts)] for k, (name, make) in enumerate(makes)}
        for i in range(forms.num_rows)
    ]


def _asked(rows: list[dict[str, Any]], place: PurePath, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return rows with the values that the program has asked for, and remember them."""
    form, texts = forms.of(str(place)), _texts(options)
    compared = compared_by_script()
    usual: Kind = "word" if has_tokenized_data() else ""
    fields = {name: _known(value, name, compared, usual) for name, value in form.row.fields.items()}
    if form.shape == "row":  # lists of which are the data
        count = _NUM_VIEWS if any(map(_has_poses, fields.values())) else forms.num_rows
        fields = {name: dataclasses.replace(value, length=count) for name, value in fields.items()}
    for i, row in enumerate(rows):
        for name, value in fields.items():
            row[name] = made(value, name, i, texts)
        for name in form.refused:
            row.pop(name, None)
    forms.note(str(place), rows)
    return rows


def _has_poses(value: Value) -> bool:
    return value.kind == "pose" or any(map(_has_poses, value.fields.values()))


def _known(value: Value, name: str, compared: Mapping[str, tuple[str, ...]], usual: Kind) -> Value:
    """Return a value with what the script's own lines say of it: the texts that it is compared with."""
    if value.fields:
        fields = {
            each: _known(inner, name if each == ITEM else each, compared, usual) for each, inner in value.fields.items()
        }
        return dataclasses.replace(value, fields=fields)
    if value.kind:
        return value
    return Value("choice", compared[name]) if name in compared else Value(usual)


def _described(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(rows[0])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{len(rows)} rows with {', '.join(names[:_MOST_NAMES])}{more}"


def _json(place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    form = forms.of(str(place))
    words = set() if form.shape else set(place.stem.lower().split("_"))
    if form.shape == "boxes" or (words & {*_OF_BOXES, _OF_CAPTIONS} and _reads_boxes()):
        return _boxes(path, has_captions=_OF_CAPTIONS in words)
    if form.shape == "files":
        names = [str(made(Value("file"), "", i, str)) for i in range(forms.num_rows)]
        path.write_text(json.dumps(names), encoding="utf-8")
        forms.note(str(place), names)
        return f"{len(names)} names of files"
    count = 1 if form.shape == "row" else forms.num_rows
    rows: list[dict[str, Any]] = [{} for _ in range(count)] if form.shape else _rows(options, is_row=True)
    rows = _asked(rows, place, options)
    if form.shape == "row":
        path.write_text(json.dumps(rows[0]), encoding="utf-8")
        return f"{', '.join(rows[0]) or 'nothing'} by name"
    if form.shape == "map":
        names = [f"w{i}" for i in range(len(rows))]
        is_list = form.row.kind == "list"
        lists = [made(form.row, "", i, str) for i in range(len(rows))] if is_list else []
        values = lists or (rows if form.row.fields else range(len(rows)))
        path.write_text(json.dumps(dict(zip(names, values, strict=True))), encoding="utf-8")
        return f"{len(names)} names with a {'list' if is_list else 'row' if form.row.fields else 'number'} each"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return _described(rows)


def _reads_boxes() -> bool:
    return "pycocotools" in sys.modules or "annotations" in keys_of_script()


def _boxes(path: Path, *, has_captions: bool) -> str:
    """Write images with objects in boxes as COCO has them: 80 classes, and on average 7.3 objects to an image.

    Or else images with captions, which COCO has 5 of for an image, in other files.
    """
    width, height = photo()
    names = range(forms.num_rows)
    images = [{"id": i, "file_name": f"{i}.jpg", "width": width, "height": height} for i in names]
    side = min(width, height) // 4
    boxes: list[dict[str, Any]] = [
        {
            "id": i,
            "image_id": i // _NUM_BOXES,
            "category_id": 1 + i % _NUM_CATEGORIES,
            "bbox": [side, side, side, side],
            "segmentation": [[side, side, 2 * side, side, 2 * side, 2 * side]],
            "area": side**2,
            "iscrowd": 0,
        }
        for i in range(_NUM_BOXES * len(names))
    ]
    if has_captions:
        boxes = [
            {"id": i, "image_id": i % len(names), "caption": text_of_words(random.Random(i), 11)}
            for i in range(5 * len(names))
        ]
    data: dict[str, Any] = {"images": images, "annotations": boxes}
    if not has_captions:
        data["categories"] = [{"id": 1 + i, "name": name} for i, name in enumerate(_categories())]
    path.write_text(json.dumps(data), encoding="utf-8")
    pixels = f"{width} x {height} pixels"
    what = "5 captions" if has_captions else f"{_NUM_BOXES} boxes of {_NUM_CATEGORIES} classes"
    return f"{what} in each of {len(names)} images of {pixels}"


def _categories() -> list[str]:
    """Return the names of COCO's classes as torchvision has them, by which a program may look: else numbers."""
    known = getattr(sys.modules.get("torchvision.models._meta"), "_COCO_CATEGORIES", ())
    names = [each for each in known if each not in ("__background__", "N/A")]
    return names if len(names) == _NUM_CATEGORIES else [f"class {i}" for i in range(_NUM_CATEGORIES)]


def _lines(place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    rows = _asked(_rows(options, is_row=True), place, options)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return _described(rows)


def _table(place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    rows = _rows_of_table(place, options)
    separator = str(options.get("sep") or options.get("delimiter") or ("\t" if place.suffix == ".tsv" else ","))
    separator = "\t" if separator == "\\t" else " " if separator in (r"\s+", "None") else separator
    lines = [list(rows[0])] if options.get("names") is None and options.get("header", "infer") is not None else []
    lines += [[str(value) for value in row.values()] for row in rows]
    if place.suffix in SHEETS:
        importlib.import_module("pandas").DataFrame(rows).to_excel(path, index=False)
        return _described(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        if len(separator) == 1:
            csv.writer(file, delimiter=separator).writerows(lines)
        else:
            file.writelines(separator.join(line) + "\n" for line in lines)
    return _described(rows)


def _rows_of_table(place: PurePath, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return rows with the names that the reader was given, the usual ones, or else some numbers."""
    form = forms.of(str(place))
    names = options.get("names")
    if names is not None:
        rows: list[dict[str, Any]] = [dict.fromkeys(map(str, names), "") for _ in range(forms.num_rows)]
        for name in map(str, names):
            form.row.at((name,))
    elif options.get("is_row"):
        rows = _rows(options) if columns_named_by_script() else [{} for _ in range(forms.num_rows)]
        for name in keys_of_script():
            if name not in rows[0]:
                form.row.at((name,))
    elif columns_named_by_script() or not has_tokenized_data():
        rows = _rows(options)
    else:
        rows = [{} for _ in range(forms.num_rows)]
        named = {name: value for name, value in form.row.fields.items() if not _NAME_OF_NUMBER.fullmatch(name)}
        values = sum(value.kind != "date" for value in named.values())
        count = _NUM_NUMBERS if (variables := num_variables()) is None else variables - values
        kind: Kind = "real" if options.get("header", "infer") is not None else ""
        numbered = (f"x{number}" for number in range(count))
        form.row.fields = {**named, **{name: form.row.fields.get(name, Value(kind)) for name in numbered}}
    for number in range(len({*rows[0], *form.row.fields}), form.width):
        form.row.at((f"x{number}",)).kind = form.rest or "real"
    if options.get("header", "infer") is None:  # the cells of a list without a head are rather short
        for name in rows[0]:
            form.row.at((name,)).kind = form.row.at((name,)).kind or "word"
    forms.asked[str(place)] = form
    return _asked(rows, place, options)


def _parquet(place: PurePath, path: Path, options: Mapping[str, Any]) -> str:
    pyarrow: Any = importlib.import_module("pyarrow")
    rows = _asked(_rows(options), place, options)
    importlib.import_module("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), str(path))
    return _described(rows)


def _xml(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write the objects of an image as PASCAL VOC has them (Everingham et al., 2010)."""
    width, height = photo()
    form = forms.of(str(place.with_name("*.xml")))
    name = form.row.fields.get("name", Value("word"))
    side = min(width, height) // 4
    box = f"<bndbox><xmin>{side}</xmin><ymin>{side}</ymin><xmax>{2 * side}</xmax><ymax>{2 * side}</ymax></bndbox>"
    names = [escape(str(made(name, "name", i, str))) for i in range(_NUM_OBJECTS)]
    rest = "<pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult>"
    objects = "".join(f"<object><name>{each}</name>{rest}{box}</object>" for each in names)
    size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
    head = f"<folder>images</folder><filename>{escape(place.stem)}.jpg</filename>"
    path.write_text(f"<annotation>{head}{size}<segmented>0</segmented>{objects}</annotation>", encoding="utf-8")
    forms.note(str(place.with_name("*.xml")), [{"name": each} for each in names])
    return f"{_NUM_OBJECTS} objects in an image of {width} x {height} pixels"


def _record(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    path.write_bytes(STANDS_FOR)
    form = forms.of(str(place))
    return _of_sides(form.sides) if form.shape == "array" else "values that go by their names"


def _of_sides(sides: Sequence[int]) -> str:
    return f"zeros of {' x '.join(map(str, sides))}"


def _public(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    return write_public(str(place), path)


_WRITERS: dict[str, Callable[[PurePath, Path, Mapping[str, Any]], str]] = {
    "image": fake_media.image,
    "map": fake_media.map_of_pixels,
    "audio": fake_media.audio,
    "video": fake_media.video,
    "zeros": _zeros,
    "array": _array,
    "text": _text,
    "numbers": _numbers,
    "nifti": fake_media.nifti,
    "mesh": fake_meshes.mesh,
    "music": fake_media.music,
    "json": _json,
    "lines": _lines,
    "table": _table,
    "parquet": _parquet,
    "record": _record,
    "zip": fake_media.zip_of_images,
    "tar": fake_media.shard,
    "pieces": write_pieces,
    "ranks": write_ranks,
    "xml": _xml,
    "public": _public,
}
