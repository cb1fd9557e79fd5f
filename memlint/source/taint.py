"""Expressions of a function that are losses or outputs of a model, and that may hold a graph or GPU memory.

The analysis uses qualified names, the usual names of models and criteria, and the assignments of one function in the
order of the text. An unknown expression has no value, so rules err towards silence.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from memlint.source.calls import called, is_literal, last_name
from memlint.source.scopes import Loop, Position, Scope, position
from memlint.source.text import Source, dotted_name
from memlint.source.trees import walk

_DIFFERENTIATING = frozenset({"backward", "grad", "manual_backward", "scale"})
_NAMES = (ast.Name, ast.Attribute)
_MODEL = re.compile(r"(.*_)?(model|net|network)", re.IGNORECASE)
_CRITERION = re.compile(r"(.*_)?(criterion|loss_fn|loss_fct|loss_func|loss_function|cross_entropy)")
_LOSS_CLASS = re.compile(r"torch\.nn\.(modules\.loss\.)?\w+Loss")
_MODULE_CLASS = re.compile(r"torch\.nn\.(?!Parameter)[A-Z]\w*")
_LOSS_FUNCTION = re.compile(r"torch\.nn\.functional\.(\w+_loss|\w*cross_entropy\w*|kl_div)")
_TO_PYTHON = frozenset({"item", "tolist", "numpy", "float", "int", "bool", "len", "str"})
_INTEGER = frozenset({"argmax", "argmin", "argsort", "long", "int", "byte", "bool", "round", "eq", "ne", "gt", "lt"})
_VALUES_AND_INDICES = frozenset({"max", "min", "topk", "sort", "median", "mode", "kthvalue"})
_REDUCTIONS = frozenset({"sum", "mean", "norm", "max", "min", "prod"})
_TO_TENSOR = _REDUCTIONS | {
    "add", "clone", "contiguous", "cpu", "cuda", "detach", "div", "double", "float", "half", "mul", "neg", "reshape",
    "squeeze", "sub", "to", "unsqueeze", "view",
}  # fmt: skip
_FIELDS = frozenset({"logits", "last_hidden_state", "hidden_states", "pooler_output", "prediction_logits", "sample"})


class Kind(StrEnum):
    """Kind of a value in a training loop."""

    LOSS = "loss"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that came out of a model or a criterion."""

    kind: Kind
    graph: bool = True
    """True if it may keep an autograd graph alive."""
    on_device: bool = True
    """True if it is still on the model's device."""
    scalar: bool = False
    """True if it is one number."""
    indices: bool = False
    """True if it holds positions, such as those of a maximum: much smaller than the output."""
    tensor: bool = field(default=False, compare=False)
    """True if it is certainly a tensor, and neither a number nor an object that holds tensors."""


_LOSS = Value(Kind.LOSS, scalar=True)
_OUTPUT = Value(Kind.OUTPUT)


@lru_cache(maxsize=1)
def _read(_source: Source) -> dict[Scope, Values]:
    return {}


def values_of(scope: Scope) -> Values:
    """Return the values of one Scope, which several rules ask for."""
    read = _read(scope.source)
    if scope not in read:
        read[scope] = Values(scope)
    return read[scope]


class Values:
    """The values of one Scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._bound: dict[str, list[tuple[Position, Value | None]]] = {}
        self._starts: dict[str, list[Position]] = {}
        self._modules, self._criteria = _made_in(scope.source)
        backward = [call for call in scope.calls if isinstance(call.func, ast.Attribute) and called(call) == "backward"]
        differentiated = {call: dotted_name(call.func.value) for call in backward}  # type: ignore[attr-defined]
        self._tensors = {name for call, name in differentiated.items() if not call.args}
        self.differentiated = frozenset(differentiated.values()) | {
            dotted_name(call.args[0])
            for call in scope.calls
            if call.args and last_name(call.func) in _DIFFERENTIATING and dotted_name(call.func)
        }
        """Names on which `backward` is called."""
        engines = {name for call, name in differentiated.items() if call.args}
        self._losses = self.differentiated - {name for name in engines if "loss" not in name}
        """Those without possible engines, as in `accelerator.backward(loss)`."""
        for node in scope.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._assign(node.target, node.value)
            elif isinstance(node, ast.For | ast.AsyncFor):
                for name in ast.walk(node.target):
                    self._bind(dotted_name(name), position(node.target), None)

    def of(self, node: ast.expr) -> Value | None:
        """Return the value of `node`; None if it is neither a loss nor an output."""
        value = self._of(node)
        return replace(value, graph=False) if value and value.graph and self.scope.guarded(node) else value

    def _of(self, node: ast.expr) -> Value | None:
        if isinstance(node, ast.Name):
            return self._named(node.id, position(node))
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._item(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp):
            return self.of(node.left) or self.of(node.right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            return self.of(node.operand)
        if isinstance(node, ast.IfExp):
            return self.of(node.body) or self.of(node.orelse)
        return None

    def _named(self, name: str, before: Position) -> Value | None:
        values = [value for place, value in self._bound.get(name, ()) if place < before]
        value = values[-1] if values else None
        return replace(value, tensor=True) if value and value.kind is Kind.LOSS and name in self._tensors else value

    def _attribute(self, node: ast.Attribute) -> Value | None:
        name = dotted_name(node)
        if name in self._bound:
            return self._named(name, position(node))
        inner = self.of(node.value)
        if inner is None or inner.kind is Kind.LOSS:
            return replace(inner, graph=False) if inner and node.attr == "data" else None
        if node.attr == "loss":
            return replace(_LOSS, graph=inner.graph, on_device=inner.on_device)
        if node.attr in ("data", "indices"):
            return replace(inner, graph=False, indices=node.attr == "indices")
        return inner if node.attr in (*_FIELDS, "T", "mT", "values") else None

    def _item(self, node: ast.Subscript) -> Value | None:
        inner = self.of(node.value)
        if inner is None or not isinstance(node.slice, ast.Constant):
            return inner
        if isinstance(node.slice.value, str):
            loss = "loss" in node.slice.value
            return replace(_LOSS, graph=inner.graph, on_device=inner.on_device) if loss else inner
        if node.slice.value == 1 and called(node.value) in _VALUES_AND_INDICES:
            return replace(inner, graph=False, scalar=False, indices=True)
        return inner

    def _call(self, node: ast.Call) -> Value | None:
        name = dotted_name(node.func)
        last = called(node)
        qualified = self.scope.source.qualified_name(node.func) or ""
        if last in _TO_PYTHON and (isinstance(node.func, ast.Attribute) or "." not in name):
            return None if last not in ("float", "int", "bool") or "." not in name else self._method(node, last)
        if _LOSS_FUNCTION.fullmatch(qualified) or _CRITERION.fullmatch(last) or name in self._criteria:
            each = any(keyword.arg == "reduction" and is_literal(keyword.value, "none") for keyword in node.keywords)
            tensor = _LOSS_FUNCTION.fullmatch(qualified) is not None or name in self._criteria
            return replace(_LOSS, scalar=not each, tensor=tensor)
        model = name.removesuffix(".forward")
        if model in self._modules or (
            _MODEL.fullmatch(model.rpartition(".")[2]) and not _is_function(self.scope.source, model)
        ):
            return _OUTPUT
        if qualified.startswith("torch."):
            known = [value for argument in node.args[:2] if (value := self.of(argument))]
            return self._result(known[0], node, last, len(node.args) - 1) if known else None
        return self._method(node, last)

    def _method(self, node: ast.Call, last: str) -> Value | None:
        inner = self.of(node.func.value) if isinstance(node.func, ast.Attribute) else None
        return self._result(inner, node, last, len(node.args)) if inner else None

    def _result(self, inner: Value, node: ast.Call, last: str, num_arguments: int) -> Value | None:
        if last not in _TO_TENSOR or (last in _VALUES_AND_INDICES and num_arguments):
            inner = replace(inner, tensor=False)
        if last in ("detach", "detach_") or last in _INTEGER:
            return replace(inner, graph=False, indices=inner.indices or last.startswith("arg"))
        if last == "cpu" or (last == "to" and "cpu" in ast.unparse(node)):
            return replace(inner, on_device=False)
        if last in _REDUCTIONS and not num_arguments and not node.keywords:
            return replace(inner, scalar=True)
        return inner

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            whole = self.of(value)
            for number, element in enumerate(target.elts):
                if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                    self._assign(element, value.elts[number])
                    continue
                part = whole
                if whole and number and called(value) in _VALUES_AND_INDICES:
                    part = replace(whole, graph=False, indices=True)
                elif whole and "loss" in dotted_name(element):
                    part = replace(_LOSS, graph=whole.graph, on_device=whole.on_device)
                self._bind(dotted_name(element), _after(value), part)
            return
        name = dotted_name(target)
        if not any(isinstance(part, _NAMES) and dotted_name(part) == name for part in walk(value)):
            self._starts.setdefault(name, []).append(position(value))
        known = self.of(value)
        if known is None and name in self._losses and isinstance(value, ast.Call | ast.BinOp | ast.Await):
            known = replace(_LOSS, graph=not self.scope.guarded(value))
        self._bind(name, _after(value), known)

    def _bind(self, name: str, place: Position, value: Value | None) -> None:
        if name:
            self._bound.setdefault(name, []).append((place, value))

    def starts_in(self, name: str, loop: Loop) -> bool:
        """Return True if an iteration of `loop` rebinds `name` to a value that does not depend on its old one."""
        last = loop.end_lineno or loop.lineno
        return any(loop.lineno <= line <= last for line, _column in self._starts.get(name, ()))


def _is_function(source: Source, name: str) -> bool:
    """Return True if the file defines or imports this name: `test_net(net, loader)` may return anything."""
    return name in source.imports or name.rpartition(".")[2] in _defined(source)


@lru_cache(maxsize=1)
def _defined(source: Source) -> frozenset[str]:
    """Return the names of all functions and methods of the file."""
    return frozenset(node.name for node in source.index.of(ast.FunctionDef, ast.AsyncFunctionDef))


def _after(value: ast.expr) -> Position:
    """Return the end of the statement that assigns `value`: its own right side still sees the old value."""
    return value.end_lineno or value.lineno, value.end_col_offset or value.col_offset


@lru_cache(maxsize=1)
def _made_in(source: Source) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of modules and of criteria that the file makes; attributes of `self` only for criteria."""
    modules, criteria = set(), set()
    for node in source.index.of(ast.Assign):
        qualified = source.qualified_name(node.value.func) if isinstance(node.value, ast.Call) else None
        if qualified is None:
            continue
        names = {dotted_name(target) for target in node.targets} - {""}
        if _LOSS_CLASS.fullmatch(qualified):
            criteria |= names
        elif _MODULE_CLASS.fullmatch(qualified):
            modules |= {name for name in names if "." not in name}
    return frozenset(modules), frozenset(criteria)
