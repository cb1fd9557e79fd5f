"""Files of a project that show its use: scripts, tests, code in READMEs and notebooks, configs."""

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import takewhile
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

from memlint.source.console_scripts import declared_in
from memlint.source.files import SKIPPED_DIRECTORIES, Unreadable, read_bytes
from memlint.source.text import Source
from memlint.source.word_index import WordIndex

_MOST_FILES, _MOST_READ, MOST_NBYTES = 3000, 96, 2**19
"""Number of files that are looked at, number of files that are parsed, and the largest size of a file in bytes."""
_MOST_CONFIGS = 24
_CONFIGS = (".yaml", ".yml", ".json")
_SECTIONED = (".cfg", ".ini")
_SHOWS_COMMANDS = (".md", ".mdx", ".rst", ".sh")
_ENDINGS = (".py", ".ipynb", *_CONFIGS, *_SHOWS_COMMANDS)
_SKIPPED = SKIPPED_DIRECTORIES | {"data", "datasets"}
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*(\w*)(?!.*```)")
EVALUATES = re.compile(
    r"(^|[_-])(eval|evaluat\w*|val|valid\w*|test|infer\w*|sampl\w*|predict\w*|generat\w*|demo|export|bench\w*|distill\w*)"
    r"($|[_-])"
)
"""Pattern in the name of a file, or of a part of a config, that is for something else than training."""
_DEFAULTS = re.compile(r"^defaults\s*:", re.MULTILINE)
"""Pattern in configs from which hydra composes others."""
_FILE_NAME = re.compile(r"[\w./-]+\.ya?ml\b")
_LEFT_OPEN = re.compile(r"(?<=[(,=])\s*<\w[\w -]*>(?=[),\n])")
"""Arguments in a document that a reader is to fill in: `predictor.set_image(<your_image>)`."""
_PICTURE = "__import__('numpy').zeros((480, 640, 3), 'uint8')"
_PYTHON = frozenset({"", "python", "py", "python3", "pycon"})


class Composed(NamedTuple):
    """The values of a config, and the files that they come from."""

    values: Mapping[str, Any]
    parts: tuple[Path, ...]


@dataclass(frozen=True)
class ProjectFiles:
    """Files below one folder; only those that mention the searched words are parsed."""

    root: Path
    near: Path
    """A file; files named after training come first, those named after evaluation last, nearer ones before others."""
    compose: Callable[[Path, tuple[Path, str] | None], Composed | None] = lambda _path, _primary: None
    """Composes a config as hydra does: called with its path, and the config and the choice that lead to it."""
    keeps_index: bool = False
    """True to bring the project's index of words up to date; without it what is kept of one counts."""
    _texts: dict[Path, str] = field(default_factory=dict)
    _codes: dict[Path, tuple[Source, ...]] = field(default_factory=dict)
    _read: dict[Path, Composed] = field(default_factory=dict)
    _definitions: dict[str, Path | None] = field(default_factory=dict)
    _candidates: dict[object, frozenset[Path]] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The `paths` as text, folder by folder."""
        found: list[str] = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _SKIPPED)
            found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(_ENDINGS)]  # noqa: PTH118
            if len(found) > _MOST_FILES:
                break
        return tuple(found[:_MOST_FILES])

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Candidate files, the nearest first."""
        return tuple(map(Path, sorted(self.names, key=self._distance)))

    @cached_property
    def commands(self) -> Mapping[str, str]:
        """The commands that the project declares, each with its function as `package.module:function`."""
        return declared_in(self.root)

    @cached_property
    def _with_code(self) -> tuple[Path, ...]:
        """Those of `paths` that may hold code."""
        return tuple(path for path in self.paths if path.suffix not in (*_CONFIGS, ".sh"))

    @cached_property
    def _index(self) -> WordIndex:
        index = WordIndex.read(self.root)
        return index.updated(sorted(self.paths), MOST_NBYTES) if self.keeps_index else index

    @cached_property
    def _unindexed(self) -> frozenset[Path]:
        return self._index.unknown(self.paths)

    @cached_property
    def _near_parts(self) -> list[str]:
        return str(self.near).split(os.sep)  # noqa: PTH206 -- as `_distance`

    def _distance(self, name: str) -> tuple[bool, bool, int, str]:
        parts, near = name.split(os.sep), self._near_parts  # noqa: PTH206 -- thousands of them
        num_common = sum(1 for _ in takewhile(bool, map(eq, parts, near)))
        steps = len(parts) + len(near) - 2 * num_common
        stem = os.path.splitext(parts[-1])[0]  # noqa: PTH122
        return "train" not in stem, EVALUATES.search(stem) is not None, steps, name

    def sources(
        self, words: Collection[str], is_worth: Callable[[Path, str], bool] = lambda _path, _text: True
    ) -> Iterator[Source]:
        """Yield code that contains one of `words`: of Python files, of blocks in documents, of notebooks.

        `is_worth` says of a path and the text of its code whether it is parsed at all.
        """
        num_read = 0
        candidates = self._that_may_mention(words)
        for path in self._with_code:
            if path in candidates and self.mentions(path, words):
                num_read += 1
                if num_read > _MOST_READ:
                    return
                if path in self._codes or is_worth(path, _shown(path, self.text(path))):
                    yield from self.code(path)

    def may_mention(self, path: Path, words: Collection[str], endings: Collection[str] = ()) -> bool:
        """Return True if one of the files may contain one of `words`, or a word with one of `endings`: it is unread."""
        return path in self._that_may_mention(words, endings)

    def _that_may_mention(self, words: Collection[str], endings: Collection[str] = ()) -> frozenset[Path]:
        key = (*words,), (*endings,)
        if key not in self._candidates:
            self._candidates[key] = self._index.files_with(words, endings) | self._unindexed
        return self._candidates[key]

    def mentions(self, path: Path, words: Collection[str]) -> bool:
        """Return True if one of the files contains one of `words`."""
        if not self.may_mention(path, words):
            return False
        text = self.text(path)
        return any(word in text and _whole(word).search(text) is not None for word in words)

    def code(self, path: Path) -> tuple[Source, ...]:
        """Return all code of one of the files, a document block by block, parsed once."""
        if path not in self._codes:
            self._codes[path] = ()
            with suppress(Unreadable):
                self._codes[path] = tuple(_code(path, self.text(path)))
        return self._codes[path]

    @cached_property
    def configs(self) -> Mapping[Path, Mapping[str, Any]]:
        """Return the mappings in YAML and JSON files: those that a document or shell script names, then the nearest."""
        configs: dict[Path, Mapping[str, Any]] = {}
        for path in self._config_paths:
            if len(configs) < _MOST_CONFIGS:
                value = _config(path, self.text(path))
                if isinstance(value, Mapping) and value:
                    configs[path] = value
        return configs

    def defining(self, name: str) -> Path | None:
        """Return the nearest Python file that defines a class or function of this name at its top level."""
        if name not in self._definitions:
            defines = re.compile(rf"^(?:class|def) {re.escape(name)}(?!\w)", re.MULTILINE)
            own = (path for path in self.paths if path.suffix == ".py" and self.mentions(path, (name,)))
            self._definitions[name] = next((path for path in own if defines.search(self.text(path))), None)
        return self._definitions[name]

    def command_lines(self, script: str) -> Iterator[tuple[str, ...]]:
        """Yield the options that documents and shell scripts type after the name of a Python script."""
        for path in self.paths:
            text = self.text(path) if path.suffix in _SHOWS_COMMANDS else ""
            if script in text:
                for line in re.findall(rf"(?<![\w.-]){re.escape(script)} +(-[^\n`;|]*)", text.replace("\\\n", " ")):
                    yield tuple(line.replace("=", " ").split())

    def config(self, name: str) -> tuple[Path, Mapping[str, Any]] | None:
        """Return the mapping in a YAML, JSON or INI file of the project, by its path from some folder above `near`."""
        if not name.endswith((*_CONFIGS, *_SECTIONED)):
            return None
        above = (folder for folder in self.near.parents if folder.is_relative_to(self.root))
        path = next((path for folder in above if (path := folder / name).is_file()), None)
        values = None if path is None else self._composed(path).values
        return (path, values) if path is not None and values else None

    def configs_naming(self, words: Collection[str]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """Yield the configs that contain one of `words`, as the program composes them; those that it takes first.

        Those whose name, or folder in the project, says that nothing is trained come after the others.
        """
        naming = {path for path in self.paths if path.suffix in _CONFIGS and self.mentions(path, words)}
        if not naming:
            return
        included = frozenset(each for path in self._config_paths for each in self._named_in(path))
        whole = [path for path in self._config_paths if path in naming or not naming.isdisjoint(self._named_in(path))]
        for path in sorted(whole, key=lambda p: (p not in self._chosen, self._evaluates(p), p in included))[
            :_MOST_CONFIGS
        ]:
            yield path, self._composed(path).values

    def _evaluates(self, path: Path) -> bool:
        parts = path.with_suffix("").relative_to(self.root).parts if path.is_relative_to(self.root) else (path.stem,)
        return any(EVALUATES.search(part.lower()) for part in parts)

    def _named_in(self, path: Path) -> frozenset[Path]:
        """Return the files that a config names by their paths, with those that these name."""
        named: list[Path] = [path]
        for each in named:
            text = self.text(each)
            names = _FILE_NAME.findall(text) if ".yaml" in text or ".yml" in text else ()
            files = ((each.parent / name).resolve() for name in names)
            named += [file for file in dict.fromkeys(files) if file not in named and file.is_file()]
        return frozenset(named[1:])

    def place_of(self, path: Path, word: str) -> tuple[Path, int]:
        """Return the first line that mentions `word` outside of a comment, in a config or a file that it is made of.

        That is its first line if none does.
        """
        for part in (path, *self._composed(path).parts):
            for number, line in enumerate(self.text(part).splitlines(), 1):
                if word in line and not line.lstrip().startswith("#"):
                    return part, number
        return path, 1

    def _composed(self, path: Path) -> Composed:
        """Return a config with the files that it includes, or as hydra composes it."""
        if path not in self._read:
            values = _config(path, self.text(path))
            composed = _including(path, values, self.text) if isinstance(values, Mapping) else Composed({}, ())
            self._read[path] = self.compose(path, self._primary_of(path)) or composed if composed.values else composed
        return self._read[path]

    @cached_property
    def _config_paths(self) -> tuple[Path, ...]:
        shown = "\n".join(self.text(path) for path in self.paths if path.suffix in _SHOWS_COMMANDS)
        paths = [path for path in self.paths if path.suffix in _CONFIGS]
        return tuple(sorted(paths, key=lambda path: path.name not in shown))

    @cached_property
    def _primaries(self) -> Mapping[Path, Mapping[str, str]]:
        """The configs from which hydra composes others, each with the choices of groups that its defaults have."""
        found = {}
        for path in self._config_paths:
            if _DEFAULTS.search(self.text(path)) and isinstance(values := _config(path, self.text(path)), Mapping):
                entries = [each for each in values.get("defaults") or () if isinstance(each, Mapping)]
                found[path] = {str(k).removeprefix("optional "): str(v) for each in entries for k, v in each.items()}
        return found

    @cached_property
    def _chosen(self) -> frozenset[Path]:
        """Files that hydra composes where nobody chooses others."""
        choices = ((path, *each) for path, groups in self._primaries.items() for each in groups.items())
        return frozenset((path.parent / group / name).with_suffix(".yaml") for path, group, name in choices)

    def _primary_of(self, path: Path) -> tuple[Path, str] | None:
        """Return the config from which hydra composes a file, and how the command line chooses the file there."""
        for primary, groups in self._primaries.items():
            if path != primary and path.is_relative_to(primary.parent) and path.parent != primary.parent:
                group = path.parent.relative_to(primary.parent).as_posix()
                return primary, f"{'' if group in groups else '+'}{group}={path.stem}"
        return (path, "") if path in self._primaries else None

    def text(self, path: Path) -> str:
        """Return the text of one of the files; empty for one that is too large or cannot be read."""
        if path not in self._texts:
            self._texts[path] = ""
            with suppress(OSError, Unreadable):
                if path.stat().st_size <= MOST_NBYTES:
                    self._texts[path] = read_bytes(path).decode(errors="replace")
        return self._texts[path]


@lru_cache(maxsize=256)
def _whole(word: str) -> re.Pattern[str]:
    # A pattern that begins with plain text is searched ten times as fast as one that begins with a condition.
    escaped = re.escape(word)
    return re.compile(rf"{escaped}(?!\w)(?<!\w{escaped})")


def _including(path: Path, values: Mapping[str, Any], text: Callable[[Path], str], depth: int = 4) -> Composed:
    """Return the values of a config over those of the files that it names, which are relative to it."""
    merged: dict[str, Any] = {}
    parts = [path]
    for value in values.values() if depth else ():
        names = value if isinstance(value, list) else [value]
        files = [path.parent / each for each in names if isinstance(each, str) and each.endswith((".yaml", ".yml"))]
        for file in (each.resolve() for each in files if len(files) == len(names) and each.is_file()):
            other = _config(file, text(file))
            if isinstance(other, Mapping) and file != path:
                included = _including(file, other, text, depth - 1)
                merged, parts = _over(merged, included.values), [*parts, *included.parts]
    return Composed(_over(merged, values), tuple(parts))


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `own` in place of its own, mapping by mapping."""
    both = {key: _over(base[key], own[key]) for key in own if isinstance(own[key], Mapping)
            and isinstance(base.get(key), Mapping)}  # fmt: skip
    return {**base, **own, **both}


def _config(path: Path, text: str) -> object:
    import configparser  # noqa: PLC0415 -- who reads none does without

    import yaml  # noqa: PLC0415

    try:
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix in _SECTIONED:
            sections = configparser.ConfigParser(strict=False, interpolation=None)
            sections.read_string(text)
            return {name: {key: yaml.safe_load(value) for key, value in sections[name].items()} for name in sections}
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the compiled one is ten times as fast
        documents = [each for each in yaml.load_all(text, Loader=loader) if each is not None]
        several = documents and all(isinstance(each, dict) for each in documents)  # which a program then takes together
        return {k: v for each in documents for k, v in each.items()} if several else next(iter(documents), None)
    except Exception:  # any error of a parser: the file may be meant for another one
        return None


def _code(path: Path, text: str) -> Iterator[Source]:
    """Yield the Python code of a file, each line at its own number."""
    if path.suffix == ".py":
        yield Source.from_text(text, str(path))
    elif path.suffix == ".ipynb":
        yield Source.from_text("\n".join(_cells(text)), str(path))
    else:
        for first, lines in _blocks(text):
            with suppress(Unreadable):
                code = _LEFT_OPEN.sub(lambda match: _PICTURE if "image" in match[0] else "None", "\n".join(lines))
                yield Source.from_text("\n" * first + code, str(path))


@lru_cache(maxsize=256)
def _shown(path: Path, text: str) -> str:
    """Return the code of a document, without its prose; all of any other file."""
    if path.suffix not in _SHOWS_COMMANDS:
        return text
    return "\n".join(line for _first, lines in _blocks(text) for line in lines)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the code blocks of a document, with the number of lines before each."""
    fence, first, block = "", 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if not fence and match is not None:
            fence, first, block = match[1] if match[2].lower() in _PYTHON else "-", number, []
        elif fence and match is not None and (fence == "-" or line.strip() == fence):
            if fence != "-":
                indent = min((len(each) - len(each.lstrip()) for each in block if each.strip()), default=0)
                yield first, [each[indent:] for each in block]
            fence = ""
        elif fence:
            prompt = re.match(r"\s*(?:>>>|\.\.\.) ?", line)
            block.append(line if prompt is None else line[prompt.end() :])


def _cells(text: str) -> Iterator[str]:
    """Yield the lines of a notebook: those of its code unchanged, all others empty."""
    is_code = in_source = False
    for line in text.splitlines():
        entry = line.strip()
        if entry.startswith('"cell_type"'):
            is_code = '"code"' in entry
        if in_source and not entry.startswith('"'):
            in_source = False
        shown = ""
        if in_source and is_code:
            with suppress(ValueError):
                shown = str(json.loads(entry.rstrip(","))).rstrip("\n")
        yield re.sub(r"^(\s*)[%!].*", r"\1pass", shown)
        in_source = in_source or entry == '"source": ['
