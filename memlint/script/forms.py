"""Forms of the data that memlint makes up, as far as the program has asked for them, and where each made text stands.

A text that was made up is found again by itself: where a program fails on one, that says which column of which file it
came from.
"""

from __future__ import annotations

import datetime as dt
import itertools
import pickle
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

Kind = Literal[
    "", "text", "word", "whole", "real", "class", "date", "choice", "row", "list", "joined", "file", "path", "pose"
]
"""Kinds of values: a text of many words or of one, a number, one of two classes with names, a date, one of several
words, values by names or numbers, texts with a separator, the name of a file, the path of a listed image, the matrix of
a camera; empty: what its name says.
"""
Path = tuple[str, ...]
"""The place of a value in a row: names and numbers of columns; `[]` for the items of a list."""
DATA_SET = "the data set "
"""Beginning of the place of a data set that has no file."""
_LISTED = "data/images/{}.jpg"
"""The path of a listed image."""
CLASSES = 2
"""Classes of a column of which nothing but that is known."""
ITEM = "[]"
SETTINGS = frozenset((".py", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh", ".md", ".model", ".so", ".safetensors"))
"""Ends of names of files that are no data."""
_VARIED = 10
"""Different whole numbers in a column by which a program chooses rows."""
_PERIOD = 97
"""Different words in a column of words."""
_IDS = frozenset(("id", "idx", "index", "user", "item", "movie", "uid", "iid", "node", "timestamp"))
BOXES = frozenset(("boxes", "bboxes"))
"""Names of the boxes of an image's objects."""
_OF_CAMERAS = frozenset(("camera_angle_x", "camera_angle_y", "fl_x", "fl_y", "cx", "cy"))
"""Numbers that decide on no size (Mildenhall et al., 2020; Müller et al., 2022)."""
_MOST_KEPT = 16
"""Files whose rows are remembered."""
_TEXTS, _ANY, _LONGEST = "texts", 2**31, 2048
"""The key for texts of any file, no limit of their words, and the longest that are made up."""
_ROWS, _NUM_ROWS, _MOST_ROWS = "rows", 256, 2**14
"""The key for rows of any data, their usual number and the largest."""
_SIDES_OF_ARRAYS = (211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271)
"""Sides of arrays of which nothing is known: sizes that no layer has, by which each is found again."""
_NAMES = "names"
_TIMES_LENGTHENED = 16
_FEWEST_LETTERS = 4
"""Letters of a name by which a file is known."""
_AUDIO, _SAMPLING_RATE = "audio", 24_000
"""The key for audio of any file, and how many times a second it is sampled otherwise."""
_IMAGES, _MOST_TIMES_ENLARGED = "images", 8
"""The key for images of any file, and the most times that their sides are those of a usual photograph."""
_MOST_NAMED = 1024
"""Files of a folder that are called as data names them."""
_NUM_FILES = 8
"""Usual number of files that a pattern gives, or a folder for each split."""


@dataclass
class Value:
    """The form of a value."""

    kind: Kind = ""
    choices: tuple[Any, ...] = ()
    fields: dict[str, Value] = field(default_factory=dict)
    """The values of a row by their names; the items of a list at `ITEM`."""
    length: int = 4
    """Items of a list: enough for those that a program takes by number."""
    layout: str = "%Y-%m-%d %H:%M:%S"
    """The format of a date; the separator of texts."""

    def at(self, path: Path) -> Value:
        """Return the value at `path`, which becomes part of this one."""
        value = self
        for name in path:
            value = value.fields.setdefault(name, Value())
        return value


def usual(name: str) -> Value:
    """Return a value of this name: a date, boxes, of a scene's cameras as in NeRF's files, or one not known yet."""
    if name in ("date", "datetime"):
        return Value("date")
    if name == "transform_matrix":
        return Value("pose")
    if name in BOXES:
        return Value("list", fields={ITEM: Value("list", fields={ITEM: Value("real")})})
    return Value("real") if name in _OF_CAMERAS else Value()


@dataclass
class Form:
    """The form that the program has asked a made-up file to have."""

    kind: str = ""
    """Kind of the file, where its name does not say it."""
    separator: str | None = None
    """Separator of columns in the lines of a text; empty for any white space; None if there are no columns."""
    width: int = 0
    """The number of columns; 0 if nothing depends on it."""
    shape: Literal["", "rows", "row", "map", "boxes", "files", "array"] = ""
    """The whole of a JSON file: a list of rows, one row, a dictionary of rows, objects in images, names of files; of a
    record, rows, or one array."""
    row: Value = field(default_factory=Value)
    given: dict[int, list[str]] = field(default_factory=dict)
    """Words that certain lines begin with."""
    refused: set[str] = field(default_factory=set)
    """Names that rows must not have."""
    rest: Kind = ""
    """Kind of all columns that nothing else is known of."""
    sides: tuple[int, ...] = ()
    """Sides of an array, or of those of a record, where the program says them."""
    asked_at: dict[str, int] = field(default_factory=dict)
    """The number of columns of numbers that each line has asked for."""


class Lines(Sequence[Mapping[str, str]]):
    """Lines of a text as rows: their columns by number, and the whole line by an empty name."""

    def __init__(self, lines: Sequence[list[str]], separator: str) -> None:
        """`lines` are lists of columns, with `separator` between them."""
        self._lines, self._separator = lines, separator

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        line = self._lines[index]
        return {"": self._separator.join(line), **{str(number): word for number, word in enumerate(line)}}


_MADE = re.compile(r"(?:(?:train|val|test)_)?\d{6}")
"""Names of the files that are made up for a folder, all of which are alike."""


def is_of_one_item(place: str) -> bool:
    """Return True if a file has the name of one that was made up for a folder, such as labels beside an image."""
    return _MADE.fullmatch(PurePath(place).stem) is not None


def is_labels_of_one(path: PurePath) -> bool:
    """Return True for the text with the boxes of one image: `labels/train2017/train_000000.txt`."""
    return path.suffix == ".txt" and "labels" in path.parts and is_of_one_item(str(path))


class Forms:
    """Forms by the places of files, and what was made."""

    def __init__(self) -> None:
        self.asked: dict[str, Form] = {}
        self._tried: set[bytes] = set()
        self.arrays: dict[str, tuple[int, ...]] = {}
        """Sides of the arrays that were made as whole files, by their places."""
        self.made: dict[str, Sequence[Any]] = {}
        """Rows of the latest files, dictionaries of values; the last that was made is the last one."""
        self.has_folders = False
        """True once files were made up for a folder or a pattern."""
        self.above: dict[str, str] = {}
        """The folder of each folder that was made up, by where it is kept."""
        self.has_images = False
        """True once an image was made up."""
        self.begin: Callable[[], None] = lambda: None
        """Called before the first piece of data is made up."""
        self._places: dict[str, tuple[str, Path]] | None = None

    def take(self, asked: Mapping[str, Form]) -> None:
        """Replace all forms."""
        self.asked = dict(asked)
        self._tried.add(pickle.dumps(self.asked))

    @property
    def were_tried(self) -> bool:
        """True if an attempt began with what is asked now: two errors would ask for it in turns, without end."""
        return pickle.dumps(self.asked) in self._tried

    @property
    def most_words(self) -> int:
        """The largest number of words in a text that the program does not refuse."""
        return self.asked.get(_TEXTS, Form()).width or _ANY

    def shorten(self) -> None:
        """Make texts half as long."""
        self.asked.setdefault(_TEXTS, Form()).width = min(self.most_words, _LONGEST) // 2

    @property
    def letters(self) -> str:
        """The letters that texts consist of; empty for all of them, and marks."""
        return "".join(self.asked.get(_TEXTS, Form()).row.choices)

    def spell(self, letters: str) -> bool:
        """Make texts of these letters alone; False if there are none, or they are already."""
        if not letters or self.letters:
            return False
        self.asked.setdefault(_TEXTS, Form()).row.choices = tuple(letters)
        return True

    @property
    def times_enlarged(self) -> int:
        """The factor by which the sides of images are longer than usual."""
        return self.asked.get(_IMAGES, Form()).width or 1

    def enlarge(self) -> bool:
        """Make images with sides twice as long; False if it is no use."""
        if not self.has_folders or self.times_enlarged == _MOST_TIMES_ENLARGED:
            return False
        self.asked.setdefault(_IMAGES, Form()).width = 2 * self.times_enlarged
        return True

    @property
    def has_square_images(self) -> bool:
        """True if images have sides that a model halves again and again."""
        return self.asked.get(_IMAGES, Form()).kind == "square"

    def square(self) -> bool:
        """Make images with sides that can be halved often; False if no image was made."""
        if not self.has_images or self.has_square_images:
            return False
        self.asked.setdefault(_IMAGES, Form()).kind = "square"
        return True

    @property
    def sides(self) -> tuple[int, int] | None:
        """Width and height of images, if a program has said them."""
        chosen = self.asked.get(_IMAGES, Form()).row.choices
        return chosen or None

    def resize(self, width: int, height: int) -> bool:
        """Make images of this size; False if no image was made."""
        if not self.has_images:
            return False
        self.asked.setdefault(_IMAGES, Form()).row.choices = (width, height)
        return True

    @property
    def num_rows(self) -> int:
        """The number of rows that are made up."""
        return self.asked.get(_ROWS, Form()).width or _NUM_ROWS

    @property
    def num_files(self) -> int:
        """The number of files that are made up for a pattern, or for each split in a folder."""
        return _NUM_FILES * self.num_rows // _NUM_ROWS

    @property
    def has_numbered_files(self) -> bool:
        """True if the names of files in folders are numbers."""
        return self.asked.get(_NAMES, Form()).kind == "numbers"

    def number_files(self) -> bool:
        """Let the names of files in folders be numbers; False if they are."""
        if self.has_numbered_files:
            return False
        self.asked.setdefault(_NAMES, Form()).kind = "numbers"
        return True

    @property
    def sampling_rate(self) -> int:
        """Samples of audio in a second."""
        return self.asked.get(_AUDIO, Form()).width or _SAMPLING_RATE

    def sample(self, rate: int) -> bool:
        """Let audio be sampled so many times a second; returns True."""
        self.asked.setdefault(_AUDIO, Form()).width = rate
        return True

    def extend(self, length: int, batch: int) -> bool:
        """Make more rows and files, where a data set of `length` has less than one `batch`; False if that is no use.

        A batch of all files may be one that was cut: `min(batch_size, len(files))`.
        """
        batch = _TIMES_LENGTHENED * batch if length == batch and self.has_folders else batch
        if not (self.made or self.has_folders) or not 0 < length < batch or self.num_rows != _NUM_ROWS:
            return False
        num_rows = -(-self.num_rows * 2 * batch // length)
        if num_rows > _MOST_ROWS:
            return False
        self.asked.setdefault(_ROWS, Form()).width = num_rows
        return True

    def lengthen(self, wanted: int = 0) -> bool:
        """Make as many rows as are `wanted`; False if it is no use.

        Without a number it is many more, where a split of them is shorter than one item of a data set.
        """
        num_rows = min(wanted or self.num_rows * _TIMES_LENGTHENED, _MOST_ROWS)
        if not (self.made or wanted) or num_rows <= self.num_rows:
            return False
        self.asked.setdefault(_ROWS, Form()).width = num_rows
        return True

    @property
    def is_varied(self) -> bool:
        """True if columns of whole numbers have more than a few of them."""
        return self.asked.get(_ROWS, Form()).kind == "varied"

    def vary(self) -> bool:
        """Let columns of whole numbers have more of them, as a program may choose rows by some; False if they do."""
        if not self.made or self.is_varied:
            return False
        self.asked.setdefault(_ROWS, Form()).kind = "varied"
        return True

    def key(self, place: str) -> str:
        """Return the key of what is asked of a file: its place, or a pattern of those that are alike."""
        path = PurePath(place)
        like = str(path.with_name(f"*{path.suffix}")) if path.suffix else place
        is_like = place not in self.asked and (like in self.asked or self.names(path))
        return like if is_like else place

    def of(self, place: str) -> Form:
        """Return what was asked of the file at `place`."""
        return self.asked.get(self.key(place)) or Form()

    def change(self, place: str) -> Form:
        """Return the same, to be changed."""
        return self.asked.setdefault(self.key(place), Form())

    def note(self, place: str, rows: Sequence[Any]) -> None:
        """Remember the rows of a file that was made."""
        place = self.key(place)
        before = self.made.pop(place, ())
        self.made[place] = rows
        if len(self.made) > _MOST_KEPT:
            self.made.pop(next(iter(self.made)))
        if len(before) != len(rows) or list(before[:1]) != list(rows[:1]):  # files that are alike have the same rows
            self._places = None

    def give_sides(self, place: str, rank: int) -> bool:
        """Give the array of a file so many sides, each of a number that no other one has; False if it has them."""
        form = self.change(place)
        if rank <= len(form.sides):
            return False
        taken = {side for each in self.asked.values() for side in each.sides}
        others = (side for side in _SIDES_OF_ARRAYS if side not in taken)
        form.sides += tuple(itertools.islice(others, rank - len(form.sides)))
        return True

    def take_side(self, made: int, wanted: int) -> bool:
        """Replace a side of an array that was made up by the one that is wanted; False if no array has it."""
        place = next((place for place, sides in self.arrays.items() if made in sides), "")
        if not place or (made <= _SIDES_OF_ARRAYS[-1] and made not in _SIDES_OF_ARRAYS):
            return False
        self.change(place).sides = tuple(wanted if side == made else side for side in self.arrays[place])
        return True

    def names(self, place: PurePath) -> bool:
        """Return True if a folder, or a text of made-up data, names this file: it is one of many."""
        return is_of_one_item(str(place)) or self.is_named(place)

    def is_named(self, place: PurePath) -> bool:
        """Return True if a text of made-up data names this file, and not by a few letters, which any text has."""
        return len(place.stem) >= _FEWEST_LETTERS and self.find(place.stem) is not None

    def lists(self, labels: PurePath) -> bool:
        """Return True if made-up data lists the image whose boxes a text has."""
        return is_labels_of_one(labels) and self.find(_LISTED.format(labels.stem)) is not None

    def file_names(self, suffix: str) -> list[str]:
        """Return the texts of made-up data that name files with this end, without their folders; none for no end."""
        self.find("")
        named = (PurePath(text).name for text in self._places or () if suffix and text.lower().endswith(suffix.lower()))
        return list(itertools.islice(dict.fromkeys(named), _MOST_NAMED))

    def find(self, value: object) -> tuple[str, Path] | None:
        """Return the file and the column that a made text stands in."""
        if self._places is None:
            self._places = {}
            for place, rows in self.made.items():
                for row in rows:
                    for path, text in _texts_in(row, ()):
                        self._places.setdefault(text, (place, path))
        return self._places.get(value) if isinstance(value, str) else None

    def alike(self, place: str, path: Path) -> list[str]:
        """Return the files whose first row has a text at `path`, such as those of other splits; `place` is one."""
        others = (
            each for each, rows in self.made.items() if rows and any(path == at for at, _ in _texts_in(rows[0], ()))
        )
        return list(dict.fromkeys((place, *others)))


forms = Forms()
"""Those of this process."""


def _texts_in(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
        if value != value.strip():
            yield path, value.strip()
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts_in(each, (*path, str(name)))
    elif isinstance(value, list | tuple):
        is_row = not path  # a line: its columns go by their numbers
        for number, each in enumerate(value):
            yield from _texts_in(each, (*path, str(number) if is_row else ITEM))


def made(value: Value, name: str, i: int, text: Callable[[], str]) -> Any:
    """Return the value called `name` in row `i`; `text` makes a text."""
    match value.kind:
        case "row":
            return {key: made(each, key, i, text) for key, each in value.fields.items()}
        case "list":
            item = value.fields.get(ITEM, Value())
            return [made(item, name, i + number, text) for number in range(value.length)]
        case "joined":
            return value.layout.join(str(made(each, key, i, text)) for key, each in value.fields.items())
        case "choice":
            return value.choices[i % len(value.choices)]
        case "class" | "whole":
            different = _VARIED if value.kind == "whole" and forms.is_varied else CLASSES
            return i if value.kind == "whole" and _is_id(name) else i % different
        case "real":
            return 1 + (i * 7 + sum(map(ord, name))) % _PERIOD / 10
        case "date":
            return (dt.datetime(2020, 1, 1) + dt.timedelta(hours=i)).strftime(value.layout)
        case "file" | "path":  # the labels of listed images are beside them, or in a folder beside theirs
            return _LISTED.format(f"train_{i:06}") if value.kind == "path" else f"{i}.jpg"
        case "word" | "pose":
            return f"w{random.Random(name).randrange(1, 9999)}{i % _PERIOD:02}" if value.kind == "word" else _pose(i)
    return text()


def _pose(i: int) -> list[list[float]]:
    """Return the matrix of a camera that looks along an axis, from one of a few places."""
    turned = [[float(row == column) for column in range(3)] for row in range(4)]
    return [[*each, 1.0 if row == len(turned) - 1 else float(i % 4)] for row, each in enumerate(turned)]


def _is_id(name: str) -> bool:
    return not _IDS.isdisjoint(name.lower().replace("-", "_").split("_")) or name.lower().endswith("id")
