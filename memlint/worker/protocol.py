"""The parent's requests to its child, their limits, and the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, TypeAlias

from pydantic import JsonValue, PlainSerializer, PlainValidator, TypeAdapter

from memlint.base import errors
from memlint.base.errors import MemlintError, WorkerError
from memlint.config import Settings
from memlint.report.model import Finding, Record, Skipped, Workload
from memlint.targets.built import Asked
from memlint.targets.script import Script
from memlint.worker.jobs import FitsSoFar, Sweeps


class Request(Record):
    """A target, and the settings under which a child answers about it."""

    target: str
    """The target as it was typed or configured."""
    path: str | None
    """Absolute path of a Python file or of a Hugging Face `config.json`; None if the target is in a module."""
    module: str = ""
    """Name of an installed module, as in `transformers::LlamaConfig`."""
    qualname: str = ""
    """The part after `::`: a module class or a callable that gives one; empty for the whole file."""
    call: str = ""
    """The same with its arguments, where it is a call."""
    named: bool = True
    """True if the user typed this file: only then are Workloads discovered that nobody declared."""
    root: str
    """Absolute path of the project: the directory of its configuration; targets in `settings.workload` start here."""
    settings: Settings
    """Configuration with the command line's options on top."""
    script: Script | None = None
    """Run this instead."""
    asked: Asked | None = None
    """The answer of a script that was asked before; None where none was, or none builds it."""

    @property
    def is_utf8(self) -> bool:
        """True if its names are UTF-8: no child can be sent others, and no Report could name them."""
        of_script = (self.script.path, *self.script.arguments) if self.script is not None else ()
        names = (self.target, self.path or "", self.root, *of_script)
        return not any("\ud800" <= character <= "\udfff" for name in names for character in name)

    def limits(self, patience: float = 1) -> Limits:
        """Return the limits that its settings give a child, with `patience` times as many seconds."""
        return Limits(seconds=patience * self.settings.timeout, nbytes=self.settings.memory_limit)


class Result(Record):
    """The result for a target; paths in it are absolute, and comments have suppressed nothing yet."""

    torch: str | None = None
    workloads: list[Workload] = []
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    declarations: list[str] = []
    """With `init`: TOML or Python text for each Workload."""
    traced_lines: dict[str, list[int]] = {}
    """By file: the lines that the rules of traced steps have seen at work."""
    left: list[str] = []
    """In a partial Result: Workloads of the target that nobody has begun with, as they are asked for."""


AnyResult: TypeAlias = Result | Sweeps | FitsSoFar | Record
"""The command's result for a task, from the answers of a child."""


class Dependencies(Record):
    """The dependencies of an answer besides the request."""

    files: dict[str, str | None]
    """Files outside of installed packages by absolute path, with digests of what is in them; None: not there."""
    packages: dict[str, str | None]
    """For each installed package that was imported its first file, with when it was changed and its size.

    For modules that were asked for in vain, the places where they would stand; None: nothing is there.
    """
    variables: dict[str, str | None]
    """Environment variables that Python code has read, with digests of their values; None: not set."""
    seals: dict[str, str] = {}
    """For those of `files` that are there: when they were changed, and their sizes. With the same seal one is the same.
    """


class Failure(Record):
    """An exception that ended a job. `kind` is the name of its class."""

    kind: str
    message: str
    hint: str = ""
    traceback: list[str] = []
    """The user's lines, outermost first."""
    memory: bool = False
    """True if an allocation failed somewhere in the chain of exceptions."""


class Reply(Record):
    """The answer to one job: a record, a Capture, both, or a failure; nothing where a Change means nothing."""

    number: int
    """The number of the job, from 1."""
    answer: JsonValue = None
    capture: tuple[int, int] | None = None
    """The place of the Capture in the file of Captures: offset and bytes."""
    failure: Failure | None = None
    dependencies: Dependencies | None = None
    """The dependencies of all answers so far; only if the parent asks for them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a child and all its descendants."""

    seconds: float = 120.0
    nbytes: int = 8 * 2**30
    """Resident memory."""
    processes: int = 256
    output_nbytes: int = 64 * 2**20
    """Bytes of stdout and stderr together."""


def _error_of(fields: Sequence[str]) -> MemlintError:
    kind, *texts = fields
    error: MemlintError = getattr(errors, kind, WorkerError)(*texts)
    return error


Error = Annotated[
    MemlintError,
    PlainValidator(_error_of),
    PlainSerializer(lambda error: (type(error).__name__, error.message, error.hint)),
]
"""An error; in JSON the name of its class, message and hint."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Either `result` or `error` is set; `stdout` and `stderr` are what user code wrote, at most the first MiB each."""

    result: AnyResult | None = None
    error: Error | None = None
    traceback: tuple[str, ...] = ()
    """For an error: `path:line in function` of the user's lines, outermost first."""
    stdout: str = ""
    stderr: str = ""
    out_of_memory: bool = False
    """True if the error is that the host's memory did not suffice."""
    partial: AnyResult | None = None
    """For an error: the answer that there was before it."""


@cache
def answer_format() -> TypeAdapter[Answer]:
    """How an Answer is written as JSON, and read again."""
    return TypeAdapter(Answer)
