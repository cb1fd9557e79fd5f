"""The shape of an input as the docstring of `forward` says it, in the sizes of the model's config."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from memlint.source.arithmetic import OPERATORS

_SHAPE = re.compile(r"shape:? `*\(((?:[^()]|\([^()]*\))*)\)|[`(\[]+((?:B|batch\w*), [^`)\]]*)[)\]]")
"""`of shape (batch_size, ...)`, or what begins with the batch behind the parameter's name."""

Size = int | str


def documented_shape(function: Callable[..., Any], name: str, sizes: Mapping[str, Size]) -> tuple[Size, ...] | None:
    """The shape of the parameter `name`, whose dimensions are those of `sizes` or computed from them.

    None where the docstring does not say it, or with a dimension that is not in `sizes`.
    """
    entry = re.search(
        rf"^( *){re.escape(name)}:? ?[(:].*(?:\n(?:\1 +\S.*|\s*$))*", function.__doc__ or "", re.MULTILINE
    )
    match = _SHAPE.search(" ".join(entry[0].split())) if entry is not None else None
    if match is None:
        return None
    parts = [part for part in re.split(r",(?![^(]*\))", match[1] or match[2]) if part.strip()]
    shape = tuple(_size(part.strip(), sizes) for part in parts)
    return None if None in shape else tuple(size for size in shape if size is not None)


def _size(text: str, sizes: Mapping[str, Size]) -> Size | None:
    text = text.removeprefix("self.config.")
    if (known := sizes.get(text.replace(" ", "_"))) is not None:
        return known
    try:
        return _computed(ast.parse(re.sub(r"(?<=\d)(?=[A-Za-z])", "*", text), mode="eval").body, sizes)
    except (SyntaxError, KeyError, TypeError, ValueError):
        return None


def _computed(node: ast.expr, sizes: Mapping[str, Size]) -> int:
    """Raise KeyError for what is not in `sizes`, and TypeError for anything but sums and products."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name) | ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
            return int(sizes[name if isinstance(node, ast.Name) else f"len_{name}"])
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() as op, left=left, right=right):
            result = OPERATORS[type(op)](_computed(left, sizes), _computed(right, sizes))
            assert isinstance(result, int)
            return result
    raise TypeError
