"""A log around a message: the line of the program that failed, and the command that started it."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

from memlint.base.errors import MemlintError
from memlint.targets.launchers import Launch, launch_of

_FRAMES = (
    re.compile(r'File "(?P<path>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]*)'),
    re.compile(r"^[^\n]*?│ (?P<path>[^\s│:]+\.py):(?P<line>\d+) in (?P<function>[^\s│]*)", re.MULTILINE),
    re.compile(r"\bFile (?P<path>[^\s\"]+\.py):(?P<line>\d+), in (?P<function>[^\n(]*)"),
)
"""Frames as Python, rich and IPython write them."""
_LIBRARY = re.compile(
    r"(?:^|[/\\])(?:site-packages|dist-packages|lib[/\\]python[\d.]*)[/\\]|^<|[/\\]bin[/\\][^/\\.]+$|\.exe[/\\]__main__\.py$"
)
"""Files that are not the user's: installed packages, the standard library, starters of commands, and code from text."""
_PROMPT = (
    r"(?:[^\n`]{0,80}?[$#%>\u276f]\s*|\s*[+!>$]+\s*"
    r"|\s*(?:Command|Running|Executing|cmd)\s*[:=]\s*|[^\n]*: line \d+:\s+\d+ Killed\s+|\s*)"
)
_START = (
    r"(?:[A-Za-z_]\w*=\S*\s+)*(?:\S*/)?"
    r"(?:python[\d.]*|torchrun|accelerate(?:-launch)?|deepspeed|uv run|poetry run|srun|nohup)\s+"
)
_COMMAND = re.compile(rf"^`?{_PROMPT}(?P<command>{_START}[^\n`]*)", re.MULTILINE)
_QUOTED = re.compile(rf"`(?P<command>{_START}[^\n`]*)`")
_FAILED_SCRIPT = re.compile(r"^=+\n(?P<path>\S+\.py) FAILED$", re.MULTILINE)
"""The script in the report of torchrun about its processes."""


_LONGEST = 50_000
"""Characters of the longest traceback that is read."""
_LONGEST_COMMAND = 4000
_STARTERS = ("python", "torchrun", "accelerate", "deepspeed", "uv run", "poetry run", "srun", "nohup")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a program."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The program whose message stands in a log, as far as the log shows it."""

    place: Place | None = None
    """Innermost line of the user's own code in the traceback of the message."""
    script: str = ""
    """The file that was started, as the traceback or torchrun names it."""
    words: tuple[str, ...] = ()
    """The command line that started it, if the log has it."""

    @property
    def is_plain(self) -> bool:
        """True if Python itself starts the program, without a launcher."""
        return bool(self.words or self.script) and (self.words or (self.script,))[0].endswith(".py")

    @property
    def command(self) -> str:
        """The command for the same program without a GPU: `memlint run train.py --epochs 3`; empty if unknown."""
        words = self.words or ((self.script,) if self.script else ())
        return shlex.join(("memlint", "run", *words)) if words else ""


def surroundings_of(log: str, position: int) -> Surroundings:
    """Read the traceback and the command line that belong to the message at `position` in `log`."""
    frames = _traceback(log, position)
    own = [place for place in frames if not _LIBRARY.search(place.path)]
    outermost = next((place.path for place in own if place.function.strip().startswith("<module>")), "")
    report = _FAILED_SCRIPT.search(log)
    script = outermost or (report["path"] if report else "")
    launches = list(_launches(log))
    fitting = [each for each in launches if not script or _is_file(each, script)]
    words = _words(fitting[0]) if fitting else ()
    return Surroundings(own[-1] if own else None, script, words)


def _traceback(log: str, position: int) -> list[Place]:
    """Return the frames of the traceback that ends before `position`; if none does, of the first behind it."""
    starts = [match.start() for match in re.finditer(r"Traceback \(most recent call last\)", log)]
    before = max((start for start in starts if start < position), default=None)
    frames = _frames(log[max(before or 0, position - _LONGEST) : position])
    if frames:
        return frames
    behind = next((start for start in starts if start >= position), None)
    if behind is None:
        return []
    end = next((start for start in starts if start > behind), len(log))
    return _frames(log[behind : min(end, behind + _LONGEST)])


def _frames(text: str) -> list[Place]:
    found = [
        (match.start(), Place(match["path"], int(match["line"]), match["function"].strip()))
        for pattern in _FRAMES
        for match in pattern.finditer(text)
    ]
    return [place for _, place in sorted(found, key=lambda each: each[0])]


def _launches(log: str) -> Iterator[Launch]:
    """Yield the command lines in `log` that start a Python program."""
    lines = re.sub(r"\\\s*\n\s*", " ", log).split("\n")
    short = [line[:_LONGEST_COMMAND] for line in lines if any(each in line for each in _STARTERS)]
    for match in filter(None, (pattern.search(line) for line in short for pattern in (_QUOTED, _COMMAND))):
        with suppress(MemlintError, ValueError):  # prose, or quotes that do not close
            launch = launch_of(shlex.split(match["command"].strip()))
            if not _is_prose(launch, match["command"]):
                yield launch


def _is_prose(launch: Launch, text: str) -> bool:
    """Return True if words, and not options, stand between an interpreter and what it would start."""
    words = text.split()
    name = launch.path or launch.module
    between = words[1 : words.index(name)] if name in words else []
    is_python = words[0].rpartition("/")[2].startswith("python")
    return is_python and bool(between) and not between[0].startswith("-")


def _is_file(launch: Launch, script: str) -> bool:
    name = launch.path or f"{launch.module.rpartition('.')[2]}.py"
    return _name(name) == _name(script)


def _name(path: str) -> str:
    return (PureWindowsPath if "\\" in path else PurePosixPath)(path).name


def _words(launch: Launch) -> tuple[str, ...]:
    """Return what `memlint run` takes: the launcher's whole line where it says more than the script's arguments."""
    if launch.ranks is not None or launch.accelerate is not None or launch.variables:
        return launch.words
    return (*(("-m", launch.module) if launch.module else (launch.path,)), *launch.arguments)
