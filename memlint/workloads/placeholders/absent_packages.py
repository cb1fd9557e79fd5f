"""The packages that are missing in this process, and what is known of each."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from memlint.base.errors import WorkloadError
from memlint.memory.records import Assumption, Frame
from memlint.workloads.known_packages import Kind, kind_of
from memlint.workloads.missing_modules import remedy
from memlint.workloads.placeholders.import_lines import caller

_LONGEST = 160
"""Maximum number of characters of a displayed error."""


@dataclass
class Record:
    """The packages that placeholders replace, and why."""

    replaced: dict[str, Frame | None] = field(default_factory=dict)
    """First import by dotted name; None for packages that the user asked to replace."""
    failed: dict[str, str] = field(default_factory=dict)
    """Errors of installed packages whose import fails."""
    gone: dict[str, str] = field(default_factory=dict)
    """By name that an installed package does not have: how a message says so."""
    remedies: dict[str, str] = field(default_factory=dict)
    """By module whose import fails: what to do about what it lacks, if its error says so."""
    uncompiled: str = ""
    """Why extensions cannot be compiled here."""
    importing: int = 0
    in_script: bool = False
    """True if a script is run, which is never imported once more."""
    required: Callable[[], Iterable[str]] = tuple
    """Gives the packages that a script has to import and that may be missing."""
    is_quiet: bool = False
    """True if all placeholders do nothing."""
    quiet: set[str] = field(default_factory=set)
    """Packages to do without: they do nothing, whenever they are used."""
    elsewhere: dict[str, Frame] = field(default_factory=dict)
    """Descriptions of packages of the user's that were not on the search path, with their first import."""
    target: str = ""
    has_called: bool = False
    """True if a script has called something of a package that is missing, and went on."""
    last_use: AbsentError | None = None
    """The error of the last use of a package that is missing, which a script may have caught."""

    def kind_of(self, name: str) -> Kind | None:
        """Return the way in which the placeholder of this dotted name behaves; None if it fails when it is used."""
        return self.known_kind_of(name) or ("quiet" if self.is_quiet else None)

    def known_kind_of(self, name: str) -> Kind | None:
        """Return the way in which it behaves wherever a program uses it; None without one."""
        if any(f"{name}.".startswith((f"{each}.", f"{each}()")) for each in self.quiet):
            return "quiet"
        return kind_of(name.replace("()", "")) if self.in_script else None

    def is_importing(self) -> bool:
        """Return True if a file is being imported; of a script the line that calls has to be one of its modules."""
        if not self.in_script:
            return self.importing > 0
        frame = caller()
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        return not is_function and frame.f_globals.get("__name__") != "__main__"


record = Record()


class AbsentError(WorkloadError):
    """The program uses an object of a missing package."""

    package = ""
    """Name of the package, if it is not installed."""


def assumptions() -> list[Assumption]:
    """Return the packages with placeholders, and the lines that first imported them."""
    texts = {
        name: f"a placeholder that {_behaviour(name)} replaces {name}, {_reason(name, frame)}"
        for name, frame in record.replaced.items()
    }
    placed = [Assumption(text, record.replaced[name]) for name, text in texts.items()]
    return placed + [Assumption(text, frame) for text, frame in record.elsewhere.items()]


def _behaviour(name: str) -> str:
    kind = record.kind_of(name)
    if kind is None:
        in_script = "a tensor or a number passes through it"
        return f"fails when {in_script if record.in_script else 'the model uses it'}"
    return "gives what it is to iterate over" if kind == "progress" else "does nothing"


def _reason(name: str, frame: Frame | None) -> str:
    if name in record.failed:
        return f"which cannot be imported: {record.failed[name]}"
    return "which is not installed" if frame else "as --stub asks"


def missing() -> list[str]:
    """Return the packages that are not installed and whose placeholders have no values, whether they fail or not."""
    names = [name for name, frame in record.replaced.items() if frame and name not in record.failed]
    others = (name for name in record.required() if name not in names)
    return [name for name in (*names, *others) if record.known_kind_of(name) is None]


def lacking(importer: str = "") -> str:
    """Return advice on all packages that are missing and that a script, the `importer`, may need; empty without any."""
    names = missing()
    return remedy(names[0], importer, names[1:]) if names else ""


def has_called() -> bool:
    """Return True if a script has called something of a package that is missing, and went on."""
    return record.has_called


def last_use() -> AbsentError | None:
    """Return the error that the last use of a missing package has raised."""
    return record.last_use


def is_missing(package: str) -> bool:
    """Return True if a package is not installed, and memlint has nothing that simulates it."""
    from memlint.libraries.finders import is_simulated  # noqa: PLC0415 -- a process that takes real steps has none

    try:
        return importlib.util.find_spec(package) is None and not is_simulated(package)
    except (ImportError, ValueError):  # a module without a spec, which is there
        return False


def shortened(error: BaseException) -> str:
    """Return an exception in a line, cut if it is very long."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
