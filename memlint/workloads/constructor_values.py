"""The parameters of a constructor, and likely values for them, by names and annotations."""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

from memlint.base.signatures import signature_of
from memlint.workloads.name_table import CONSTRUCTORS, SOME_SIZE

_BY_TYPE: dict[object, object] = {
    **dict.fromkeys((int, "int"), 64),
    **dict.fromkeys((float, "float"), 1.0),
    **dict.fromkeys((bool, "bool"), False),
}
_PLAIN = (inspect.Parameter.empty, *_BY_TYPE)


def plain_value(parameter: inspect.Parameter, called: str = "") -> object:
    """A number for a parameter; None where it takes something else, or nothing says what it takes.

    `called` is a name that somebody else has for the value: what that says counts first, unless it says no more than
    that this is some size, and the parameter's own name says of what.
    """
    says_more = _fits(called) == SOME_SIZE and _fits(parameter.name)
    if (
        called.isidentifier()
        and _fits(called)
        and not says_more
        and (value := plain_value(parameter.replace(name=called))) is not None
    ):
        return value
    kind = parameter.annotation
    members = typing.get_args(kind) if not isinstance(kind, str) else [each.strip() for each in kind.split("|")]
    kind = next((each for each in members if isinstance(each, type | str) and each in _BY_TYPE), kind)
    if kind not in _PLAIN:
        return None
    value = dict(CONSTRUCTORS).get(_fits(parameter.name))
    if kind in _BY_TYPE and (value is None or type(value) is not type(_BY_TYPE[kind])):
        return _BY_TYPE[kind]
    return value


def _fits(name: str) -> str:
    """The pattern that a name fits, empty where none does."""
    return next((pattern for pattern, _ in CONSTRUCTORS if re.fullmatch(pattern, name.lower())), "")


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Parameters of `function` by name, less those that take whatever is left."""
    variadic = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):
        return {}
    return {name: parameter for name, parameter in signature.parameters.items() if parameter.kind not in variadic}


def takes_any(function: Callable[..., Any]) -> bool:
    """Return True if `function` takes arguments of any name."""
    try:
        return any(each.kind is each.VAR_KEYWORD for each in signature_of(function).parameters.values())
    except (TypeError, ValueError):
        return False


def by_name(arguments: Mapping[str, object], taken: Mapping[str, inspect.Parameter]) -> dict[str, object]:
    """Arguments of a call under the names of parameters, also those under digits, which stand for positions.

    A position that no parameter of `taken` has keeps its digits.
    """
    names = dict(zip(map(str, range(len(taken))), taken, strict=True))
    return {names.get(key, key): value for key, value in arguments.items()}
