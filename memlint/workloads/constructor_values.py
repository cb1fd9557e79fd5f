"""What a constructor takes, and likely values for it, by names and annotations."""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

from memlint.base.signatures import signature_of

_SOME_SIZE = r".*(dim|dims|width|hidden|hid|features?|feats?|embed|emb|embd|d_model|d_ff|size|units|planes|filters)"
_BY_NAME: tuple[tuple[str, object], ...] = (
    (r"(in|input|n|num|image|img)?_?(channels?|chans?|ch)|c_in|(n|num)_?inputs", 3),
    (r"(out|num|n)?_?(classes|class|labels|outputs?)|out_(channels|dim|ch)|output_(dim|size)", 10),
    (r"(n|num)?_?(vocab|tokens?|ntoken|words)(_size)?|.*vocab(ulary)?(_size)?|n_symbols", 50257),
    (r"(image|img|input)_?(size|resolution|h|w)|resolution|height|width_px|(img|image)_?[hw]", 224),
    (r"(\w+_)?patch_?(size|dim)?", 16),
    (r"(\w+_)?(layers?|blocks?|depth|stages)|depths?|nlayers", 6),
    (r"(n|num)?_?heads?|nhead|.*_heads", 8),
    (r"kernel(_size)?", 3),
    (r"stride|dilation|groups|expansion|factor|scale", 1),
    (r"padding|pad|.*_(idx|index|id)", 0),
    (r".*drop(out)?.*|p|.*_(rate|prob)", 0.1),
    (r"(dim|d|head)_(head|k|v)|(head|dim_head)_dim|head_size", 64),
    (r"block_size|context(_len|_length|_size)?|(max_)?(seq|sequence)(_len|_length)?|max_len(gth)?|n_ctx", 512),
    (_SOME_SIZE, 512),
)
"""Patterns of names, the first that fits, with a value as it is common."""
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
    says_more = _fits(called) == _SOME_SIZE and _fits(parameter.name)
    if called.isidentifier() and not says_more and (value := plain_value(parameter.replace(name=called))) is not None:
        return value
    kind = parameter.annotation
    members = typing.get_args(kind) if not isinstance(kind, str) else [each.strip() for each in kind.split("|")]
    kind = next((each for each in members if each in _BY_TYPE), kind)
    if kind not in _PLAIN:
        return None
    value = dict(_BY_NAME).get(_fits(parameter.name))
    if kind in _BY_TYPE and (value is None or type(value) is not type(_BY_TYPE[kind])):
        return _BY_TYPE[kind]
    return value


def _fits(name: str) -> str:
    """The pattern that a name fits, empty where none does."""
    return next((pattern for pattern, _ in _BY_NAME if re.fullmatch(pattern, name.lower())), "")


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Parameters of `function` by name, less those that take whatever is left."""
    variadic = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):
        return {}
    return {name: parameter for name, parameter in signature.parameters.items() if parameter.kind not in variadic}


def by_name(arguments: Mapping[str, object], taken: Mapping[str, inspect.Parameter]) -> dict[str, object]:
    """Arguments of a call under the names of parameters, also those under digits, which stand for positions.

    A position that no parameter of `taken` has keeps its digits.
    """
    names = dict(zip(map(str, range(len(taken))), taken, strict=True))
    return {names.get(key, key): value for key, value in arguments.items()}
