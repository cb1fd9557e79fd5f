"""Attributes that a class of a stand-in lacks.

Code that only probes, by hasattr or by catching an AttributeError, sees that the attribute is absent. If the
AttributeError ends the program, memlint says that it does not model the attribute.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memlint.base.errors import MemlintError

if TYPE_CHECKING:
    from memlint.libraries.library import Library, UnknownAttributeError


def unknown_attribute(error: BaseException) -> UnknownAttributeError | None:
    """Give the error to report in place of an AttributeError of such a class or its objects; None for other errors."""
    if not isinstance(error, AttributeError) or isinstance(error, MemlintError) or not error.name:
        return None
    if "memlint.libraries.library" not in sys.modules:  # as where a real step is measured
        return None
    from memlint.libraries.library import UnknownAttributeError  # noqa: PLC0415

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
        unknown = UnknownAttributeError(f"{library.distribution} {library.version}", text)
        unknown.__cause__ = error
        return unknown
    return None


def _names() -> dict[type, tuple[Library, str]]:
    """Libraries and qualified names of their classes."""
    from memlint.libraries.library import Library  # noqa: PLC0415 -- as above

    return {
        value: (library, f"{module}.{name}")
        for library in reversed(Library.every)
        for module, values in reversed(library.modules.items())
        for name, value in values.items()
        if isinstance(value, type)
    }
