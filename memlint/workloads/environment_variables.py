"""Environment variables that a program needs and that are not set, with the values that its project gives them.

Settings of a config without a value are of the same kind: the program fails where it uses None.
"""

from __future__ import annotations

import importlib
import linecache
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from memlint.base.frames import chain, line_of, text_of
from memlint.base.ownership import is_users
from memlint.source.files import SKIPPED_DIRECTORIES, Unreadable, read_bytes
from memlint.source.typed_commands import typed_configs

_READ = re.compile(r"""os\.environ\[["'](\w+)["']\](?!\s*=[^=])""")
_READ_IF_SET = re.compile(r"""\benv(?:iron)?(?:\.get\(["']|\.)([A-Z][A-Z0-9_]{3,})\b|\bgetenv\(["'](\w+)["']\)""")
"""The same where a variable that is not set gives None, perhaps by an object that has all of them as attributes."""
_NO_PLACE = re.compile(
    r"^[ \t]*(?!\w*(?:log|out|save|exp|resume|checkpoint|ckpt|cache))(\w*(?:folder|dir|path|root|file)\w*):"
    r"[ \t]*(?:~|null)[ \t]*(?:#(?!.*(?:[Dd]efault|[Oo]ptional)).*)?$",
    re.MULTILINE,
)
"""A setting of a config that is to be a place to read from, and has no value."""
_UNSET = re.compile(r"Environment variable '(\w+)' not found")
_MADE_UP = re.compile(
    r"(.*_)?(dirs?|directory|folder|path|root|home|data|dataset|datasets|cache|logs?|output|outputs|save|storage|"
    r"jobs|runs|results?|experiments?|checkpoints?|te?mp|workspace|entity|project|team|user|username|api_key|token)",
    re.IGNORECASE,
)
"""Names of variables for a place or an account, which decide on no byte of a step."""
_OF_PROJECT = re.compile(r"(project|repo|repository|code|source|src)_?(root|dir|folder|path|home)", re.IGNORECASE)
"""Names of those for the project's own folder, from which it is run."""
_NAME = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
_READERS = frozenset(("environ", "getenv"))
"""Names that a function has which reads variables, and the name of one in its error."""
_MOST_FILES, _MOST_FOLDERS = 400, 3
_SUFFIXES = (".py", ".sh", ".md", ".env", ".yaml", ".yml")
_TOPS = (".git", "README.md", "pyproject.toml", "setup.py")
"""Names in the folder of a project."""


def unset_variable(error: BaseException) -> str:
    """Return the environment variable that the program needs and that is not set; empty if the error is another one."""
    frames = [frame for frame, _line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, KeyError) and frames and frames[-1].f_locals.get("self") is os.environ:
        return str(error.args[0])
    last = frames[-1].f_code if frames else None
    if last is not None and is_users(last.co_filename) and not _READERS.isdisjoint(last.co_names):
        named = [each for each in _NAME.findall(text_of(error)) if each not in os.environ]
        if named and line_of(error).lstrip().startswith("raise"):
            return str(named[0])
    return next((found[1] for link in chain(error) if (found := _UNSET.search(text_of(link)))), "")


def made_up_value(name: str) -> str:
    """Return a value of such a variable: its own name in small letters, or the current folder for the project's."""
    return os.getcwd() if _OF_PROJECT.fullmatch(name) else name.lower()  # noqa: PTH109 -- a text


def is_made_up(name: str) -> bool:
    """Return True for a variable whose value is a place or an account: any will do."""
    return _MADE_UP.fullmatch(name) is not None


def unset_variables(name: str, place: str, command: str) -> str:
    """Return how to set the variable `name`, which the line at `place` reads, and all others that its file reads.

    Where the project sets one itself, the hint says where, and has the value unless that is computed there. `command`
    is what to type behind.
    """
    if not place:
        return f"Set the environment variable, as where it is run: {name}=VALUE {command}"
    file, _, line = place.rpartition(":")
    missing = {name: None, **dict.fromkeys(each for each in _read_by(Path(file)) if each not in os.environ)}
    values = {each: _value_in_project(each, Path(file)) for each in missing}
    set_here = " ".join(f"{each}={value[0] if value else 'VALUE'}" for each, value in values.items())
    places = [f"{each} as in {value[1]}" for each, value in values.items() if value]
    many = "variables that line" if len(missing) > 1 else "variable that line"
    known = f" ({', '.join(places)})" if places else ""
    return (
        f"Set the environment {many} {line} of {Path(file).name} reads{known}, as where it is run: {set_here} {command}"
    )


def unset_value(error: BaseException, command: str) -> str:
    """Return what to set where a program fails on None: a setting of a config that was typed, or a variable.

    Empty if the lines that it went through use neither.
    """
    walked = reversed(list(traceback.walk_tb(error.__traceback__)))
    frames = [(frame, line) for frame, line in walked if is_users(frame.f_code.co_filename)]
    configs = [(str(path), _text(path)) for path in map(_config_file, typed_configs(sys.argv))]
    for frame, line in frames:
        for name in re.findall(r"[^\W\d]\w*", linecache.getline(frame.f_code.co_filename, line)):
            empty = rf"^([ \t]*){name}:[ \t]*(?:~|null)?[ \t]*(?:#.*)?$(?!\n\1(?:[ \t]+\S|- ))"
            for path, text in configs if frame.f_locals.get(name, 0) is None else ():
                if (match := re.search(empty, text, re.MULTILINE)) is not None:
                    return f"{path}:{text.count(chr(10), 0, match.start()) + 1} gives {name} no value: give it one."
    for path, text in configs if isinstance(error, UnboundLocalError) else ():  # of a `try` that let it pass
        if (match := _NO_PLACE.search(text)) is not None:
            return f"{path}:{text.count(chr(10), 0, match.start()) + 1} gives {match[1]} no value: give it one."
    for frame, line in frames:
        file = frame.f_code.co_filename
        unset = [each[0] or each[1] for each in _READ_IF_SET.findall(_text(Path(file)))]
        if name := next((each for each in unset if each not in os.environ), ""):
            return unset_variables(name, f"{file}:{line}", command).replace(f"that line {line} of", "that", 1)
    return ""


def _config_file(path: str) -> Path:
    """Return the file of a config that was typed: hydra finds one in the package that a script names."""
    found = [] if Path(path).is_file() or Path(path).is_absolute() else Path.cwd().glob(f"*/{path}")
    return next(iter(found), Path(path))


def absent_setting(error: BaseException) -> str:
    """Return the config that was typed and lacks a setting which the program takes; empty if it is of something else.

    A mapping that a line uses is part of a config if that has all of its names and values, and an object that lacks an
    attribute is one if it has all the names of one.
    """
    if type(error) is AttributeError and (fields := getattr(error.obj, "__dict__", None)):
        for path in typed_configs(sys.argv):
            with suppress(Exception):  # whatever the file is
                config = importlib.import_module("yaml").safe_load(_text(Path(path)))
                if any(part and part.keys() <= fields.keys() for part in _mappings_in(config)):
                    return f"{path} has no {error.name!r} where the program takes it: give it one."
        return ""
    frames = [frame for frame, _line in traceback.walk_tb(error.__traceback__)] if type(error) is KeyError else []
    own = next((frame for frame in reversed(frames) if is_users(frame.f_code.co_filename)), None)
    values = () if own is None else own.f_locals.values()
    mappings = [dict(each) for each in values if isinstance(each, Mapping) and each and error.args[0] not in each]
    for path in typed_configs(sys.argv) if mappings else ():
        with suppress(Exception):  # whatever the file is
            parts = _mappings_in(importlib.import_module("yaml").safe_load(_text(Path(path))))
            if any(each == part for part in parts for each in mappings):
                return f"{path} has no {error.args[0]!r} where the program takes it: give it one."
    return ""


def _mappings_in(value: object) -> Iterator[Mapping[str, object]]:
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _mappings_in(each)


def _text(file: Path) -> str:
    with suppress(OSError, Unreadable):
        return read_bytes(file).decode(errors="replace")
    return ""


def _read_by(file: Path) -> list[str]:
    return _READ.findall(_text(file))


def _value_in_project(name: str, file: Path) -> tuple[str, str] | None:
    """Return the first value that a file of the project gives the variable, and its place.

    The value is `VALUE` if it is no plain one.
    """
    given = re.compile(
        rf"""os\.environ(?:\.setdefault\(|\[)["']{name}["'](?:\]\s*=|\s*,)\s*["']([^"'\n$]+)["']"""
        rf"""|os\.environ\[["']{name}["']\]\s*=(?!=)|(?:^|\bexport\s+|\s){name}=["']?([\w./:-]+)["']?""",
        re.MULTILINE,
    )
    for path in islice(_files(file), _MOST_FILES):
        text = _text(path)
        if name in text and (match := given.search(text)) is not None:
            line = text.count("\n", 0, match.start(match.lastindex or 0)) + 1
            return shlex.quote(match[1] or match[2] or "VALUE"), f"{path}:{line}"
    return None


def _files(file: Path) -> Iterator[Path]:
    """Yield the files of the project around `file` that may set variables."""
    above = [*file.parents][:_MOST_FOLDERS]
    root = next((each for each in above if any((each / top).exists() for top in _TOPS)), file.parent)
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if each not in SKIPPED_DIRECTORIES and not each.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(_SUFFIXES))
