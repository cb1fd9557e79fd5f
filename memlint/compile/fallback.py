"""Why a compilation could not be simulated, and where."""

import re
import traceback
from collections.abc import Iterator

from memlint.accelerator.device import NAME
from memlint.base.errors import MemlintError
from memlint.base.frames import chain, text_of
from memlint.base.ownership import is_users
from memlint.memory.records import Assumption, Frame

_TEXT = "torch.compile could not be simulated, and what it would compile runs eagerly: {}"
_BREAK = "torch.compile breaks the graph here, and every tensor that is needed after it exists: {}"
_IN_PACKAGE = "torch.compile breaks the graph in {} at line {}, and every tensor that is needed after it exists: {}"
_EXPLAINS = "Explanation: "
_PLACE = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
"""A line of the program as TorchDynamo writes it into its messages."""
_MOST = 200
"""Letters of a reason."""


def not_compiled_text(reason: str) -> str:
    """Say that the step runs eagerly, for this reason."""
    reason = reason if len(reason) <= _MOST else f"{reason[: _MOST - 3]}..."
    return _TEXT.format(reason.replace(NAME, "cuda"))


def not_compiled(error: BaseException) -> Assumption:
    """Return the assumption that the step runs eagerly, because of `error`."""
    links = list(chain(error))
    own = [link for link in links if not isinstance(link, MemlintError)] or links
    cause = own[0]
    while isinstance(inner := getattr(cause, "inner_exception", None), BaseException):
        cause = inner
    first = _reason(text_of(cause))
    reason = f"{type(cause).__name__}: {first}" if first else type(cause).__name__
    places = [place for link in links for place in _places(link)]
    return Assumption(not_compiled_text(reason), places[-1] if places else None)


def graph_break(text: str, stack: traceback.StackSummary) -> Assumption:
    """Return the assumption that compiled code ends in the user's last line of `stack`, and begins anew after it.

    `text` is TorchDynamo's of the exception.
    """
    frames = [Frame(each.filename, each.lineno or 0, each.name) for each in stack if is_users(each.filename)]
    if frames or not stack:
        return Assumption(_BREAK.format(_reason(text)), frames[-1] if frames else None)
    last = stack[-1]
    return Assumption(_IN_PACKAGE.format(last.filename, last.lineno, _reason(text)), None)


def _reason(text: str) -> str:
    """Return the first line of an exception's text, and the explanation that TorchDynamo adds."""
    lines = text.strip().splitlines() or [""]
    explanations = [line.strip().removeprefix(_EXPLAINS) for line in lines if line.strip().startswith(_EXPLAINS)]
    return ": ".join([lines[0], *explanations[:1]])


def _places(error: BaseException) -> Iterator[Frame]:
    """Yield the lines of the user's that an exception names or went through, the innermost last."""
    for frame in traceback.extract_tb(error.__traceback__):
        if is_users(frame.filename):
            yield Frame(frame.filename, frame.lineno or 0, frame.name)
    for found in _PLACE.finditer(text_of(error)):
        if is_users(found["path"]):
            yield Frame(found["path"], int(found["line"]), found["function"])
