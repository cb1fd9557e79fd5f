"""Inputs with which an example of the project calls its model: `img = torch.randn(1, 3, 224, 224)`, `model(img)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from memlint.source.assignments import assigns, ends_before
from memlint.source.call_sites import CallSite
from memlint.source.calls import called
from memlint.source.expressions import Values
from memlint.source.project import Project
from memlint.source.scopes import Scope, scopes
from memlint.source.text import dotted_name
from memlint.source.values import Unknown

_OF_SIZES = frozenset({"randn", "rand", "zeros", "ones", "empty"})
_CASTS = {
    "half": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "double": "float64",
    "long": "int64",
    "int": "int32",
    "bool": "bool",
}


_COUNT = {"get_model_complexity_info": True, "summary": True, "profile": False, "FlopCountAnalysis": False}
"""Functions that count a model's operations or parameters; True if they are told sizes without the batch.

Those of ptflops, torchsummary and torchinfo (which takes `input_size` with the batch), thop, and fvcore.
"""
_RANK_OF_IMAGES = 3
_OF_VALUES = {"tensor": "", "LongTensor": "int64", "IntTensor": "int32", "FloatTensor": "float32"}
"""Functions that make a tensor of lists of numbers, and its dtype, if that is not of the numbers."""
_MOVES = frozenset({"to", "cuda", "cpu", "contiguous", "requires_grad_"})
"""Methods after which a tensor has the shape that it had, and its dtype unless it is told one."""


@dataclass(frozen=True, slots=True)
class ShownTensor:
    """A tensor that an example makes."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    high: int | None = None
    """Exclusive upper bound of its integer values, as in `torch.randint`."""


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call of the model in an example."""

    inputs: Mapping[str, object]
    """ShownTensors and plain values; the keys of positional inputs are digits."""
    path: str
    line: int
    builds_so: bool = True
    """True if the called model is built as here, False if other code builds it in another way."""


def shown_call(site: CallSite, project: Project) -> ShownCall | None:
    """Return the call of the model that the code around `site` makes; None if it is not shown."""
    if site.source is None:
        return None
    values = _Tensors(site.source, project)
    for scope in scopes(site.source):
        for maker in (call for call in scope.calls if call.lineno == site.line):
            for call in _calls_of(maker, scope):
                inputs, unseen = values.arguments(call, scope)
                plain = (ShownTensor, bool, int, float, str)
                if inputs and not unseen and all(isinstance(each, plain) for each in inputs.values()):
                    return ShownCall(inputs, site.path, call.lineno)
    return None


def _calls_of(maker: ast.Call, scope: Scope) -> Iterator[ast.Call]:
    """Yield the calls of the name bound to the result of `maker`, until the name is rebound."""
    statement = next((node for node in scope.around(maker) if isinstance(node, ast.Assign | ast.AnnAssign)), None)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    if statement is None or len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return
    name = targets[0].id
    for node in scope.nodes:
        if not isinstance(node, ast.stmt | ast.expr) or not ends_before(statement, node):
            continue
        if assigns(node, name) and not _keeps(node, name):
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node
        if isinstance(node, ast.Call) and (inputs := _counted_with(node, name)):
            yield ast.copy_location(ast.Call(ast.Name(name, ast.Load()), inputs, []), node)


def _counted_with(call: ast.Call, name: str) -> list[ast.expr]:
    """Return the inputs with which a call counts the operations or parameters of the model `name`; else empty.

    So `profile(model, inputs=(x,))`, and without the batch `get_model_complexity_info(model, (3, 224, 224))`.
    """
    counts, given = called(call), {each.arg: each.value for each in call.keywords}
    if counts not in _COUNT or not call.args or not isinstance(call.args[0], ast.Name) or call.args[0].id != name:
        return []
    tensors = next((given[each] for each in ("inputs", "input_data") if each in given), None)
    sizes = given.get("input_size", call.args[1] if len(call.args) > 1 and _COUNT[counts] else None)
    if sizes is None:
        tensors = call.args[1] if tensors is None and len(call.args) > 1 else tensors
        return [] if tensors is None else list(tensors.elts) if isinstance(tensors, ast.Tuple) else [tensors]
    if not isinstance(sizes, ast.Tuple) or not all(isinstance(each, ast.Constant) for each in sizes.elts):
        return []
    batch = [] if "input_size" in given and len(sizes.elts) > _RANK_OF_IMAGES else [ast.Constant(1)]
    return [ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), "randn", ast.Load()), [*batch, *sizes.elts], [])]


def _keeps(node: ast.AST, name: str) -> bool:
    """Return True if it is `name = name.to(...)`."""
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and dotted_name(value.func).startswith(f"{name}.")


class _Tensors(Values):
    """Evaluator of examples, in which calls make tensors."""

    def _call(self, node: ast.Call, scope: Scope | None) -> object:
        name = called(node)
        if dotted_name(node.func) == f"torch.{name}":
            return self._shown_tensor(name, node, scope)
        if isinstance(node.func, ast.Attribute) and name in _MOVES:
            value = self.of(node.func.value, scope)
            return value if isinstance(value, ShownTensor) and not _has_dtype(node) else super()._call(node, scope)
        if isinstance(node.func, ast.Attribute) and name in _CASTS and not node.args:
            value = self.of(node.func.value, scope)
            return replace(value, dtype=_CASTS[name]) if isinstance(value, ShownTensor) else value
        return super()._call(node, scope)

    def _shown_tensor(self, name: str, node: ast.Call, scope: Scope | None) -> ShownTensor:
        arguments, unseen = self.arguments(node, scope)
        sizes = [value for key, value in arguments.items() if key.isdigit()]
        if any(key.isdigit() for key in unseen):
            raise Unknown
        dtype = next((dotted_name(each.value) for each in node.keywords if each.arg == "dtype"), "")
        high = None
        if name.endswith("_like") and name.removesuffix("_like") in _OF_SIZES and isinstance(sizes[0], ShownTensor):
            tensor = sizes[0]
        elif name in _OF_SIZES or name == "randint":
            shape = arguments.get("size", sizes[-1] if sizes and isinstance(sizes[-1], tuple | list) else tuple(sizes))
            if name == "randint":
                bounds = [each for each in sizes if isinstance(each, int)]
                high = arguments.get("high", bounds[-1] if bounds else None)
            if not isinstance(shape, tuple | list) or not all(type(each) is int for each in shape):
                raise Unknown
            tensor = ShownTensor(tuple(shape), "int64" if name == "randint" else "float32")
        elif name in _OF_VALUES and sizes and (shape := _shape_of(sizes[0])):
            tensor = ShownTensor(shape, _OF_VALUES[name] or _dtype_of(sizes[0]))
        else:
            raise Unknown
        return replace(
            tensor,
            dtype=dtype.removeprefix("torch.") or tensor.dtype,
            high=high if isinstance(high, int) else tensor.high,
        )


def _has_dtype(node: ast.Call) -> bool:
    return any("dtype" in (each.arg or "") for each in node.keywords) or any(
        dotted_name(each).startswith("torch.") for each in node.args
    )


def _shape_of(value: object) -> tuple[int, ...]:
    """Return the shape of lists of numbers; empty for anything else."""
    if not isinstance(value, list | tuple) or not value:
        return ()
    inner = {_shape_of(each) for each in value}
    is_even = len(inner) == 1 and (inner != {()} or all(isinstance(each, int | float) for each in value))
    return (len(value), *inner.pop()) if is_even else ()


def _dtype_of(value: object) -> str:
    """Return the dtype that PyTorch gives lists of numbers."""
    while isinstance(value, list | tuple):
        value = value[0]
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
