"""Ops of the program's own compiled extensions, which do not load here: they take what `memlint.op` says."""

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from memlint.accelerator.kernel import OF_PYTORCH
from memlint.accelerator.private import OpNamespace
from memlint.base.errors import TraceError, UsageError
from memlint.base.ownership import is_users
from memlint.base.signatures import signature_of
from memlint.config import Op as ConfiguredOp
from memlint.libraries.finders import Finder
from memlint.libraries.library import UnknownFunctionError, assume_once, launch, temporary
from memlint.libraries.op_template import OP_TEMPLATE

Tensor = torch.Tensor
_load_library: Callable[[Any], None] = torch.ops.load_library
_op_of: Callable[[Any, str], Any] = OpNamespace.__getattr__
_finder: Finder | None = None


def install(finder: Finder) -> None:
    """Let declarations count in this process, and libraries of ops that do not load here be left out."""
    global _finder  # noqa: PLW0603 -- of the process, which simulates; elsewhere declarations do nothing
    _finder = finder
    torch.ops.load_library = _loaded  # type: ignore[method-assign]
    OpNamespace.__getattr__ = _named  # type: ignore[method-assign]


class MissingOpError(UnknownFunctionError, AttributeError):
    """An op is not defined: an AttributeError to programs that ask whether it is."""


def _named(namespace: Any, name: str) -> Any:
    """Stand in for `_OpNamespace.__getattr__`, which gives the op of this name."""
    try:
        return _op_of(namespace, name)
    except AttributeError as error:
        if name.startswith("__") or namespace.name in OF_PYTORCH:
            raise
        op = f"{namespace.name}::{name}"
        if _is_of_stand_in(namespace.name):
            return _Unmodelled(op)
        raise MissingOpError(op, f"torch.ops.{namespace.name}.{name} is not defined here") from error


def _is_of_stand_in(namespace: str) -> bool:
    """Return True for ops of a library that is not there and that the program has imported: `xformers_flash`."""
    return hasattr(sys.modules.get(namespace.partition("_")[0]), "library")


class _Unmodelled:
    """An op of a library that is not there: a program may name it, as in a list of what not to compute again."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def default(self) -> Self:
        """The op for any operands."""
        return self

    def __call__(self, *_arguments: object, **_named: object) -> Any:
        raise MissingOpError(self._name, f"the op {self._name} is used, and memlint does not model it")


def _loaded(path: Any) -> None:
    try:
        _load_library(path)
    except OSError as error:
        if not is_users(sys._getframe(1).f_code.co_filename):
            raise  # an installed package, as torchvision, may do without
        if _finder is None or not _finder.has_own_ops:
            raise TraceError(
                f"the library of ops {path} does not load here: {error}",
                f"Say what its ops take, before it is loaded: {OP_TEMPLATE.format(name='namespace::name')}; "
                "see docs/libraries.md.",
            ) from error
        assume_once(f"the library of ops {path} does not load here: its ops take what memlint.op says")


@dataclass(frozen=True, slots=True)
class _Op:
    """The declaration of one op."""

    name: str
    shapes: Callable[..., Any]
    saves: Sequence[str]
    workspace: int | Callable[..., int]
    backward_workspace: int | Callable[..., int]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = signature_of(self.shapes).bind(*args, **kwargs)
        bound.apply_defaults()
        assume_once(f"kernels of {self.name} are not run: they take what memlint.op says")
        outputs = _Function.apply(self, *bound.args)  # type: ignore[no-untyped-call]
        return outputs[0] if len(outputs) == 1 else outputs


class _Function(torch.autograd.Function):
    """Reads its operands, takes and drops its workspace, and saves what it is said to save."""

    @staticmethod
    def forward(ctx: Any, op: _Op, *args: Any) -> tuple[Tensor, ...]:
        tensors = [value for value in args if isinstance(value, Tensor)]
        launch(tensors)
        workspace = temporary(_bytes(op.workspace, args))
        outputs = tuple(_made(each, tensors) for each in _listed(op.shapes(*args)))
        del workspace
        named = dict(zip(signature_of(op.shapes).parameters, args, strict=False), output=outputs[0])
        ctx.save_for_backward(*(named[name] for name in op.saves))
        ctx.operands = [(v.shape, v.dtype, v.device) if isinstance(v, Tensor) else None for v in args]
        ctx.workspace = _bytes(op.backward_workspace, args)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        launch((*ctx.saved_tensors, *grads))
        workspace = temporary(ctx.workspace)
        needed = zip(ctx.operands, ctx.needs_input_grad[1:], strict=True)
        results = [torch.empty(o[0], dtype=o[1], device=o[2]) if o and needs else None for o, needs in needed]
        del workspace
        return None, *results


def _bytes(workspace: int | Callable[..., int], args: Sequence[Any]) -> int:
    return workspace(*args) if callable(workspace) else workspace


def _listed(shapes: Any) -> Iterable[Any]:
    """Shapes and tensors, of which a single one may stand alone."""
    is_one = isinstance(shapes, Tensor) or all(isinstance(n, int) for n in shapes)
    return (shapes,) if is_one else shapes


def _made(shape: Any, tensors: Sequence[Tensor]) -> Tensor:
    return shape if isinstance(shape, Tensor) else torch.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device)


def declare_configured(op: ConfiguredOp) -> None:
    """Declare what a table of the configuration says. Raises UsageError where its text is no such function."""
    workspaces = (_evaluated(op, key) for key in ("workspace", "backward_workspace"))
    declare(op.name, _evaluated(op, "shapes"), op.saves, *workspaces)


def _evaluated(op: ConfiguredOp, key: str) -> Any:
    text = getattr(op, key)
    if isinstance(text, int):
        return text
    try:
        function = eval(text, {"torch": torch, "math": math})
    except Exception as error:
        function = error
    if not inspect.isfunction(function):
        raise UsageError(
            f"tool.memlint.op {op.name}: {key} is no function: {text!r}",
            'Write one of the arguments of the op, such as "lambda x, weight: (*x.shape[:-1], weight.shape[0])".',
        )
    return function


def declare(
    name: str,
    shapes: Callable[..., Any],
    saves: Sequence[str],
    workspace: int | Callable[..., int],
    backward_workspace: int | Callable[..., int],
) -> None:
    """Declare an op: the implementation of `memlint.op`."""
    known = (*signature_of(shapes).parameters, "output")
    unknown = [each for each in saves if each not in known]
    if unknown:
        raise UsageError(
            f"memlint.op({name!r}) saves {unknown[0]!r}, which is no argument of `shapes`",
            f"Name some of: {', '.join(known)}.",
        )
    if _finder is None:
        return
    op = _Op(name, shapes, tuple(saves), workspace, backward_workspace)
    namespace, _, function = name.partition("::")
    if function:
        _finder.has_own_ops = True
        setattr(getattr(torch.ops, namespace), function, op)
    else:
        _finder.declare(name, op)
