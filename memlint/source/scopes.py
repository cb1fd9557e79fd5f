"""Functions of a Source, and the loops, conditions and no-grad blocks around each of their nodes."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from memlint.source.calls import called
from memlint.source.text import Source, dotted_name
from memlint.source.trees import walk

Loop = ast.For | ast.AsyncFor | ast.While
Position = tuple[int, int]
"""Line and column, for the order in the text."""

_FOR = (ast.For, ast.AsyncFor)
_BRANCHES = (ast.If, ast.IfExp, ast.BoolOp, ast.ExceptHandler, ast.Match)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
_CLOSED = frozenset({*_DEFINITIONS, ast.Lambda})
_NO_GRAD = frozenset({"no_grad", "inference_mode", "set_grad_enabled", "_set_grad_enabled"})
_BACKWARD = re.compile(r"backward(?!\w)", re.ASCII)
_PLAIN_DECORATORS = frozenset({"staticmethod", "classmethod", "override", "main", "command"})
LOADER = re.compile(r"loader|dataset|batches|\bdl\b|_dl\b|data_iter")
EVALUATION = re.compile(
    r"_*(eval|evaluate|evaluation|val|validate|validation|test|predict|infer|inference)(_.+)?", re.IGNORECASE
)


@dataclass(frozen=True, eq=False)
class Scope:
    """One function body, or the file outside of functions, without nested functions."""

    source: Source
    node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
    owner: ast.ClassDef | None
    """Class of which it is a method."""
    parents: Mapping[ast.AST, ast.AST] = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the function; empty for the file."""
        return getattr(self.node, "name", "")

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Everything in the body, outer before inner and otherwise in the order of the text."""
        return tuple(self.source.index.in_text_order(self.node.body, _CLOSED))

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        """Calls among `nodes`."""
        return tuple(node for node in self.nodes if isinstance(node, ast.Call))

    @property
    def evaluates(self) -> bool:
        """True if it is named like an evaluation."""
        return EVALUATION.fullmatch(self.name) is not None

    @property
    def in_module(self) -> bool:
        """True if it is a method of a class that looks like an `nn.Module`."""
        if self.owner is None:
            return False
        return any(dotted_name(base).endswith("Module") for base in self.owner.bases) or any(
            isinstance(node, ast.FunctionDef) and node.name == "forward" for node in self.owner.body
        )

    @property
    def in_dataset(self) -> bool:
        """True if it is a method of a class that derives from some `Dataset`."""
        bases = self.owner.bases if self.owner is not None else ()
        plain = (base.value if isinstance(base, ast.Subscript) else base for base in bases)
        return any(dotted_name(base).endswith("Dataset") for base in plain)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the parents of `node` inside this scope, innermost first."""
        while (node := self.parents[node]) is not self.node:
            yield node

    def loops(self, node: ast.AST) -> tuple[Loop, ...]:
        """Return the loops that repeat `node`, innermost first."""
        child, loops = node, []
        for parent in self.around(node):
            once = getattr(parent, "orelse", ())
            if isinstance(parent, ast.For | ast.AsyncFor):
                once = (parent.iter, *once)
            if isinstance(parent, Loop) and child not in once:
                loops.append(parent)
            child = parent
        return tuple(loops)

    def conditional(self, node: ast.AST, loop: Loop) -> bool:
        """Return True if an iteration of `loop` may skip `node`."""
        for parent in self.around(node):
            if parent is loop:
                return False
            if isinstance(parent, _BRANCHES):
                return True
        return True

    def guarded(self, node: ast.AST) -> bool:
        """Return True if autograd may be disabled at `node`. Unknown constructs count as a yes."""
        return self._guarded_whole or any(
            isinstance(parent, ast.With | ast.AsyncWith) and _guards(self.source, parent)
            for parent in self.around(node)
        )

    @cached_property
    def _guarded_whole(self) -> bool:
        if self.name and self.name in guarded_names(self.source):
            return True
        if any(_is_switch(call) for call in (*self.calls, *scopes(self.source)[0].calls)):
            return True
        node: ast.AST | None = self.node
        while node is not None:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and may_be_wrapped(node):
                return True
            node = self.parents.get(node)
        return False


def may_be_wrapped(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if it has a decorator that may run it under another mode of autograd."""
    return any(
        dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator).rpartition(".")[2]
        not in _PLAIN_DECORATORS
        for decorator in function.decorator_list
    )


def position(node: ast.expr | ast.stmt) -> Position:
    """Return the start of `node`."""
    return node.lineno, node.col_offset


def under_condition(scope: Scope, node: ast.AST) -> bool:
    """Return True if a condition in the function decides if `node` runs."""
    return any(isinstance(parent, _BRANCHES) for parent in scope.around(node))


def over_batches(loop: Loop | ast.comprehension) -> bool:
    """Return True if the loop iterates over a data loader, judged by the expression after `in`."""
    return not isinstance(loop, ast.While) and LOADER.search(ast.unparse(loop.iter).lower()) is not None


def calls_backward(block: ast.AST) -> bool:
    """Return True if something is differentiated in `block`."""
    return any(isinstance(node, ast.Call) and called(node).endswith("backward") for node in walk(block))


@lru_cache(maxsize=1)
def differentiates(source: Source) -> bool:
    """Return True if the file contains a name that ends in `backward`."""
    return _BACKWARD.search(source.text) is not None


@lru_cache(maxsize=1)
def goes_over_batches(source: Source) -> bool:
    """Return True if some loop of the file iterates over a data loader."""
    return any(
        LOADER.search("\n".join(source.lines[node.iter.lineno - 1 : node.iter.end_lineno]).lower())
        and over_batches(node)
        for node in source.statements
        if isinstance(node, _FOR)
    )


@lru_cache(maxsize=1)
def lists_batches(source: Source) -> bool:
    """Return True if a list comprehension may iterate over a data loader: a line looks like it.

    Fast, and often wrong.
    """
    if not source.mentions("loader", "dataset", "batches", "dl", "data_iter"):
        return False
    lines = (line.lower() for line in source.lines if " for " in line or line.lstrip().startswith("for "))
    return any(LOADER.search(line.rpartition(" in ")[2]) and not line.rstrip().endswith(":") for line in lines)


def is_test(source: Source) -> bool:
    """Return True if the file holds unit tests or their helpers: it imports `unittest`, `pytest` or `torch.testing`."""
    return any(re.match(r"(unittest|pytest|torch\.testing)(\.|$)", name) for name in source.imports.values())


def uses_torch(source: Source) -> bool:
    """Return True if the file imports PyTorch."""
    return "torch" in source.text and any(
        name == "torch" or name.startswith("torch.") for name in source.imports.values()
    )


@lru_cache(maxsize=1)
def scopes(source: Source) -> tuple[Scope, ...]:
    """Return every Scope of the file, the one outside of functions first."""
    parents = source.index.parents
    scopes = [Scope(source, source.tree, None, parents)]
    for node in source.index.of(ast.FunctionDef, ast.AsyncFunctionDef):
        parent = parents[node]
        scopes.append(Scope(source, node, parent if isinstance(parent, ast.ClassDef) else None, parents))
    return tuple(scopes)


def calls(
    source: Source, name: re.Pattern[str] | None = None, *, tests: bool = True
) -> Iterator[tuple[Scope, ast.Call]]:
    """Yield every call of the file, or only those with such a qualified `name`, with its Scope.

    Functions named like tests are included only if `tests`.
    """
    if name is not None:
        pairs = ((scope, call) for scope, call, qualified in named_calls(source) if name.fullmatch(qualified))
    else:
        pairs = ((scope, call) for scope in scopes(source) for call in scope.calls)
    for scope, call in pairs:
        if tests or not scope.name.startswith("test"):
            yield scope, call


@lru_cache(maxsize=1)
def named_calls(source: Source) -> tuple[tuple[Scope, ast.Call, str], ...]:
    """Return every call of something imported, with its Scope and its qualified name."""
    return tuple(
        (scope, call, name)
        for scope in scopes(source)
        for call in scope.calls
        if (name := source.qualified_name(call.func)) is not None
    )


@lru_cache(maxsize=2)
def holders(source: Source, *kinds: type[ast.AST]) -> frozenset[ast.AST]:
    """Return the functions and classes, and the file, that hold nodes of these types outside of inner ones."""
    held = set()
    for node in source.index.of(*kinds):
        around = node
        while not isinstance(around := source.index.parents[around], _DEFINITIONS):
            pass
        held.add(around)
    return frozenset(held)


@lru_cache(maxsize=1)
def guarded_names(source: Source) -> frozenset[str]:
    """Return the last parts of the names of all functions called where autograd is disabled."""
    statements = (statement for block in guarding_blocks(source) for statement in block.body)
    calls = (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call))
    return frozenset({dotted_name(call.func).rpartition(".")[2] for call in calls} - {""})


def guarding_blocks(source: Source) -> list[ast.With | ast.AsyncWith]:
    """Return the blocks that may disable autograd."""
    return [node for node in source.index.of(ast.With, ast.AsyncWith) if _guards(source, node)]


def _guards(source: Source, block: ast.With | ast.AsyncWith) -> bool:
    return any(switches_off(source, item.context_expr) for item in block.items)


def switches_off(source: Source, context: ast.expr) -> bool:
    """Return True if entering `context` may disable autograd. Unknown constructs count as a yes."""
    if not isinstance(context, ast.Call):
        return not re.search(r"amp|autocast", dotted_name(context))
    last = (source.qualified_name(context.func) or dotted_name(context.func)).rpartition(".")[2]
    if last in _NO_GRAD:
        value = context.args[0] if context.args else None
        return not (isinstance(value, ast.Constant) and value.value is (last != "inference_mode"))
    return re.search(r"grad|inference|eval", last) is not None and last != "enable_grad"


def _is_switch(call: ast.Call) -> bool:
    """Return True for `torch.set_grad_enabled(False)`, or with a value that is not literal, as its own statement."""
    if dotted_name(call.func).rpartition(".")[2] not in ("set_grad_enabled", "_set_grad_enabled") or not call.args:
        return False
    return not (isinstance(call.args[0], ast.Constant) and call.args[0].value is True)
