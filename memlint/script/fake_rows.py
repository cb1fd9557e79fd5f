"""Fake data for data sets of Hugging Face that are not on this machine: random words, black images and silence."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import itertools
import json
import linecache
import random
import re
import string
import sys
import wave
from collections.abc import Callable, Iterator
from importlib import resources
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memlint.base.ownership import file_of, is_memlint, is_users
from memlint.base.patching import patched
from memlint.script.fake_images import black_image
from memlint.script.forms import CLASSES, DATA_SET, forms, made
from memlint.workloads.notes import note, note_fake_data, script_frame

if TYPE_CHECKING:
    from memlint.script.replacing import Replacing

_NUM_WORDS = 512
"""Words of each text in a fake split: as long as most scripts cut texts to, or longer."""
_OF_PAIRS = re.compile(r"(sentence|question)[12]?|premise|hypothesis")
"""Columns of single sentences, often two to a row: together they have a quarter of the words of a text."""
_NUM_TURNS = 2048
"""Words of a conversation: as many as trainers cut them to, so that packed rows are full."""
_ASKED = 8
"""One word in as many is asked: some trainers leave out conversations whose prompt alone is long."""
_OF_SENTENCE, _PAIR = 32, 2
"""Words of a sentence, as translations and lists of words have it; languages of a translation."""
_NUM_OBJECTS = 8
_NUM_STEPS = 8
"""The number of steps of a solution."""
_TIMES_STREAMED = 400
"""How often a stream gives its rows: scripts skip tens of thousands, or take them for evaluation."""
_SPLITS = ("train", "validation", "test")
_VOCABULARY = 1000
_SECONDS, _NUM_RECORDINGS = 10, 64
"""The seconds of each fake recording, and the number of different ones: each row has its own bytes."""
_DATA: dict[str, Any] = json.loads(resources.files(__package__).joinpath("data_set_columns.json").read_text("utf-8"))
"""Columns of well-known data sets as their pages show them: a name, and what it holds if that is no text.

`data_sets` by the last part of their path, or by all of it where others have the same, with the name of the
configuration behind it (`glue/mrpc`) where that decides; `usual` those that data sets which are not listed may have,
where a script names them.
"""
_COLUMNS: dict[str, tuple[str, ...]] = {name: tuple(columns) for name, columns in _DATA["data_sets"].items()}
_OF_FILES = {
    "text": ("text",),
    "imagefolder": ("image image 500x375", "label class 2"),
    "audiofolder": ("audio audio 16000", "label class 2"),
}
"""Columns of data sets made of files that the script names. Those of `json`, `csv` and `parquet` have any columns."""
_READERS_OF_FILES = ("from_file", "from_parquet", "from_json", "from_csv", "from_text")
"""Methods of a data set's class that read one file or several."""
_TOKENIZES = re.compile(r"tokeniz|\.encode\(|stoi|word2i|vocab\w*\[", re.IGNORECASE)
_COLUMN_OPTION = re.compile(r"--(?:\w+?_)??([a-z]+)_columns?(?:_names?)?")
_FIELD = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}(?!\})")
"""A field of a template."""
_USUAL: dict[str, str] = {column.split()[0]: column for column in _DATA["usual"]}
Make = Callable[[int], Any]


def replace_load_dataset(module: ModuleType, replacing: Replacing, *, fake: bool, seq: int | None = None) -> None:
    """Let `datasets.load_dataset` say what it misses, or with `fake` make it up, with texts of `seq` words."""
    load, load_saved = module.load_dataset, module.load_from_disk

    def load_dataset(path: str, name: str | None = None, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(path, name, *args, **kwargs)
        except (OSError, ValueError) as error:
            if not fake:
                hint = "load it once before, or add --fake-data to let it be made up"
                note(error, f"wants the data set {path!r}, which is not on this machine", hint)
                raise
        rows = _made_up(str(path), name, seq)
        splits = {split: rows.with_format(None) for split in _SPLITS}  # a copy for each, which a script may change
        if kwargs.get("streaming"):
            splits = {split: rows.to_iterable_dataset().repeat(_TIMES_STREAMED) for split, rows in splits.items()}
        split = kwargs.get("split")
        if split is None:
            datasets: Any = importlib.import_module("datasets")
            return (datasets.IterableDatasetDict if kwargs.get("streaming") else datasets.DatasetDict)(splits)
        chosen = [splits.get(str(each).partition("[")[0], splits["train"]) for each in _listed(split)]
        return chosen if isinstance(split, list | tuple) else chosen[0]

    load_from_disk = _reading(load_saved, "the data set that was saved in", _in_splits, fake=fake, seq=seq)
    replacing.put(module, "load_dataset", load_dataset)
    replacing.put(module, "load_from_disk", load_from_disk)


def replace_readers_of_files(module: ModuleType, replacing: Replacing, *, fake: bool, seq: int | None = None) -> None:
    """Let `Dataset.from_parquet` and the like say which file they miss, or with `fake` make it up."""
    for method in _READERS_OF_FILES:
        read = getattr(module.Dataset, method)
        reading = _reading(read, "the data set", lambda rows: rows, fake=fake, seq=seq)
        replacing.put(module.Dataset, method, staticmethod(reading))


def _reading(
    read: Callable[..., Any], what: str, finished: Callable[[Any], Any], *, fake: bool, seq: int | None
) -> Callable[..., Any]:
    """Let `read` say that it misses `what`, or with `fake` give rows that are made up, as `finished` returns them."""

    def reading(place: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return read(place, *args, **kwargs)
        except OSError as error:
            if not fake:
                note(error, f"wants {what} {place}, which is not there", "put it there")
                raise
        return finished(_made_up(str(place), None, seq))

    return reading


def _in_splits(rows: Any) -> Any:
    """Return the rows for each split if the script asks for one by its name, else the rows."""
    if set(_SPLITS).isdisjoint(keys_of_script()):
        return rows
    return importlib.import_module("datasets").DatasetDict({split: rows.with_format(None) for split in _SPLITS})


def _made_up(path: str, name: str | None, seq: int | None) -> Any:
    """Return the rows that stand for each split of a data set."""
    forms.begin()
    columns = tuple(_in_languages(column, str(name)) for column in _columns(path, name))
    rows = _with_asked(_rows(columns, seq), f"{DATA_SET}{path}", seq)
    kinds = [column.partition(" ")[::2] for column in columns if _is_text(column)]
    lengths = dict.fromkeys(f"{_num_words(name, kind, seq):,}" for name, kind in kinds)
    texts = f", texts of {' or '.join(lengths)} random words (--seq N for others)" if lengths else ""
    shown = ", ".join(rows.column_names)
    note_fake_data(f"the data set {path} is not on this machine: made up of {len(rows)} rows with {shown}{texts}")
    return rows


def _in_languages(column: str, name: str) -> str:
    """Return a column of translations with the languages that a configuration such as `de-en` or `en_fr` names."""
    if not column.endswith(" translation"):
        return column
    languages = re.findall(r"\b[a-z]{2}\b", name.replace("_", "-"))
    return " ".join((column, *(languages if len(languages) == _PAIR else ("en", "fr"))))


def _with_asked(rows: Any, place: str, seq: int | None) -> Any:
    """Return rows with the values that the program has asked for, and remember their texts."""
    datasets: Any = importlib.import_module("datasets")
    fields, chance, count = forms.of(place).row.fields, random.Random(0), len(rows)
    if fields:
        rows = rows.remove_columns([name for name in fields if name in rows.column_names])
        with _unhashed():
            asked = datasets.Dataset.from_list(
                [
                    {name: made(value, name, i, lambda: text_of_words(chance, seq)) for name, value in fields.items()}
                    for i in range(count)  # as before all columns were removed
                ]
            )
            names = [name for name, value in fields.items() if value.kind == "class"]
            for name in names:
                asked = asked.cast_column(name, datasets.ClassLabel(names=[f"w{number}" for number in range(CLASSES)]))
            rows = datasets.concatenate_datasets([rows, asked], axis=1) if rows.column_names else asked
    texts = [name for name, feature in rows.features.items() if not hasattr(feature, "decode_example")]
    forms.note(place, [{name: row.get(name) for name in rows.column_names} for row in rows.select_columns(texts)])
    return rows


@contextlib.contextmanager
def _unhashed() -> Iterator[None]:
    """Let new data sets have a name of their own instead of one made of all their content."""
    module: Any = importlib.import_module("datasets.arrow_dataset")
    with patched([(module, "generate_fingerprint", lambda _dataset: f"memlint{next(_numbers):016x}")]):
        yield


_numbers = itertools.count()


def _listed(split: Any) -> Any:
    return split if isinstance(split, list | tuple) else [split]


def _columns(path: str, name: str | None) -> tuple[str, ...]:
    last = path.rsplit("/", 1)[-1].lower()
    if path in _OF_FILES:
        return _OF_FILES[path]
    if known := next((_COLUMNS[each] for each in (f"{last}/{name}", path.lower(), last) if each in _COLUMNS), None):
        return known
    named = _columns_of_command() or columns_named_by_script()
    if not getattr(importlib.import_module("datasets").config, "TORCHCODEC_AVAILABLE", True):
        named.pop("audio", None)  # which nothing could decode
    return tuple(f"{name} {kind}".strip() for name, kind in named.items()) or ("text",)


def _columns_of_command() -> dict[str, str]:
    """Return the columns that options of the command name, as `--text_column_name sentence`, and what each holds."""
    kinds = {"audio": "audio 16000", "image": "image 512x512", "label": "class 2"}
    words = [word for each in sys.argv[1:] for word in (each.split("=", 1) if each.startswith("-") else [each])]
    named = ((_COLUMN_OPTION.fullmatch(word), value) for word, value in itertools.pairwise(words))
    return {each: kinds.get(of[1], "") for of, value in named if of is not None for each in re.split("[+,]", value)}


def columns_named_by_script() -> dict[str, str]:
    """Return usual columns whose names are strings in the script's files, imported so far, and what each holds."""
    strings = {string: None for text in texts_of_script() for string in _strings(text)}
    kinds = {string: _USUAL[string].partition(" ")[2] for string in strings if string in _USUAL}
    if "tokens" in kinds.values() and not has_tokenized_data():  # whoever makes tokens of texts has none before
        return {name: kind for name, kind in kinds.items() if kind != "tokens"}
    return kinds


def keys_of_script() -> tuple[str, ...]:
    """Return the names by which the script's files take values out of dictionaries, in the order of the texts.

    That is `row["name"]`, `row.get("name")` and `"... {name} ..."`, which `format_map` fills in.
    """
    keys: dict[str, None] = {}
    for text in texts_of_script():
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Load()):
                    keys[key] = None
                case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
                    keys[key] = None
                case ast.Constant(value=str(template)) if "{" in template:
                    keys.update(dict.fromkeys(_FIELD.findall(template)))
    return tuple(key for key in keys if not key.isupper())  # which are variables of the environment


def compared_by_script() -> dict[str, tuple[str, ...]]:
    """Return the texts that the script's files compare with values by a name, as in `row["split"] == "train"`."""
    compared: dict[str, dict[str, None]] = {}
    for text in texts_of_script():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare) and (name := _name_of(node.left)):
                constants = (each for right in node.comparators for each in ast.walk(right))
                texts = (each.value for each in constants if isinstance(each, ast.Constant))
                compared.setdefault(name, {}).update((each, None) for each in texts if isinstance(each, str) and each)
    return {name: tuple(texts) for name, texts in compared.items() if texts}


def _name_of(node: ast.expr) -> str:
    """Return the name by which an expression takes a value; empty for another one."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str(name))) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case ast.Call(func=ast.Attribute(attr="lower" | "strip", value=inner)):
            return _name_of(inner)
    return ""


def has_tokenized_data() -> bool:
    """Return True if no file of the script makes numbers of texts: then its data has the numbers."""
    return not any(_TOKENIZES.search(text) for text in texts_of_script())


def _files() -> Iterator[str]:
    frame = script_frame()
    modules = map(file_of, list(sys.modules.values()))
    yield from dict.fromkeys(
        path
        for path in (frame and frame.path, *modules)
        if path and path.endswith(".py") and is_users(path) and not is_memlint(path, rules=True)
    )


def texts_of_script() -> Iterator[str]:
    """Yield the texts of the script's files that are imported so far."""
    return ("".join(linecache.getlines(path)) for path in _files())


def _strings(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _is_text(column: str) -> bool:
    return column.partition(" ")[2].partition(" ")[0] in ("", "text", "talk", "turns", "steps", "shares")


def _num_words(name: str, kind: str, seq: int | None) -> int:
    """Return the number of words of a column's texts; with `seq` a row of a text, a pair or a conversation has it."""
    if kind.startswith(("talk", "shares")):
        return min(seq or _NUM_TURNS, forms.most_words)
    if kind.startswith("text "):
        return min(seq or int(kind.removeprefix("text ")), forms.most_words)
    if _OF_PAIRS.fullmatch(name):
        return min((seq or _NUM_WORDS // 4) // 2, forms.most_words)
    return min(seq or _NUM_WORDS, forms.most_words)


def _rows(columns: tuple[str, ...], seq: int | None) -> Any:
    datasets: Any = importlib.import_module("datasets")
    chance = random.Random(0)
    count = _NUM_RECORDINGS if any(" audio " in column for column in columns) else forms.num_rows
    values: dict[str, list[Any]] = {}
    features: dict[str, Any] = {}
    for column in columns:
        key, _, kind = column.partition(" ")
        features[key], make = _made(kind, chance, datasets, _num_words(key, kind, seq))
        values[key] = [make(i) for i in range(count)]
    recordings = {key: feature for key, feature in features.items() if isinstance(feature, datasets.Audio)}
    encoded = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    with _unhashed():
        rows = datasets.Dataset.from_dict(
            values, features=datasets.Features(features | dict.fromkeys(recordings, encoded))
        )
    for key, feature in recordings.items():  # which needs no decoder as long as nobody listens
        rows = rows.cast_column(key, feature)
    return rows


def _made(kind: str, words: random.Random, datasets: Any, num_words: int) -> tuple[Any, Make]:
    """Return the type of a column, and what makes the value of a row, with texts of `num_words`."""
    what, *sizes = kind.split() or ["text"]
    value = datasets.Value
    if what == "talk":  # of these roles; all columns of a row ask the same
        texts: dict[str, Make] = {
            "user": lambda i: text_of_words(random.Random(i), num_words // _ASKED),
            "assistant": lambda _: text_of_words(words, num_words - num_words // _ASKED),
        }
        return [{"role": value("string"), "content": value("string")}], lambda i: [
            {"role": role, "content": texts[role](i)} for role in sizes
        ]
    if what == "turns":
        roles = ("user", "assistant")
        one = dict.fromkeys(roles, value("string"))
        return [one], lambda _: [{role: text_of_words(words, num_words // 2) for role in roles}]
    if what == "shares":
        one = {"from": value("string"), "value": value("string")}
        return [one], lambda i: [
            {"from": "human", "value": text_of_words(random.Random(i), num_words // _ASKED)},
            {"from": "gpt", "value": text_of_words(words, num_words - num_words // _ASKED)},
        ]
    if what == "translation":
        return datasets.Translation(languages=sizes), lambda _: {
            language: text_of_words(words, min(num_words, _OF_SENTENCE)) for language in sizes
        }
    if what == "tags":
        tags = list(range(_OF_SENTENCE))
        return [datasets.ClassLabel(num_classes=int(sizes[0]))], lambda _: [tag % int(sizes[0]) for tag in tags]
    if what == "objects":
        kinds = {
            "id": value("int64"),
            "area": value("int64"),
            "category": datasets.ClassLabel(num_classes=int(sizes[0])),
        }
        numbers = list(range(_NUM_OBJECTS))
        one_row = {"id": numbers, "area": [4096] * _NUM_OBJECTS, "bbox": [[32.0, 32.0, 64.0, 64.0]] * _NUM_OBJECTS}
        one_row["category"] = [number % int(sizes[0]) for number in numbers]
        return {**{key: [each] for key, each in kinds.items()}, "bbox": [[value("float32")]]}, lambda _: one_row
    if what == "class":
        return datasets.ClassLabel(num_classes=int(sizes[0])), lambda i: i % int(sizes[0])
    if what in ("image", "images", "grey"):
        width, height = map(int, sizes[0].split("x"))
        image = {"bytes": _png((width, height), "L" if what == "grey" else "RGB"), "path": None}
        return ([datasets.Image()], lambda _: [image]) if what == "images" else (datasets.Image(), lambda _: image)
    if what == "audio":
        recording = {"bytes": silence(int(sizes[0])), "path": None}
        return datasets.Audio(sampling_rate=int(sizes[0])), lambda _: recording
    plain: dict[str, tuple[Any, Make]] = {
        "answers": (
            {"text": [value("string")], "answer_start": [value("int32")]},
            lambda _: {"text": ["w1"], "answer_start": [0]},
        ),
        "tokens": ([value("int64")], lambda i: [(i + place) % _VOCABULARY for place in range(num_words)]),
        "words": ([value("string")], lambda _: text_of_words(words, _OF_SENTENCE).split()),
        "texts": (
            [value("string")],
            lambda _: [text_of_words(words, int(sizes[1])) for _ in range(int(sizes[0]))],
        ),
        "choices": (
            {key: [value("string")] for key in ("text", "label")},
            lambda _: {
                "text": [text_of_words(words, int(sizes[1])) for _ in range(int(sizes[0]))],
                "label": list(string.ascii_uppercase[: int(sizes[0])]),
            },
        ),
        "one": (value("string"), lambda i: sizes[i % len(sizes)]),
        "index": (value("int32"), lambda i: i),
        "flag": (value("bool"), lambda i: bool(i % 2)),
        "score": (value("float64"), float),
        "flags": ([value("bool")], lambda _: [True] * _NUM_STEPS),
        "steps": (
            [value("string")],
            lambda _: [text_of_words(words, num_words // _NUM_STEPS) for _ in range(_NUM_STEPS)],
        ),
        "text": (value("string"), lambda _: text_of_words(words, num_words)),
    }
    return plain[what]


def text_of_words(chance: random.Random, count: int | None = None) -> str:
    """Return a text of `count` random words, which every fake tokenizer has; None for as many as most texts."""
    return " ".join(f"w{chance.randrange(_VOCABULARY)}" for _ in range(min(count or _NUM_WORDS, forms.most_words)))


def _png(size: tuple[int, int], mode: str) -> bytes:
    file = io.BytesIO()
    black_image(size, mode).save(file, "PNG")
    return file.getvalue()


def silence(rate: int) -> bytes:
    """Return a WAV file of one channel with 16 bits, sampled `rate` times a second."""
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(2)
        recording.setframerate(rate)
        recording.writeframes(bytes(2 * rate * _SECONDS))
    return file.getvalue()
