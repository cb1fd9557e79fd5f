"""What the parent asks of its child, within which limits, and what the child answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, NamedTuple, Self

from pydantic import JsonValue, PlainSerializer, PlainValidator, TypeAdapter, model_validator

from memlint.base import errors
from memlint.base.errors import MemlintError, WorkerError
from memlint.config import Settings
from memlint.report.model import Record, RunFinding, Skipped, Workload
from memlint.targets.script import Script

ANALYSE = "memlint.commands.analyse.child:analyse"
"""The function that answers a Request where no other is named."""

LEFT = "left"
"""In the detail of a partial Result: Workloads of the target that nobody has begun with, as they are asked for."""


class Extent(Record):
    """How far an analysis goes."""

    init: bool = False
    """Whether to write the declarations that make the assumptions explicit."""
    plan: bool = False
    """Whether to find the changes that bring every Workload below its budget, or into its GPU."""
    allow_dynamics: bool = False
    """Whether a plan may change the dynamics of training."""
    thorough: bool = False
    """Whether rules are to simulate alternatives that only a detailed report shows."""
    timeline: bool = False
    """Whether the Report is to hold the lifetime of every Buffer."""
    graph: bool = False
    """Whether the Report is to hold the last step as a graph."""


class Request(Extent):
    """Analyse the Workloads of one target."""

    target: str
    """As it was typed or configured."""
    path: str | None
    """Absolute path of a Python file or of a Hugging Face `config.json`; None if the target is in a module."""
    module: str = ""
    """Name of an installed module, as in `transformers::LlamaConfig`."""
    qualname: str = ""
    """What stands after `::`: a module class or a callable giving one; empty for the whole file."""
    call: str = ""
    """The same with its arguments, where it is a call."""
    named: bool = True
    """Whether the user typed this file: only then are Workloads discovered that nobody declared."""
    root: str
    """Absolute path of the project: the directory of its configuration; targets in `settings.workload` start here."""
    settings: Settings
    """Configuration with the command line's options on top."""
    script: Script | None = None
    """Run this instead."""
    detail: dict[str, JsonValue] = {}
    """What other functions than `analyse` are asked for; each says what it holds."""

    def limits(self, patience: float = 1) -> Limits:
        """What its settings allow a child, and `patience` times as many seconds."""
        return Limits(seconds=patience * self.settings.timeout, nbytes=self.settings.memory_limit)


class Result(Record):
    """The answer; paths in it are absolute, and no comment has taken a finding away."""

    torch: str | None = None
    workloads: list[Workload] = []
    findings: list[RunFinding] = []
    skipped: list[Skipped] = []
    declarations: list[str] = []
    """With `init`: TOML or Python text for each Workload."""
    traced_lines: dict[str, list[int]] = {}
    """By file: the lines that the rules of traced steps have seen at work."""
    detail: dict[str, JsonValue] = {}
    """What other functions than `analyse` answer; each says what it holds."""


class Dependencies(Record):
    """What an answer depends on besides the request."""

    files: dict[str, str | None]
    """Files outside of installed packages by absolute path, with digests of what is in them; None: not there."""
    packages: dict[str, str]
    """For each installed package that was imported its first file, with when it was changed and its size."""
    variables: dict[str, str | None]
    """Environment variables that Python code has read, with digests of their values; None: not set."""


class Failure(Record):
    """An exception that ended the analysis. `kind` is the name of its class."""

    kind: str
    message: str
    hint: str = ""
    traceback: list[str] = []
    """The user's lines, outermost first."""
    memory: bool = False
    """Whether an allocation failed somewhere in the chain of exceptions."""


class Reply(Record):
    """Exactly one of both."""

    result: Result | None = None
    failure: Failure | None = None
    dependencies: Dependencies | None = None
    """Of the result; None if it is not known what it depends on."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.result is None) == (self.failure is None):
            raise ValueError("a reply is a result or a failure")
        return self


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may take, with all its descendants."""

    seconds: float = 120.0
    nbytes: int = 8 * 2**30
    """Resident memory."""
    processes: int = 64
    output_nbytes: int = 64 * 2**20
    """Of stdout and stderr together."""


def _error_of(fields: Sequence[str]) -> MemlintError:
    kind, *texts = fields
    error: MemlintError = getattr(errors, kind, WorkerError)(*texts)
    return error


Error = Annotated[
    MemlintError,
    PlainValidator(_error_of),
    PlainSerializer(lambda error: (type(error).__name__, error.message, error.hint)),
]
"""As JSON the name of its class, message and hint."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Either `result` or `error` is set; `stdout` and `stderr` are what user code wrote, at most the first MiB each."""

    result: Result | None = None
    error: Error | None = None
    traceback: tuple[str, ...] = ()
    """With an error: `path:line in function` of the user's lines, outermost first."""
    stdout: str = ""
    stderr: str = ""
    out_of_memory: bool = False
    """Whether the error is that the host's memory did not suffice."""
    dependencies: Dependencies | None = None
    """What the result depends on besides the request, where that is known."""
    partial: Result | None = None
    """With an error: the last partial result that the child wrote before it."""


class Task(NamedTuple):
    """A Request, what its child may take, and the function that answers it."""

    request: Request
    limits: Limits
    analyse: str = ANALYSE


@cache
def answer_format() -> TypeAdapter[Answer]:
    """How an Answer is written as JSON, and read again."""
    return TypeAdapter(Answer)
