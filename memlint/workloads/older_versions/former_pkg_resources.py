"""Functions of pkg_resources, which setuptools has no more since version 81, by what stands for them now.

Programs ask it for versions, and for files of a package.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from importlib import metadata, resources
from typing import Any


class DistributionNotFound(Exception):  # noqa: N818 -- it is called so
    """A distribution is not installed."""


class VersionConflict(Exception):  # noqa: N818 -- as above
    """It has another version."""


class Distribution:
    """An installed distribution."""

    def __init__(self, name: str) -> None:
        """Raises DistributionNotFound."""
        try:
            self.version = metadata.version(name)
        except metadata.PackageNotFoundError as error:
            raise DistributionNotFound(name) from error
        self.project_name, self.key = name, name.lower()


def __getattr__(name: str) -> Any:
    """Return `packaging`, of which it had a copy."""
    if name != "packaging":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module("packaging.version")
    return importlib.import_module("packaging")


def parse_version(text: str) -> Any:
    """Return a version that can be compared with others."""
    return importlib.import_module("packaging.version").parse(text)


def parse_requirements(lines: str | Iterable[str]) -> Iterator[Any]:
    """Yield the requirements in lines of a file of them."""
    kind = importlib.import_module("packaging.requirements").Requirement
    names = {"project_name": property(lambda each: each.name), "key": property(lambda each: each.name.lower())}
    for line in lines.splitlines() if isinstance(lines, str) else lines:
        text = line.partition("#")[0].strip()
        if text and not text.startswith("-"):
            yield type("Requirement", (kind,), names)(text)


def get_distribution(name: str) -> Distribution:
    """Return an installed distribution."""
    return next(iter(require(name)))


def require(*lines: str | Iterable[str]) -> list[Distribution]:
    """Return the distributions that meet these requirements; raises for one that is not there."""
    found = []
    for requirement in (each for line in lines for each in parse_requirements(line)):
        found.append(Distribution(requirement.name))
        if not requirement.specifier.contains(found[-1].version, prereleases=True):
            raise VersionConflict(found[-1], requirement)
    return found


def resource_filename(package: str, name: str) -> str:
    """Return the path of a file of a package."""
    return str(resources.files(package).joinpath(name))
