"""The lines after one that failed: a script whose data, checkpoint or login is not there may still build its model.

What a failed line would have bound becomes `Unknown`: every use that needs its value fails in turn, and is passed over
too, so nothing is built from a value that nobody knows; only a Trainer is given rows for it. Lines of a constructor of
a module are never passed over: half a model is none.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import linecache
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import chain
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from memlint.base.frames import text_of
from memlint.base.ownership import is_users
from memlint.base.variables import variables_of
from memlint.memory.records import Assumption, Frame
from memlint.script.unknown import Unknown, UnknownValueError, data_of, rows_for_trainers
from memlint.source.files import Unreadable
from memlint.source.text import Source
from memlint.workloads.user_errors import describe

if TYPE_CHECKING:
    from memlint.script.construction import Construction
    from memlint.script.unknown import Sizes
    from memlint.targets.script import Ending

_BUILDS = ("optim", ".parameters()", "backward", ".cuda(", ".to(", "model", "net")
"""Texts of which lines that build or train a model have one."""
_CONSTRUCTS = "__init__"
_RETURNS, _LEAVES, _VALUE, _DATA = "_memlint_returns", "_memlint_leaves", "_memlint_value", "_memlint_data"
"""Names that the lines see while they are run."""
_MODULE = "<module>"
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MOST_SHOWN, _MOST_DEPTH = 8, 6
_MOST_SECONDS = 40.0
_NOTHING = object()
"""The result of a function that was left for good."""
_Body = list[ast.stmt]


_MODE = re.compile(r"\b(no_grad|inference_mode|set_grad_enabled|enable_grad|autocast)\(")


class _ReturnedError(BaseException):
    """The function that is continued returns; no `except Exception` of its own catches that."""

    def __init__(self, value: object = None) -> None:
        super().__init__()
        self.value = value


class _LeftError(BaseException):
    """The loop around the line that failed goes on or is left: its body is over."""


class _LateError(BaseException):
    """The time for it is over."""


class _Place(NamedTuple):
    """Statements that are left of a block after one of its lines, and the statement of that line."""

    failed: ast.stmt
    rest: tuple[_Body, ...]
    """The rest of each block around the line, the innermost first."""
    loops: tuple[bool, ...]
    """For each of these, True if it is the body of a loop."""


class PassingOver:
    """Continues a script after an exception."""

    def __init__(
        self,
        *,
        may_begin: Callable[[BaseException], bool],
        is_enough: Callable[[], bool],
        construction: Construction,
        sizes: Sizes,
        seconds: float,
    ) -> None:
        """`may_begin` gets what ended the script, `is_enough` is True once a model was called; it takes `seconds`."""
        self._may_begin, self._is_enough = may_begin, is_enough
        self._construction, self._sizes = construction, sizes
        self._seconds = min(seconds, _MOST_SECONDS)
        self._is_over = False
        self.notes: list[Assumption] = []
        """The lines that were passed over, the first of them."""
        self.errors: list[BaseException] = []
        """The exceptions that these lines raised."""
        self.namespaces: list[dict[str, Any]] = []
        """The variables of continued functions."""
        self.continued: set[FrameType] = set()

    @property
    def errors_of_known_values(self) -> list[BaseException]:
        """Those of them that are not about the result of a line that failed before."""
        return [each for each in self.errors if Unknown.__name__ not in text_of(each)]

    def after(self, error: BaseException) -> None:
        """Run the lines that follow those that `error` has left, innermost function first, as far as they build."""
        if not self._may_begin(error):
            return
        late = threading.Timer(self._seconds, _raise_in, (threading.get_ident(),))
        late.daemon = True
        late.start()
        trace = error.__traceback__
        try:
            with rows_for_trainers(self._sizes):
                self._after(trace, error, self._construction.mark(), 0)
        except _LateError:
            self._is_over = True
        finally:
            late.cancel()
            error.__traceback__ = trace  # huggingface_hub takes those of all errors that were being handled

    @property
    def first(self) -> str:
        """The first line that was passed over, and its error; empty without any."""
        return self.notes[0].text if self.notes else ""

    def before(self, ending: Ending) -> Ending:
        """Return an ending that comes after lines that were passed over with the first of these in its reason."""
        if not self.first or ending.is_failure:
            return ending
        return replace(ending, reason=f"{ending.reason}, after memlint {self.first}")

    def _after(self, trace: TracebackType | None, error: BaseException, mark: int, depth: int) -> object:
        """Continue the functions of a traceback; return the result of the outermost one, `_NOTHING` if it is left."""
        frames = list(_frames(trace))
        whole = next((number for number, (frame, _) in enumerate(frames) if _constructs_module(frame)), len(frames))
        result: object = _NOTHING
        for number in reversed(range(whole)):
            frame, line = frames[number]
            place = _place(frame, line) if _may_continue(frame) else None
            if place is None or not _builds(place):
                result = _NOTHING
                continue
            if self._is_over or self._is_enough() or self._is_training(place):
                self._is_over = True
                return _NOTHING
            self._construction.leave([each for each, _line in frames[number + 1 :] if each not in self.continued], mark)
            self.continued.add(frame)
            result = self._rest_of(frame, place, result, error, depth)
        return result

    def _is_training(self, place: _Place) -> bool:
        """Return True in the loop of training: what is left there evaluates or saves."""
        return any(place.loops) and bool(self._construction.optimizers)

    def _rest_of(self, frame: FrameType, place: _Place, result: object, error: BaseException, depth: int) -> object:
        """Run what is left of a function; return what it returns, for a constructor the object."""
        code = frame.f_code
        namespace = frame.f_globals if code.co_name == _MODULE else {**frame.f_globals, **variables_of(frame)}
        self.namespaces += [] if code.co_name == _MODULE else [namespace]
        namespace |= {_RETURNS: _ReturnedError, _LEAVES: _LeftError, _DATA: data_of}
        own = namespace.get(code.co_varnames[0]) if code.co_name == _CONSTRUCTS and code.co_varnames else None
        lines = _Lines(code.co_filename, namespace)
        try:
            self._give(lines, place.failed, result, error)
            self._run(lines, place, depth)
        except _ReturnedError as returned:
            return returned.value if own is None else own
        finally:
            for name in (_RETURNS, _LEAVES, _DATA):
                namespace.pop(name, None)
        return own

    def _run(self, lines: _Lines, place: _Place, depth: int) -> None:
        for body, is_loop in zip(place.rest, place.loops, strict=True):
            try:
                for statement in body:
                    if self._is_over or self._is_enough():
                        return
                    self._execute(lines, statement, depth)
            except _LeftError:
                if not is_loop:
                    raise

    def _execute(self, lines: _Lines, statement: ast.stmt, depth: int) -> None:
        """Run one statement; where it fails, go on behind its line, or else pass the whole statement over."""
        mark = self._construction.mark()
        try:
            lines.run(_Leaving().visit(statement))
        except (_ReturnedError, _LeftError, _LateError, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever the script's line raises
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_globals is not lines.namespace:
                trace = trace.tb_next
            if trace is None or depth >= _MOST_DEPTH:
                self._give(lines, statement, _NOTHING, error)
                return
            inner = _within(statement, trace.tb_lineno)
            result = self._after(trace.tb_next, error, mark, depth + 1)
            self._is_over = self._is_over or (inner is not None and self._is_training(inner))
            if self._is_over:
                return
            if result is _NOTHING:
                self._construction.leave([frame for frame, _line in _frames(trace.tb_next)], mark)
            self._give(lines, statement if inner is None else inner.failed, result, error)
            if inner is not None:
                self._run(lines, inner, depth + 1)

    def _give(self, lines: _Lines, statement: ast.stmt, result: object, error: BaseException) -> None:
        """Bind what a statement that failed binds: to the result of its call if that is known, else to `Unknown`."""
        if result is not _NOTHING and _is_call(statement):
            if isinstance(statement, ast.Return):
                raise _ReturnedError(result)
            if isinstance(statement, ast.Assign):
                lines.assign(", ".join(map(ast.unparse, statement.targets[:1])), result)
            return
        if isinstance(statement, ast.Return):
            raise _ReturnedError(Unknown())
        self._construction.spoil(lines.modules_changed_by(statement))
        always = isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Import | ast.ImportFrom)
        for target in _targets(statement):
            if always or target not in lines.namespace:
                lines.assign(target, Unknown())
        if len(self.notes) < _MOST_SHOWN and not isinstance(error, UnknownValueError):
            self.notes.append(_note(statement, lines.file, error))
            self.errors.append(error)


class _Leaving(ast.NodeTransformer):
    """`return` of a function, and `break` and `continue` of a loop, whose other lines are not run.

    The data that a Trainer takes as `**data` is named in full.
    """

    def __init__(self) -> None:
        self._in_loop = False

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        value = node.value or ast.Constant(None)
        return _raising(_RETURNS, [value], node)

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        return node if self._in_loop else _raising(_LEAVES, [], node)

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        return node if self._in_loop else _raising(_LEAVES, [], node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node.func).endswith("Trainer"):
            for each in node.keywords:
                if each.arg is None:
                    of_data = ast.Call(ast.Name(_DATA, ast.Load()), [each.value], [])
                    each.value = ast.fix_missing_locations(ast.copy_location(of_data, node))
        return node

    def _loop(self, node: ast.stmt) -> ast.stmt:
        before, self._in_loop = self._in_loop, True
        self.generic_visit(node)
        self._in_loop = before
        return node

    visit_For = visit_While = _loop  # noqa: N815

    def _whole(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _whole  # noqa: N815


def _raising(name: str, arguments: list[ast.expr], node: ast.stmt) -> ast.stmt:
    call = ast.Call(ast.Name(name, ast.Load()), arguments, [])
    return ast.fix_missing_locations(ast.copy_location(ast.Raise(call, None), node))


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the user's frames of a traceback with their lines, the outermost first."""
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _may_continue(frame: FrameType) -> bool:
    code = frame.f_code
    return not code.co_flags & _SUSPENDED and (code.co_name == _MODULE or not code.co_name.startswith("<"))


def _constructs_module(frame: FrameType) -> bool:
    """Return True for a constructor of a module."""
    code = frame.f_code
    if code.co_name != _CONSTRUCTS or not code.co_varnames:
        return False
    return isinstance(variables_of(frame).get(code.co_varnames[0]), nn.Module)


def _place(frame: FrameType, line: int) -> _Place | None:
    """Return where a frame stands in its text; None if that is not to be had."""
    code = frame.f_code
    try:
        tree = Source.from_text("".join(linecache.getlines(code.co_filename)), code.co_filename).tree
    except Unreadable:
        return None
    body = tree.body
    if code.co_name != _MODULE:
        functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == code.co_name)
        around = [each for each in functions if each.lineno <= line <= (each.end_lineno or 0)]
        if not around:
            return None
        body = max(around, key=lambda each: each.lineno).body
    return _located(body, line)


def _located(body: _Body, line: int, *, is_loop: bool = False) -> _Place | None:
    for number, statement in enumerate(body):
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            inner = _within(statement, line)
            rest = body[number + 1 :]
            if inner is None:
                return _Place(statement, (rest,), (is_loop,))
            return _Place(inner.failed, (*inner.rest, rest), (*inner.loops, is_loop))
    return None


def _within(statement: ast.stmt, line: int) -> _Place | None:
    """Return the place of a line in a block of a statement; None if it is in none."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return None
    is_loop = isinstance(statement, ast.For | ast.While)
    blocks = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    handlers = (handler.body for handler in getattr(statement, "handlers", ()))
    for block in (*filter(None, blocks), *handlers):
        if (place := _located(block, line, is_loop=is_loop)) is not None:
            return place._replace(rest=tuple(_in_modes(statement, each) for each in place.rest))
    return None


def _in_modes(around: ast.stmt, rest: _Body) -> _Body:
    """Return what is left of a block in the modes of PyTorch that it sets, such as `with torch.no_grad():`."""
    if not (rest and isinstance(around, ast.With) and all(_MODE.search(ast.unparse(each)) for each in around.items)):
        return rest
    whole = ast.copy_location(ast.With(around.items, list(rest)), rest[0])
    whole.end_lineno = rest[-1].end_lineno
    return [whole]


def _builds(place: _Place) -> bool:
    """Return True if what is left of a function may build a model or train it."""
    text = "\n".join(ast.unparse(each).lower() for each in chain.from_iterable(place.rest))
    return any(each in text for each in _BUILDS)


def _is_call(statement: ast.stmt) -> bool:
    """Return True if a statement only gives the result of a call to something."""
    return isinstance(statement, ast.Assign | ast.Expr | ast.Return) and isinstance(statement.value, ast.Call)


def _targets(statement: ast.stmt) -> Iterator[str]:
    """Yield what a statement binds, as text: names, attributes and entries."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((each.asname or each.name.partition(".")[0]) for each in statement.names if each.name != "*")
    elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                yield ast.unparse(node)


class _Lines:
    """Lines of a file, run in the variables of one of its functions."""

    def __init__(self, file: str, namespace: dict[str, Any]) -> None:
        self.file, self.namespace = file, namespace

    def run(self, statement: ast.stmt) -> None:
        """Run one statement."""
        exec(compile(ast.Module([statement], []), self.file, "exec"), self.namespace)

    def assign(self, target: str, value: object) -> None:
        """Bind a name, an attribute or an entry, as far as that can be done."""
        self.namespace[_VALUE] = value
        with suppress(Exception):  # of an object of the script's
            exec(compile(f"{target} = {_VALUE}", self.file, "exec"), self.namespace)
        del self.namespace[_VALUE]

    def modules_changed_by(self, statement: ast.stmt) -> Iterator[nn.Module]:
        """Yield the modules that a statement would have replaced or given other parts: as they are they mean nothing.

        A module that only loses its checkpoint is as large as with it.
        """
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        places: list[ast.expr] = [each for each in targets if isinstance(each, ast.Name)]
        places += [each.value for each in targets if isinstance(each, ast.Attribute) and self._module_at(each)]
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and "load" not in call.func.attr:
            places.append(call.func.value)
        yield from filter(None, map(self._module_at, places))

    def _module_at(self, place: ast.expr) -> nn.Module | None:
        value: object = None
        first, *names = ast.unparse(place).split(".")
        with suppress(Exception):  # of an object of the script's
            value = reduce(getattr, names, self.namespace.get(first))
        return value if isinstance(value, nn.Module) else None


def _raise_in(thread: int) -> None:
    """Raise `_LateError` in a thread, at its next line."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_LateError))


def _note(statement: ast.stmt, file: str, error: BaseException) -> Assumption:
    text = ast.unparse(statement).partition("\n")[0]
    short = text if len(text) <= 60 else f"{text[:57]}..."
    return Assumption(f"passed over `{short}`, which raised {describe(error)}", Frame(file, statement.lineno, ""))
