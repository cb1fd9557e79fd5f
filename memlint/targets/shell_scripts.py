"""The command in a shell script that starts training, with the variables that the script sets before it.

The shell itself is never run: assignments, arrays and their uses are read, and what only the shell would know stays as
it is written.
"""

import functools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from memlint.base.errors import TargetError, UsageError
from memlint.source.console_scripts import declared_around
from memlint.source.shell_arithmetic import computed
from memlint.source.shell_branches import UNQUOTED, Branches, commands_of
from memlint.targets.launchers import Launch, is_launch, launch_of

_SHELLS = ("bash", "sh", "zsh", "source", ".")
_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch")
_FIRST_LINE = re.compile(rb"#! *\S*(?:/| )(?:ba|z|da)?sh\b")
"""How a file without a suffix begins that a shell runs."""
_ARRAY = re.compile(r"([A-Za-z_]\w*)\+?=\((.*)\)", re.DOTALL)
_EXPORT = re.compile(r"(?:export\s+|declare\s+-x\s+)?([A-Za-z_]\w*)(\+?)=.*", re.DOTALL)
_USE = re.compile(r"\$(?:\{(\w+)(?::?[-=]([^}]*))?\}|(\w+))")
_LOOP = re.compile(r"for\s+(\w+)\s+in\s+(.+)", re.DOTALL)
_INDICES = re.compile(r"\"?\$\{!\w+\[[@*]\]\}\"?")
_ELEMENT = re.compile(r"\$\{(\w+)\[(\$?\w+)\]\}")
_ALL_ARGUMENTS = re.compile(r"\"?\$(?:\{@(?::(\d+))?\}|[@*])\"?")
_USE_OF_ARRAY = re.compile(r"\"?\$\{(\w+)\[[@*]\]\}\"?")
_UNKNOWN = re.compile(r"\$[({\w@*#]|`")
_OWN_FOLDER = re.compile(r"\$\(\s*dirname\s+\"?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?\"?\s*\)")
_REDIRECTION = re.compile(rf"(?<=\s)(?:\d|&)?(?:>>?|<)(?:&\d|\s*[<>]\([^)]*\)|\s*\S+){UNQUOTED}")


def shell_script(words: Sequence[str], folder: Path = Path()) -> Sequence[str] | None:
    """Return a shell script and its arguments, if these words run one in `folder`."""
    first = words[0] if words else ""
    if first.rpartition("/")[2] in _SHELLS and len(words) > 1 and os.path.isfile(folder / words[1]):  # noqa: PTH113 -- any text
        return words[1:]
    return words if _is_shell_script(folder / first) else None


def _is_shell_script(file: Path) -> bool:
    if not os.path.isfile(file):  # noqa: PTH113 -- it may be any text
        return False
    if file.suffix:
        return file.suffix in _SUFFIXES
    with suppress(OSError), file.open("rb") as opened:
        return _FIRST_LINE.match(opened.readline(99)) is not None
    return False


def launch_in(file: Path, arguments: Sequence[str] = (), variables: Mapping[str, str] | None = None) -> Launch:
    """Return the first training that a shell script starts, or else the first script; `arguments` are `$1`, `$2`, ...

    `variables` are those that stand before the name of the shell script; others are those of this process. Raises
    TargetError if it starts none, UsageError if only the shell knows an argument.
    """
    launches, own = list(_launches(file, arguments, variables or {})), declared_around(file.absolute().parent)
    if not launches:
        raise TargetError(
            f"{file} starts no Python script that memlint can read", "Give its command itself: memlint run torchrun ..."
        )
    words = (
        " ".join((each.path, each.module, *([each.command, *each.arguments[:2]] if each.command else ())))
        for each in launches
    )
    trains = (each for each, text in zip(launches, words, strict=True) if "train" in text)
    scripts = (each for each in launches if not each.command or each.command in own)
    launch = next(chain(trains, scripts, launches))
    unknown = next((word for word in launch.arguments if _UNKNOWN.search(_without_typed(word, arguments))), None)
    if unknown is not None:
        hint = "Give the command with its value, or the arguments of the shell script behind its name."
        raise UsageError(f"{file}: only a shell knows what {unknown} stands for", hint)
    return launch


def _without_typed(word: str, typed: Sequence[str]) -> str:
    """Return a word without the arguments in it, which are taken as they are typed, as `${DATA}` of a document is."""
    return functools.reduce(lambda text, argument: text.replace(argument, ""), typed, word)


def _launches(
    file: Path, arguments: Sequence[str], variables: Mapping[str, str], outer: Sequence[Path] = ()
) -> Iterator[Launch]:
    """Yield what a shell script starts, itself or by another one, which knows what the `outer` ones export."""
    values = dict(os.environ) | _numbered(arguments) | dict(variables)
    arrays: dict[str, str] = {}
    exported = dict(variables)
    branches, folder = Branches(), Path()
    for line in _lines(file.read_text(encoding="utf-8", errors="replace")):
        if branches.run and (array := _ARRAY.fullmatch(line)) is not None:
            arrays[array[1]] = f"{arrays.get(array[1], '') if '+=' in line[: line.index('(')] else ''} {array[2]}"
            continue
        placed = _OWN_FOLDER.sub(lambda _: str(file.absolute().parent), line)
        expanded = computed(_with_arrays(placed, arrays, values, arguments), values)
        assignment = _EXPORT.fullmatch(expanded)
        words = _words(expanded, values)
        branches.read(words)
        if not branches.run:
            continue
        if words[:1] == ["shift"]:
            arguments = arguments[int(words[1]) if len(words) > 1 and words[1].isdecimal() else 1 :]
            values = {name: text for name, text in values.items() if not name.isdecimal()} | _numbered(arguments)
            continue
        if words[:1] == ["cd"] and len(words) == 2 and (folder / words[1]).is_dir():
            folder = folder / words[1]
        elif (loop := _LOOP.match(expanded)) is not None:
            values[loop[1]] = next(iter(_words(loop[2], values)), "")  # of its first iteration
        elif assignment is not None and len(words) == 1 + expanded.startswith(("export", "declare")):
            before = values.get(assignment[1], "") if assignment[2] else ""
            values[assignment[1]] = before + words[-1].partition("=")[2]
            if expanded.startswith(("export", "declare")):
                exported[assignment[1]] = values[assignment[1]]
        else:
            words = _words(" ".join(words[1:]), values) if words[:1] == ["eval"] else words
            yield from _started(words, folder, file, exported, outer)


def _started(
    words: Sequence[str], folder: Path, file: Path, exported: Mapping[str, str], outer: Sequence[Path]
) -> Iterator[Launch]:
    """Yield what one command of `file` starts in `folder`."""
    if words and (is_launch(words) or words[0].endswith(".py")):
        with suppress(UsageError):  # `python -c`, `uv sync`
            launch = launch_of(words)
            is_there = bool(launch.module) or (folder / launch.path).is_file()
            started_in = str(folder) if is_there else launch.folder
            yield replace(launch, variables={**exported, **launch.variables}, folder=started_in)
    elif (inner := _inner_script(words, file)) is not None and inner[0] not in (file, *outer):
        yield from _launches(*inner, exported, (file, *outer))


def _inner_script(words: Sequence[str], file: Path) -> tuple[Path, Sequence[str]] | None:
    """Return the shell script that a command of `file` starts, and its arguments; None for other commands."""
    for folder in (Path(), file.parent):
        if (inner := shell_script(words, folder)) is not None:
            return folder / inner[0], inner[1:]
    return None


def _numbered(arguments: Sequence[str]) -> dict[str, str]:
    return {str(number): text for number, text in enumerate(arguments, 1)}


def _with_arrays(line: str, arrays: Mapping[str, str], values: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Return a command with the values of arrays and of `$@` in it."""

    def element(use: re.Match[str]) -> str:
        index = values.get(use[2][1:], "") if use[2].startswith("$") else use[2]
        items = _words(arrays.get(use[1], ""), values)
        return items[int(index)] if index.isdecimal() and int(index) < len(items) else use[0]

    def given(use: re.Match[str]) -> str:
        return shlex.join(arguments[max(0, int(use[1] or 1) - 1) :])

    line = _ELEMENT.sub(element, _INDICES.sub("0", _ALL_ARGUMENTS.sub(given, line)))
    return _USE_OF_ARRAY.sub(lambda use: arrays.get(use[1], use[0]), line)


def _lines(text: str) -> Iterator[str]:
    """Yield the commands of a shell script, with their continuation lines."""
    joined = re.sub(r"\\\r?\n", " ", re.sub(r"(?m)^\s*#.*$", "", text))
    joined = re.sub(r"=\(([^()]*)\)", lambda array: f"=({' '.join(_without_comments(array[1]))})", joined)
    for line in joined.splitlines():
        yield from commands_of(line)


def _without_comments(text: str) -> Iterator[str]:
    return (re.sub(r"(?:^|\s)#.*", "", line).strip() for line in text.splitlines())


def _words(line: str, values: Mapping[str, str]) -> list[str]:
    """Return the words of a command, with the values of variables in them; none if its quotes do not match."""

    def value(use: re.Match[str]) -> str:
        name, default = use[1] or use[3], use[2]
        return values.get(name) or (_USE.sub(value, default) if default is not None else values.get(name, use[0]))

    try:
        return shlex.split(_USE.sub(value, _REDIRECTION.sub("", line)), comments=True)
    except ValueError:
        return []
