"""What an expression of a project's text stands for: records for what is no plain value, and how they are typed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


class Unknown(Exception):  # noqa: N818 -- no error: nobody can see the value
    """The text does not say what an expression stands for."""


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function, by its dotted name: as imports write it out, or as it stands in the file `path`."""

    text: str
    path: str

    def __str__(self) -> str:
        """As it is written in the file."""
        return self.text.lstrip(".")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a class or function that makes an argument; positional arguments stand under digits."""

    function: Name
    arguments: Mapping[str, object]
    unseen: tuple[str, ...] = ()
    """Arguments of which the text does not say what they are."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    """What is set on it before it is used."""

    def __str__(self) -> str:
        """As it could be typed, but for what is set on it."""
        return f"{self.function.text.rpartition('.')[2]}({shown_arguments(self.arguments)})"


@dataclass(frozen=True, slots=True)
class Unseen:
    """A setting that is there under this name, and of which the text does not say what it is."""

    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a project, as its command line and configs have them by default."""

    text: str
    """The name that it goes by."""
    values: Mapping[str, object]
    path: str
    line: int

    def __str__(self) -> str:
        """With where it comes from."""
        return f"{self.text} as {Path(self.path).name}:{self.line} has it"


def shown(value: object) -> str:
    """A value as it could be typed."""
    if isinstance(value, list | tuple) and any(isinstance(each, Name | Call) for each in value):
        inner = ", ".join(map(shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return str(value) if isinstance(value, Name | Call | Settings) else repr(value)


def shown_arguments(arguments: Mapping[str, object]) -> str:
    """What stands between the parentheses of a call."""
    return ", ".join(shown(value) if name.isdigit() else f"{name}={shown(value)}" for name, value in arguments.items())
