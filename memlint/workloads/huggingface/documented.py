"""Shapes of inputs in the docstring of `forward`, with the sizes of the model's config."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from memlint.source.arithmetic import OPERATORS

_SHAPE = re.compile(r"shape:? `*\(((?:[^()]|\([^()]*\))*)\)|[`(\[]+((?:B|batch\w*), [^`)\]]*)[)\]]")
"""`of shape (batch_size, ...)`, or a shape that begins with the batch after the parameter's name."""

Size = int | str


def documented_shape(function: Callable[..., Any], name: str, sizes: Mapping[str, Size]) -> tuple[Size, ...] | None:
    """Return the shape of the parameter `name`, with dimensions from `sizes` or computed from them.

    None if the docstring does not give it, or names a dimension that is not in `sizes`.
    """
    shape = tuple(_size(part, sizes) for part in documented_sizes(function, name))
    return None if None in shape or not shape else tuple(size for size in shape if size is not None)


def documented_sizes(function: Callable[..., Any], name: str) -> tuple[str, ...]:
    """Return the dimensions of the parameter `name` as the docstring writes them; empty if it does not."""
    match = _SHAPE.search(documented(function, name))
    parts = re.split(r",(?![^(]*\))", match[1] or match[2]) if match is not None else []
    return tuple(part.strip() for part in parts if part.strip())


def documented(function: Callable[..., Any], name: str) -> str:
    """Return the docstring's text on the parameter `name`, in one line; empty if there is none."""
    entry = re.search(
        rf"^( *){re.escape(name)}:? ?[(:].*(?:\n(?:\1 +\S.*|\s*$))*", function.__doc__ or "", re.MULTILINE
    )
    return " ".join(entry[0].split()) if entry is not None else ""


def solved(text: str, value: int, name: str) -> int | None:
    """Return the size `name` for which the dimension `text`, a sum with a multiple of it, has this `value`."""
    at = [computed for size in (0, 1) if isinstance(computed := _size(text, {name: size}), int)]
    if len(at) < 2 or at[0] == at[1] or (value - at[0]) % (at[1] - at[0]):
        return None
    return (value - at[0]) // (at[1] - at[0])


def _size(text: str, sizes: Mapping[str, Size]) -> Size | None:
    text = text.removeprefix("self.config.")
    if (known := sizes.get(text.replace(" ", "_"))) is not None:
        return known
    try:
        return _computed(ast.parse(re.sub(r"(?<=\d)(?=[A-Za-z])", "*", text), mode="eval").body, sizes)
    except (SyntaxError, KeyError, TypeError, ValueError):
        return None


def _computed(node: ast.expr, sizes: Mapping[str, Size]) -> int:
    """Compute a dimension. Raises KeyError for names not in `sizes`, TypeError for anything but sums and products."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return int(sizes[name])
        case ast.Call(func=ast.Name(id="len" | "prod" as function), args=[ast.Name(id=name)]):
            return int(sizes[f"{function}_{name}"])
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() as op, left=left, right=right):
            result = OPERATORS[type(op)](_computed(left, sizes), _computed(right, sizes))
            assert isinstance(result, int)
            return result
    raise TypeError
