"""Arithmetic of a shell: `$((...))`, and `$[...]` as older scripts write it, with whole numbers."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress

_COMPUTED = re.compile(r"\$(?:\(\(((?:[^()]|\([^()]*\))*)\)\)|\[([^\[\]]*)\])")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(left / right),
    ast.Mod: lambda left, right: left - right * int(left / right),
}


def computed(line: str, values: Mapping[str, str]) -> str:
    """Return a line with the results in it; where the value of a variable is not known it stays as it is."""

    def result(use: re.Match[str]) -> str:
        text = _VARIABLE.sub(lambda each: values.get(each[1] or each[2], each[0]), use[1] or use[2] or "")
        with suppress(SyntaxError, ValueError, KeyError, ArithmeticError):
            return str(_result(ast.parse(text.strip(), mode="eval").body, values))
        return use[0]

    return _COMPUTED.sub(result, line)


def _result(node: ast.expr, values: Mapping[str, str]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return int(values[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_result(operand, values)
        case ast.BinOp(left=left, op=symbol, right=right):
            return _OPERATORS[type(symbol)](_result(left, values), _result(right, values))
    raise ValueError
