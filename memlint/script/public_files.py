"""Files of public data sets that a program reads by itself: as many lines, classes and columns as theirs have.

`public_files.json` has their forms, by what the ends of their paths look like. They were written down from memory in
November 2026, not copied from the pages of the data sets. Sizes of models follow from them: words of a vocabulary,
users, items, sensors. Where nothing follows from the number of lines there are fewer, so that they are quick to read.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import io
import itertools
import json
import math
import pickle
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from memlint.script.fake_images import black_image
from memlint.script.forms import Lines, forms
from memlint.script.settings_by_name import num_variables

_FEWEST_LETTERS = 4
"""Letters of a word."""
_MOST_NOTED, _MOST_COLUMNS = 1024, 16
"""Lines of a file whose words are remembered, and how many of each."""
_NUM_LINES = 256
"""Lines of a file in which nothing has more values."""
_LARGEST_WRITTEN = 2**26
"""Bytes of an array of zeros above which the file has a hole in their place."""
_BEGIN = dt.datetime(2016, 7, 1)
"""The time of the first line of a series."""
_MOST_LENGTH = 60
"""Lines of a paragraph of words: sentences have up to this number."""
_SENTENCE = "The quick brown fox, they say, jumped over a lazy dog: twice. Was it so? It was; I saw it"
"""A text with most letters and marks of usual ones, of as many characters as a sentence that is read aloud has."""
_NAMES = frozenset(("names", "folders"))
"""Keys of the contents of folders."""


class _Part(NamedTuple):
    data_set: str
    at: re.Pattern[str]
    content: Mapping[str, Any]


@functools.cache
def _parts() -> tuple[_Part, ...]:
    table = json.loads(resources.files(__package__).joinpath("public_files.json").read_text("utf-8"))
    return tuple(
        _Part(name, re.compile(f"(?:^|/){each['at']}$", re.IGNORECASE), each)
        for name, parts in table.items()
        for each in parts
    )


def _found(place: str) -> tuple[_Part, dict[str, str]] | None:
    """Return the entry that a path belongs to, with the texts of the groups of its pattern."""
    path = place.replace("\\", "/")
    matches = ((each, each.at.search(path)) for each in _parts())
    return next(((each, match.groupdict()) for each, match in matches if match is not None), None)


def is_public(place: str) -> bool:
    """Return True if a path is that of a file of a public data set; of a series only if no setting says its width."""
    found = _found(place)
    if found is None or _NAMES & found[0].content.keys():
        return False
    return "minutes" not in found[0].content or num_variables() is None


def public_names(folder: str, kind: str = "names") -> list[str]:
    """Return the names of the files in a folder of a public data set, or of its "folders"; none for other folders."""
    found = _found(folder)
    if found is None or kind not in found[0].content:
        return []
    return list(_texts(found[0].content[kind], found[0].content, found[1]))


def write_public(place: str, path: Path) -> str:
    """Write the file that stands for `place`, which is public, to `path`; return a description of its content."""
    found = _found(place)
    assert found is not None, place
    part, groups = found
    kind = next(each for each in part.content if each in _WRITERS)
    return f"{_WRITERS[kind](place, path, part.content, groups)}, as in {part.data_set}"


# --- texts


def _texts(template: str, content: Mapping[str, Any], groups: Mapping[str, str]) -> Iterator[str]:
    """Yield a template with the values of each line: `n` counts from 1 and `i` from 0, others as `of` says.

    A value of `of` is a list of texts, the first of numbers and how many there are, or so many words and how many of
    them a line has.
    """
    of: Mapping[str, list[Any]] = content.get("of", {})
    count = content.get("lines") or max((len(_values(each)) for each in of.values()), default=_NUM_LINES)
    columns = {name: _column(values, count) for name, values in of.items()}
    same = {"text": _SENTENCE, "row": " ".join(["0.1"] * int(groups.get("width") or 0)), **groups}
    template, step = _repeated(template), dt.timedelta(minutes=content.get("minutes", 0))
    for i in range(count):
        values = {name: column[i] for name, column in columns.items()}
        yield template.format(i=i, n=i + 1, date=_BEGIN + i * step, **same, **values)


def _repeated(template: str) -> str:
    """Return a template in which `<text*number>` is the text so many times."""
    return re.sub(r"<(.+?)\*(\d+)>", lambda match: match[1] * int(match[2]), template)


def _values(of: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column, each once; of several in a line, as many as the lines that have all of them."""
    match of:
        case [int(first), int(number)]:
            return range(first, first + number)
        case ["words" | "numbers" as kind, int(number), int(in_line)]:
            values = [_word(i) if kind == "words" else str(i) for i in range(number)]
            endless = itertools.cycle(values)
            return [" ".join(itertools.islice(endless, in_line)) for _ in range(math.lcm(number, in_line) // in_line)]
    return of


def _column(of: Sequence[Any], count: int) -> Sequence[Any]:
    return list(itertools.islice(itertools.cycle(_values(of)), count))


def _word(number: int) -> str:
    """Return a word of letters alone, another one for each number."""
    letters = ""
    while number or len(letters) < _FEWEST_LETTERS:
        number, letter = divmod(number, len(string.ascii_lowercase))
        letters += string.ascii_lowercase[letter]
    return letters


def _lines(place: str, path: Path, content: Mapping[str, Any], groups: Mapping[str, str]) -> str:
    head = [_repeated(each) for each in content.get("head", [])]
    lines = list(_texts(content["line"], content, groups))
    separator = content.get("between", " ")
    _note(place, (line.split(separator) for line in lines), separator)
    path.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
    return f"{len(lines):,} lines{' below a head' if head else ''}"


def _note(place: str, lines: Iterable[list[str]], separator: str) -> None:
    forms.note(place, Lines([line[:_MOST_COLUMNS] for line in itertools.islice(lines, _MOST_NOTED)], separator))


def _list(place: str, path: Path, content: Mapping[str, Any], groups: Mapping[str, str]) -> str:
    texts = list(_texts(content["texts"], content, groups))
    path.write_text(json.dumps(texts), encoding="utf-8")
    forms.note(place, texts)
    return f"a list of {len(texts)} texts"


def _words(place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    """Write a text of so many different words, each of which occurs twice."""
    words = [f"w{number}" for number in range(content["words"])] * 2
    in_line = content.get("in_line", 20)
    lines = [words[start : start + in_line] for start in range(0, len(words), in_line)]
    _note(place, lines, " ")
    path.write_text("\n".join(map(" ".join, lines)) + "\n", encoding="utf-8")
    return f"{content['words']:,} different words"


def _json(place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    """Write values by name, of which each is a list of `lines` rows."""
    count = content.get("lines", _NUM_LINES)
    columns = {name: _column(values, count) for name, values in content.get("of", {}).items()}

    def made(value: Any, i: int) -> Any:
        if isinstance(value, dict):
            return {key: made(each, i) for key, each in value.items()}
        if isinstance(value, list):
            return [made(each, i) for each in value]
        if value in ("{i}", "{n}"):
            return i + (value == "{n}")
        values = {name: column[i] for name, column in columns.items()}
        return value.format(i=i, n=i + 1, text=_SENTENCE, **values) if isinstance(value, str) else value

    rows = {name: [made(row[0], i) for i in range(count)] for name, row in content["json"].items()}
    path.write_text(json.dumps(rows), encoding="utf-8")
    forms.note(place, ())
    return "values by name"


def _sentences(place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    """Write a word in each line, with other columns, and an empty line after each sentence."""
    lines = list(_texts(content["sentences"], content, {}))
    lengths = itertools.cycle(range(1, _MOST_LENGTH))
    texts, begin = [], 0
    while begin < len(lines):
        length = next(lengths)
        texts.append("\n".join(lines[begin : begin + length]))
        begin += length
    path.write_text("\n\n".join([*content.get("head", []), *texts]) + "\n\n", encoding="utf-8")
    _note(place, map(str.split, lines), " ")
    return f"{len(lines):,} words in sentences"


# --- numbers


def _value(text: Any) -> Any:
    """Return an array or another object that a short text describes; of other values, the one with those inside."""
    if isinstance(text, dict) and text.keys() == {"each", "of"}:
        return {key: _value(text["of"]) for key in text["each"]}
    if isinstance(text, dict):
        return {key: _value(each) for key, each in text.items()}
    if isinstance(text, list):
        return [_value(each) for each in text]
    kind, *words = text.split() if isinstance(text, str) else [""]
    if kind == "array":
        return _array(words)
    return _KINDS[kind](*map(float if kind == "rows" else int, words)) if kind in _KINDS else text


def _array(words: Sequence[str]) -> np.ndarray[Any, Any]:
    """Return an array of a type and shape: zeros, or whole numbers `from` one, or 0, to `below` another."""
    dtype, *sizes = words
    limits = {name: int(sizes.pop(sizes.index(name) + 1)) for name in ("from", "below") if name in sizes}
    shape = tuple(int(size) for size in sizes if size not in limits)
    numbers = np.arange(limits.get("from", 0), limits.get("below", 0), dtype=dtype)
    return np.resize(numbers, shape) if len(numbers) else np.zeros(shape, dtype)


def _sparse(rows: int, columns: int) -> Any:
    return importlib.import_module("scipy.sparse").csr_matrix(np.eye(rows, columns, dtype=np.float32))


_KINDS: dict[str, Callable[..., Any]] = {
    "sparse": _sparse,
    "list": lambda count, classes: [i % classes for i in range(count)],
    "names": lambda count: [f"class{i}" for i in range(count)],
    "numbered": lambda count: {str(i): i for i in range(count)},
    "one_of": lambda count, classes: np.eye(classes, dtype=np.int32)[np.arange(count) % classes],
    "graph": lambda count: {i: [(i + 1) % count, (i - 1) % count] for i in range(count)},
    "rows": lambda count, *row: np.tile(np.array(row), (int(count), 1)),
}
"""Values that a short text describes: its first word, and what the numbers behind that mean."""


_Pickler: Any = vars(pickle)["_Pickler"]
"""The pickler in Python, whose subclasses decide on how each type is written."""


class _OlderPickler(_Pickler):  # type: ignore[misc]
    """Writes texts as Python 2 did: the reader's `encoding` decides on what they are."""

    dispatch: ClassVar[dict[type, Callable[..., None]]] = dict(_Pickler.dispatch)

    def _save_text(self, text: str | bytes) -> None:
        raw = text.encode("latin-1") if isinstance(text, str) else text
        self.write(pickle.BINSTRING + len(raw).to_bytes(4, "little") + raw)
        self.memoize(text)

    dispatch[str] = dispatch[bytes] = _save_text


def _pickle(_place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    with path.open("wb") as file:
        _OlderPickler(file, 2).dump(_value(content["pickle"]))
    return _shown(content["pickle"])


def _npz(_place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    with path.open("wb") as file:
        np.savez(file, **_value(content["npz"]))
    return _shown(content["npz"])


def _npy(_place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    values = _value(content["npy"])
    if isinstance(values, np.ndarray) and values.nbytes > _LARGEST_WRITTEN and not values.any():
        np.lib.format.open_memmap(path, "w+", values.dtype, values.shape).flush()  # a file with a hole in it
        return _shown(content["npy"])
    with path.open("wb") as file:
        np.save(file, values)
    return _shown(content["npy"])


def _mat(_place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    file = io.BytesIO()
    importlib.import_module("scipy.io").savemat(file, _value(content["mat"]))
    path.write_bytes(file.getvalue())
    return _shown(content["mat"])


def _h5(_place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    with importlib.import_module("h5py").File(io.BytesIO(), "w") as file:
        for name, value in _value(content["h5"]).items():
            file[name] = value
        file.flush()
        path.write_bytes(file.id.get_file_image())
    return _shown(content["h5"])


def _idx(_place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    """Write bytes behind the header of an IDX file (LeCun et al., "The MNIST database of handwritten digits")."""
    array = _value(content["idx"])
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes())
    return _shown(content["idx"])


def _bytes(_place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    path.write_bytes(_value(content["bytes"]).tobytes())
    return _shown(content["bytes"])


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"values called {', '.join(value)}"
    return "several values" if isinstance(value, list) else str(value).partition(" below")[0].partition(" from")[0]


def _image(_place: str, path: Path, content: Mapping[str, Any], _groups: Mapping[str, str]) -> str:
    width, height = map(int, content["image"].split("x"))
    forms.has_images = True
    black_image((width, height), content.get("mode", "RGB")).save(path, "PNG")
    return f"a black image of {width} x {height} pixels"


_WRITERS: dict[str, Callable[[str, Path, Mapping[str, Any], Mapping[str, str]], str]] = {
    "line": _lines,
    "sentences": _sentences,
    "texts": _list,
    "words": _words,
    "json": _json,
    "pickle": _pickle,
    "npz": _npz,
    "npy": _npy,
    "mat": _mat,
    "h5": _h5,
    "idx": _idx,
    "bytes": _bytes,
    "image": _image,
}
