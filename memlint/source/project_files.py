"""Files of a project that show its use: scripts, tests, code in READMEs and notebooks, configs."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from memlint.source.files import SKIPPED_DIRECTORIES, Unreadable, read_bytes
from memlint.source.text import Source

_MOST_FILES, _MOST_READ, _MOST_NBYTES = 3000, 96, 2**19
"""Number of files that are looked at, number of files that are parsed, and the largest size of a file in bytes."""
_MOST_CONFIGS = 24
_CONFIGS = (".yaml", ".yml", ".json")
_SECTIONED = (".cfg", ".ini")
_SHOWS_COMMANDS = (".md", ".rst", ".sh")
_ENDINGS = (".py", ".ipynb", *_CONFIGS, *_SHOWS_COMMANDS)
_SKIPPED = SKIPPED_DIRECTORIES | {"data", "datasets"}
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*(\w*)")
_PYTHON = frozenset({"", "python", "py", "python3", "pycon"})


@dataclass(frozen=True)
class ProjectFiles:
    """Files below one folder; only those that mention the searched words are parsed."""

    root: Path
    near: Path
    """A file; files named after training come first, then the nearest to it."""
    _texts: dict[Path, str] = field(default_factory=dict)
    _codes: dict[Path, tuple[Source, ...]] = field(default_factory=dict)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Candidate files, the nearest first."""
        paths = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _SKIPPED)
            paths += [Path(folder, name) for name in sorted(names) if name.endswith(_ENDINGS)]
            if len(paths) > _MOST_FILES:
                break
        return tuple(sorted(paths[:_MOST_FILES], key=self._distance))

    def _distance(self, path: Path) -> tuple[bool, int, str]:
        common = os.path.commonpath((path, self.near))
        steps = len(path.parts) + len(self.near.parts) - 2 * len(Path(common).parts)
        return "train" not in path.stem, steps, str(path)

    def sources(self, words: Collection[str]) -> Iterator[Source]:
        """Yield code that contains one of `words`: of Python files, of blocks in documents, of notebooks."""
        # A pattern that begins with plain text is searched ten times as fast as one that begins with a condition.
        patterns = [re.compile(rf"{word}(?!\w)(?<!\w{word})") for word in map(re.escape, words)]
        num_read = 0
        for path in self.paths:
            if path.suffix in (*_CONFIGS, ".sh") or num_read >= _MOST_READ:
                continue
            text = self._text(path)
            if any(pattern.search(text) for pattern in patterns):
                num_read += 1
                yield from self.code(path)

    def code(self, path: Path) -> tuple[Source, ...]:
        """Return all code of one of the files, a document block by block, parsed once."""
        if path not in self._codes:
            self._codes[path] = ()
            with suppress(Unreadable):
                self._codes[path] = tuple(_code(path, self._text(path)))
        return self._codes[path]

    @cached_property
    def configs(self) -> Mapping[Path, Mapping[str, Any]]:
        """Return the mappings in YAML and JSON files, the nearest first."""
        configs: dict[Path, Mapping[str, Any]] = {}
        for path in self.paths:
            if path.suffix in _CONFIGS and len(configs) < _MOST_CONFIGS:
                value = _config(path, self._text(path))
                if isinstance(value, Mapping) and value:
                    configs[path] = value
        return configs

    def command_lines(self, script: str) -> Iterator[tuple[str, ...]]:
        """Yield the options that documents and shell scripts type after the name of a Python script."""
        for path in self.paths:
            text = self._text(path).replace("\\\n", " ") if path.suffix in _SHOWS_COMMANDS else ""
            for line in re.findall(rf"(?<![\w.-]){re.escape(script)} +(-[^\n`;|]*)", text):
                yield tuple(line.replace("=", " ").split())

    def config(self, name: str) -> tuple[Path, Mapping[str, Any]] | None:
        """Return the mapping in a YAML, JSON or INI file of the project, by its path from some folder above `near`."""
        if not name.endswith((*_CONFIGS, *_SECTIONED)):
            return None
        above = (folder for folder in self.near.parents if folder.is_relative_to(self.root))
        path = next((path for folder in above if (path := folder / name).is_file()), None)
        value = None if path is None else _config(path, self._text(path))
        return (path, value) if path is not None and isinstance(value, Mapping) else None

    def line_of(self, path: Path, word: str) -> int:
        """Return the first line that mentions `word` outside of a comment, or else the first of all."""
        lines = enumerate(self._text(path).splitlines(), 1)
        return next((number for number, line in lines if word in line and not line.lstrip().startswith("#")), 1)

    def _text(self, path: Path) -> str:
        if path not in self._texts:
            self._texts[path] = ""
            with suppress(OSError, Unreadable):
                if path.stat().st_size <= _MOST_NBYTES:
                    self._texts[path] = read_bytes(path).decode(errors="replace")
        return self._texts[path]


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
        return yaml.safe_load(text)
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
                yield Source.from_text("\n" * first + "\n".join(lines), str(path))


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
