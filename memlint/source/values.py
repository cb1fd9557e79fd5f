"""Values of expressions in a project's text that are not plain values, and their notation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


class Unknown(Exception):  # noqa: N818 -- no error: nobody can see the value
    """The text does not determine the value of an expression."""


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function, by its dotted name: as imports expand it, or as it is written in the file `path`."""

    text: str
    path: str

    def __str__(self) -> str:
        """Format as written in the file."""
        return self.text.lstrip(".")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a class or function that makes an argument; the keys of positional arguments are digits."""

    function: Name
    arguments: Mapping[str, object]
    unseen: tuple[str, ...] = ()
    """Arguments whose value the text does not determine."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    """Attributes that are set on the result before it is used."""

    def __str__(self) -> str:
        """Format as code, without the attributes set on it."""
        return f"{self.function.text.rpartition('.')[2]}({shown_arguments(self.arguments)})"


@dataclass(frozen=True, slots=True)
class Configured:
    """A value of a config that hydra makes into what a class is given: objects, or a mapping with attributes."""

    value: object
    """Mappings, lists and plain values; interpolations are resolved as far as they can be."""
    path: str
    """The config."""
    is_recursive: bool = True
    """False if the class makes the objects itself."""

    def __str__(self) -> str:
        """Format as in the config."""
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Unseen:
    """A setting that exists under this name, and whose value the text does not determine."""

    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a project, with the defaults of its command line and configs."""

    text: str
    """Name of the variable that holds them."""
    values: Mapping[str, object]
    path: str
    line: int

    def __str__(self) -> str:
        """Format with the source of the settings."""
        return f"{self.text} as {Path(self.path).name}:{self.line} has it"


def shown(value: object) -> str:
    """Format a value as code."""
    if isinstance(value, list | tuple) and any(isinstance(each, Name | Call) for each in value):
        inner = ", ".join(map(shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return str(value) if isinstance(value, Name | Call | Configured | Settings) else repr(value)


def shown_arguments(arguments: Mapping[str, object]) -> str:
    """Format the arguments of a call."""
    return ", ".join(shown(value) if name.isdigit() else f"{name}={shown(value)}" for name, value in arguments.items())
