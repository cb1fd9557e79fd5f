"""Answers of earlier children, kept in `.memlint_cache` while nothing that they depend on changes."""

import sys
from pathlib import Path

from memlint.base import cache
from memlint.worker.dependencies import child_environment, digest_of_path, digest_of_variable, mark_of
from memlint.worker.protocol import Answer, Dependencies, Request, answer_format

_KIND = "workloads"
_READ_BY_LIBRARIES = ("CUBLAS", "CUDA", "CUDNN", "MKL", "NETWORKX", "NVIDIA", "OMP", "PYTHON", "PYTORCH", "TORCH")
"""Beginnings of names of variables that compiled code may read, which no hook sees."""


def read(request: Request) -> Answer | None:
    """The Answer that a child gave to `request`; None if there is none, or if it may be another one today."""
    answer = _read(request)
    return answer if answer is not None and answer.dependencies and _holds(answer.dependencies) else None


def files_read(request: Request) -> frozenset[str]:
    """Absolute paths of the files that were read for an Answer to `request`; none if there is no such Answer.

    They may have changed since then.
    """
    answer = _read(request)
    return frozenset(answer.dependencies.files if answer is not None and answer.dependencies else ())


def write(request: Request, answer: Answer) -> None:
    """Keep an Answer, unless something in it went wrong: that may have passed the next time."""
    if answer.result is None or answer.dependencies is None or any(each.error for each in answer.result.workloads):
        return
    fields = answer_format().dump_python(answer, mode="json")
    cache.write(Path(request.root), _KIND, _subject(request), cache.key_of(), fields)


def _read(request: Request) -> Answer | None:
    return cache.read(Path(request.root), _KIND, _subject(request), cache.key_of(), answer_format().validate_python)


def _subject(request: Request) -> str:
    """The request with what its answer depends on from the start: where this is, and what libraries may look at."""
    environment = child_environment({})
    watched = sorted(item for item in environment.items() if item[0].startswith(_READ_BY_LIBRARIES))
    return f"{sys.executable}\0{Path.cwd()}\0{watched}\0{request.model_dump_json()}"


def _holds(dependencies: Dependencies) -> bool:
    environment = child_environment({})
    return (
        all(digest_of_variable(name, environment) == digest for name, digest in dependencies.variables.items())
        and all(mark_of(path) == mark for path, mark in dependencies.packages.items())
        and all(digest_of_path(path) == digest for path, digest in dependencies.files.items())
    )
