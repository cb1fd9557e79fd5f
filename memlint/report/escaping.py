"""Strings of a Report made fit for one line: what shows nothing, or moves the cursor, is shown as an escape.

In a log there is more to it: the runner of GitHub's workflows reads every line, and obeys those that are commands.
"""

from typing import Any, TypeVar

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Printable characters that show nothing: fillers of Hangul, vowels of Khmer, Braille without a dot."""
_AS_TYPED = ("path", "target", "snippet")
"""Fields whose spaces people and editors need, because they name a file or are lines of Python."""
_NOT_PRINTED = ("timeline", "graph")

Document = TypeVar("Document")


def visible(text: str) -> str:
    r"""`text` with an escape, such as `\n` or `\x00`, for each character that shows nothing or cannot be printed."""
    if text.isprintable() and _BLANK.isdisjoint(text):
        return text
    return "".join(
        char if char.isprintable() and char not in _BLANK else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def one_line(text: str) -> str:
    """`text` with one space for each stretch of spaces and line breaks, and the rest visible."""
    return visible(" ".join(text.split()))


def inert(text: str) -> str:
    """`text`, on one line already, with an escape where the runner of a workflow would find a command.

    It takes `##[` anywhere in a line for one, and `::` at its beginning, behind spaces as well.
    """
    text = text.replace("##[", "#\\x23[")
    start = len(text) - len(text.lstrip())
    return f"{text[:start]}\\x3a{text[start + 1 :]}" if text.startswith(":", start) else text


def for_log(document: Document) -> Document:
    """A Report, Comparison or table with strings on one line, visible and no command, without timelines and graphs."""
    escaped: Document = _escaped(document)
    return escaped


def _escaped(value: Any, name: str = "") -> Any:
    match value:
        case int() | float() | None:
            return value
        case str():
            return inert(visible(value) if name in _AS_TYPED else one_line(value))
        case dict():
            return {_escaped(key): _escaped(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_escaped(item, name) for item in value)
    # What is left is a record of pydantic's, which is not imported here because `memlint --help` imports this.
    return value.model_copy(
        update={field: None if field in _NOT_PRINTED else _escaped(item, field) for field, item in value}
    )
