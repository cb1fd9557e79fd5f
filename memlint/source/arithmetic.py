"""Python's operators and functions, evaluated on plain values that stay small."""

import ast
import operator
from collections.abc import Callable, Mapping

from memlint.source.values import Call, Name, Settings, Unknown

LONGEST = 10_000
"""Largest number of repetitions of a list."""
_LARGEST = 2**40
"""Largest magnitude of numbers in a computation."""
OPERATORS: Mapping[type[ast.AST], Callable[..., object]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Not: operator.not_, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
CONVERSIONS: Mapping[str, Callable[..., object]] = {
    "int": int, "float": float, "bool": bool, "str": str, "tuple": tuple, "list": list, "len": len, "max": max,
    "min": min, "eval": ast.literal_eval, "round": round,
}  # fmt: skip


def computed(function: Callable[..., object], *arguments: object) -> object:
    """Evaluate one of these. Raises Unknown for values that are not plain, or may grow large."""
    if any(isinstance(each, Name | Call | Settings) for each in arguments):
        raise Unknown
    numbers = [each for each in arguments if isinstance(each, int | float)]
    if any(abs(number) > _LARGEST for number in numbers):
        raise Unknown
    if function is operator.mul and len(numbers) < len(arguments) and max(numbers, default=0) > LONGEST:
        raise Unknown
    return function(*arguments)
