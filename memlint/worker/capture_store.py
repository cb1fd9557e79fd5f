"""The answers of children, kept in `.memlint_cache` while nothing that they depend on changes.

The key is what a program depends on, not how it is looked at: other rules, budgets and formats find the same answer.
"""

import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from memlint.base import cache
from memlint.base.broken_plugins import GROUP
from memlint.worker.dependencies import child_environment, digest_of_path, digest_of_variable, mark_of, seal_of
from memlint.worker.protocol import Dependencies, Request

_KIND, _ESTIMATES = "captures", "estimates"
_MOST_NBYTES = 2**28
"""Captures of one target that are kept at most."""
_READ_BY_LIBRARIES = ("CUBLAS", "CUDA", "CUDNN", "MKL", "NETWORKX", "NVIDIA", "OMP", "PYTHON", "PYTORCH", "TORCH")
"""Beginnings of names of variables that compiled code may read, which no hook sees."""
_OF_LOOKS = frozenset(
    {
        *("budget", "select", "extend_select", "ignore", "per_file_ignores", "exclude", "sweep", "gpu_prices"),
        *("timeout", "memory_limit"),
    }
)
"""Settings that decide how a program is looked at; `rule_paths` is none of them, as Changes of rules are code."""


class Known(NamedTuple):
    """The answer to a job: a record, a Capture as its file has it, or both."""

    record: JsonValue
    capture: bytes | memoryview | None


class Store:
    """The answers to one Request."""

    def __init__(self, request: Request) -> None:
        """Read what is kept, if it still holds."""
        self._root = Path(request.root)
        self._subject = _subject(request)
        self._known: dict[str, tuple[JsonValue, tuple[int, int] | None]] = {}
        self._captures = memoryview(b"")
        self._mark = ""
        """Digest of everything that is known; empty if nothing is kept."""
        self._estimates = ""
        """The estimates that are kept, as JSON."""
        self._files: frozenset[str] = frozenset()
        self._dependencies = Dependencies(files={}, packages={}, variables={})
        """The dependencies of what is known."""
        self.output = "", ""
        """The output of the code to stdout and stderr."""
        entry = cache.read(self._root, _KIND, self._subject, cache.key_of(), _entry)
        if entry is None:
            return
        self._files = frozenset(entry.dependencies.files)
        if _holds(entry.dependencies):
            content = cache.read_bytes(self._root, _KIND, self._subject)
            if content is not None and zlib.crc32(content) == entry.checksum:
                self._known, self.output, self._dependencies = entry.known, entry.output, entry.dependencies
                self._captures, self._mark = memoryview(content), _mark(self._known, entry.checksum)

    @property
    def is_valid(self) -> bool:
        """True if something is known."""
        return bool(self._known)

    @property
    def files_read(self) -> frozenset[str]:
        """Absolute paths of the files that answers were made of, which may have changed since."""
        return self._files

    def known(self, job: str) -> Known | None:
        """Give the answer to the job with this `repr`."""
        if job not in self._known:
            return None
        record, place = self._known[job]
        return Known(record, None if place is None else self._captures[place[0] : place[0] + place[1]])

    def estimates(self) -> dict[str, dict[str, Any]]:
        """Read the estimates that were kept of what is known now."""
        kept: dict[str, dict[str, Any]] = {}
        if self._mark:
            key = cache.key_of(self._mark)
            kept = cache.read(self._root, _ESTIMATES, self._subject, key, lambda entry: entry["estimates"]) or {}
        self._estimates = json.dumps(kept)
        return kept

    def write_estimates(self, estimates: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep estimates of what is known, if they are others than before; nothing where that is not kept."""
        if self._mark and json.dumps(estimates) != self._estimates:
            cache.write(self._root, _ESTIMATES, self._subject, cache.key_of(self._mark), {"estimates": estimates})

    def _with_bytes(self, job: str) -> tuple[JsonValue, bytes | None]:
        known = self.known(job)
        assert known is not None
        return known.record, None if known.capture is None else bytes(known.capture)

    def write(self, new: Mapping[str, Known], dependencies: Dependencies | None, output: tuple[str, str]) -> None:
        """Keep what a child has answered beside what is known; nothing where it is not known what it depends on."""
        self._mark = ""
        if dependencies is None:
            return
        together = _together(self._dependencies, dependencies)
        answers = dict(new)
        if together is not None:  # or else something has changed since those were found to hold
            answers = {**{job: Known(*self._with_bytes(job)) for job in self._known}, **new}
            dependencies = together
        nbytes = sum(len(known.capture) for known in answers.values() if known.capture is not None)
        if nbytes > _MOST_NBYTES:
            return
        parts: list[bytes | memoryview] = []
        places: dict[str, Any] = {}
        offset = 0
        for job, known in answers.items():
            place = None
            if known.capture is not None:
                place = offset, len(known.capture)
                parts.append(known.capture)
                offset += len(known.capture)
            places[job] = [known.record, place]
        content = b"".join(parts)
        checksum = zlib.crc32(content)
        fields = {
            "known": places,
            "dependencies": dependencies.model_dump(mode="json"),
            "output": output,
            "checksum": checksum,
        }
        self._mark = _mark(places, checksum)
        cache.write_bytes(self._root, _KIND, self._subject, content)
        cache.write(self._root, _KIND, self._subject, cache.key_of(), fields)


def _mark(known: Mapping[str, Sequence[Any]], checksum: int) -> str:
    return json.dumps([sorted((job, place) for job, (_record, place) in known.items()), checksum])


def _together(first: Dependencies, second: Dependencies) -> Dependencies | None:
    """Give what the answers of two children depend on; None where that cannot be true at the same time."""
    tables: dict[str, Any] = {"seals": {**first.seals, **second.seals}}
    for name in Dependencies.model_fields.keys() - tables.keys():
        one, other = getattr(first, name), getattr(second, name)
        if any(one[key] != other[key] for key in one.keys() & other.keys()):
            return None
        tables[name] = {**one, **other}
    return Dependencies(**tables)


class _Entry(NamedTuple):
    known: dict[str, tuple[JsonValue, tuple[int, int] | None]]
    dependencies: Dependencies
    output: tuple[str, str]
    checksum: int


def _entry(fields: dict[str, Any]) -> _Entry:
    known = {job: (record, None if place is None else tuple(place)) for job, (record, place) in fields["known"].items()}
    stdout, stderr = fields["output"]
    return _Entry(known, Dependencies.model_validate(fields["dependencies"]), (stdout, stderr), fields["checksum"])


def _subject(request: Request) -> str:
    """The request with what its answer depends on from the start.

    That is where this is, what libraries may look at, and which plugins there are, also for packages that were there
    before.
    """
    plugins = sorted(f"{plugin.name}={plugin.value}" for plugin in entry_points(group=GROUP))
    environment = child_environment({})
    watched = sorted(item for item in environment.items() if item[0].startswith(_READ_BY_LIBRARIES))
    settings = request.settings.model_dump_json(exclude=set(_OF_LOOKS))
    asked = request.model_dump_json(exclude={"settings"})
    return f"{sys.executable}\0{Path.cwd()}\0{watched}\0{plugins}\0{asked}\0{settings}"


def _holds(dependencies: Dependencies) -> bool:
    environment = child_environment({})
    return (
        all(digest_of_variable(name, environment) == digest for name, digest in dependencies.variables.items())
        and all(mark_of(path) == mark for path, mark in dependencies.packages.items())
        and all(
            seal_of(path) == dependencies.seals.get(path, "") or digest_of_path(path) == digest
            for path, digest in dependencies.files.items()
        )
    )
