"""What classes that stand in for a library's lack.

A program that asks is told that it is not there, by hasattr or by an AttributeError that it catches. One that ends of
it has used what is not known.
"""

from memlint.base.errors import MemlintError
from memlint.libraries.library import Library, UnknownFunctionError


class UnknownAttributeError(UnknownFunctionError):
    """A program ends as a class that stands in for a library's lacks an attribute."""

    def __init__(self, library: Library, message: str) -> None:
        super().__init__("", message)
        self.hint = f"memlint has read {library.distribution} {library.version}; docs/libraries.md says what it knows."


def lacked(error: BaseException) -> UnknownAttributeError | None:
    """What to say in place of an AttributeError of such a class, or of an object of one; None of any other error."""
    if not isinstance(error, AttributeError) or isinstance(error, MemlintError) or not error.name:
        return None
    owner = error.obj if isinstance(error.obj, type) else type(error.obj)
    names = _names()
    for cls in owner.__mro__:
        if cls not in names:
            continue
        library, name = names[cls]
        if cls is owner:
            text = f"{name}.{error.name} of {library.distribution} is used, and it is not known"
        else:
            text = f"{error}, and it is not known whether {name} of {library.distribution}, its base, has it"
        unknown = UnknownAttributeError(library, text)
        unknown.__cause__ = error
        return unknown
    return None


def _names() -> dict[type, tuple[Library, str]]:
    """Libraries and qualified names of their classes."""
    return {
        value: (library, f"{module}.{name}")
        for library in reversed(Library.every)
        for module, values in reversed(library.modules.items())
        for name, value in values.items()
        if isinstance(value, type)
    }
