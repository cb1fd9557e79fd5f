import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from memlint.lint.edits import under, unsafe, written
from memlint.lint.rule import Case, Edit, Findings, Severity, SourceRule
from memlint.source.scopes import EVALUATION, LOADER, Loop, may_be_wrapped, switches_off, uses_torch
from memlint.source.text import Source, dotted_name
from memlint.source.trees import children

_ScopeNode = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
_AnyLoop = Loop | _Comprehension

_MODEL = re.compile(r"(.*_)?(model|net|network)")
_HOOK = re.compile(r"(on_)?(training|train|validation|test|predict)_(step|step_end|epoch|epoch_end|batch_(start|end))")
_OVER_LOADER = re.compile(r"\bfor\b[^:]*\bin\b[^:]*(loader|dataset|batches|dl|data_iter)", re.IGNORECASE)
_NAMED = re.compile(r"def _*(eval|val|test|predict|infer)", re.IGNORECASE)
_SWITCHED = re.compile(r"\.eval\(\s*\)|\.train\(\s*False")
_MOVES = frozenset({"to", "cuda", "cpu", "half", "float", "bfloat16", "double", "eval"})
_GRADIENT_WORD = re.compile(r"backward|(zero_|retain_|enable_|value_and_)?grad|jacobian|hessian|vjp|jvp")
_FROZEN = frozenset({"requires_grad", "requires_grad_", "volatile"})
_WORDS = (ast.Name, ast.Attribute, ast.keyword, ast.arg)


@dataclass(slots=True)
class _Call:
    """A call of something that may be a model: its dotted name and the innermost loop around it."""

    name: str
    position: int
    loop: _AnyLoop
    loader: bool


@dataclass(slots=True)
class _Scope:
    """What one function body, or the file outside of functions, does."""

    node: _ScopeNode
    lightning: bool
    guarded: bool
    """Whether the definition stands in a guarded function or block."""
    modes: list[tuple[int, str, bool]] = field(default_factory=list)
    """Position, model, whether it was switched to evaluation."""
    calls: list[_Call] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    """Positions of words that belong to differentiation."""
    training_loops: set[ast.AST] = field(default_factory=set)
    frozen: bool = False
    """Whether it touches `requires_grad` or switches gradients off by a plain call."""


class EvalWithoutNoGrad(SourceRule):
    """An evaluation loop runs the model while autograd saves everything for a backward that never comes.

    Looks for loops that call a model after `model.eval()`, or that go over a loader in a function named like
    `evaluate`, `validate`, `test` or `predict`, outside of `torch.no_grad()`, `torch.inference_mode()` and
    `torch.set_grad_enabled(False)`, where nothing is differentiated.

    ## Why it costs memory

    `model.eval()` changes how dropout and batch normalisation behave; it does not switch autograd off. Every operation
    still saves what its backward would need, until the output is dropped, and an output that is kept keeps the whole
    graph of its batch.

    ## How the saving is computed

    In a traced workload the difference between mode `train` and mode `inference` without an optimizer is about what
    is at stake.

    ## Known limits

    The model is recognised by its `eval()` call or by its name. Functions that a guarded caller in another file calls
    are reported all the same; decorate them, or suppress the finding. Lightning hooks and decorated functions are left
    out, as are blocks under a context manager kept in a variable, because what it does cannot be seen. A single call
    outside of a loop is not reported.

    - https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
    - https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html
    """

    code, name, severity = "MEM404", "eval-without-no-grad", Severity.WARNING
    example = """\
import torch

def accuracy(model, loader):
    model.eval()
    correct = 0
    for images, labels in loader:
        correct += (model(images).argmax(1) == labels).sum().item()
    return correct
"""
    bad = (
        Case(example, line=6),
        Case("""\
import torch

def fit(model, optimizer, train_loader, val_loader, loss_fn):
    for epoch in range(10):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        model.eval()
        total = 0.0
        for x, y in val_loader:
            total += loss_fn(model(x), y).item()
""").but(title="Training and evaluation in one function", line=12),
    )
    good = (
        bad[0].but({"def accuracy(model, loader):": "@torch.inference_mode()\ndef accuracy(model, loader):"}),
        Case("""\
import torch

def predict(model, loader):
    model.eval()
    with torch.no_grad():
        return [model(images).argmax(1) for images in loader]
""").but(title="Only the loop is guarded"),
    )

    def check(self, source: Source) -> Findings:
        if not _SWITCHED.search(source.text) and not (_NAMED.search(source.text) and _OVER_LOADER.search(source.text)):
            return
        if not uses_torch(source):
            return
        reader = _Reader(source)
        for scope in reader.scopes:
            for call in _unguarded_loops(scope, reader.guarded_callees):
                yield self.finding(
                    source,
                    call.loop,
                    f"This loop runs `{call.name}` without switching autograd off, so every batch saves what a "
                    "backward would need; `eval()` does not prevent that.",
                    "Put the loop under `with torch.inference_mode():`, or under `torch.no_grad()` if what it "
                    "computes takes part in a later backward.",
                    correction=unsafe(_guarding(source, call.loop)),
                )


def _unguarded_loops(scope: _Scope, guarded_callees: set[str]) -> Iterator[_Call]:
    name = getattr(scope.node, "name", "")
    if scope.guarded or scope.frozen or name in guarded_callees or name in ("forward", "__call__"):
        return
    if scope.lightning and _HOOK.fullmatch(name):
        return
    evaluation = EVALUATION.fullmatch(name) is not None
    seen: set[ast.AST] = set()
    for call in scope.calls:
        if call.loop in seen or call.loop in scope.training_loops:
            continue
        switches = [(position, mode) for position, model, mode in scope.modes if model == call.name]
        before = [switch for switch in switches if switch[0] < call.position]
        by_name = evaluation and call.loader and _MODEL.fullmatch(call.name.rpartition(".")[2]) is not None
        if before:
            since, evaluating = before[-1]
            if not evaluating:
                continue
        elif by_name and not switches:
            since = -1
        else:
            continue
        until = next((position for position, mode in switches if position > call.position and not mode), None)
        if any(since < position and (until is None or position < until) for position in scope.gradients):
            continue
        seen.add(call.loop)
        yield call


class _Reader:
    """One pass over a file, without recursion, into its scopes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scopes: list[_Scope] = []
        self.guarded_callees: set[str] = set()
        """Names of functions that something guarded calls."""
        self.position = 0
        top = _Scope(source.tree, lightning=False, guarded=False)
        self.scopes.append(top)
        self._read(top)

    def _read(self, top: _Scope) -> None:
        pending: list[tuple[ast.AST, _Scope, tuple[_AnyLoop, ...], bool]]
        pending = [(node, top, (), False) for node in reversed(top.node.body)]
        while pending:
            node, scope, loops, guarded = pending.pop()
            self.position += 1
            inside = children(node)
            if isinstance(node, _WORDS):
                self._words(node, scope, loops)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                guarded = guarded or scope.guarded or may_be_wrapped(node)
                scope = _Scope(node, scope.lightning, guarded)
                self.scopes.append(scope)
                loops, inside = (), list(node.body)
            elif isinstance(node, ast.ClassDef):
                lightning = any("Lightning" in ast.unparse(base) for base in node.bases)
                scope = _Scope(ast.Module([], []), lightning, guarded or scope.guarded)
                loops, inside = (), list(node.body)
            elif isinstance(node, ast.With | ast.AsyncWith):
                guarded = guarded or any(switches_off(self.source, item.context_expr) for item in node.items)
            elif isinstance(node, Loop):
                loops = (*loops, node)
            elif isinstance(node, _Comprehension):
                loops = (*loops, node)
                inside = [*node.generators, *(each for each in inside if not isinstance(each, ast.comprehension))]
            elif isinstance(node, ast.Call):
                self._call(node, scope, loops, guarded)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node, scope)
            pending += [(child, scope, loops, guarded) for child in reversed(inside)]

    def _call(self, node: ast.Call, scope: _Scope, loops: tuple[_AnyLoop, ...], guarded: bool) -> None:
        function = node.func
        name = dotted_name(function)
        if guarded or scope.guarded:
            self.guarded_callees.add(name.rpartition(".")[2])
        if isinstance(function, ast.Attribute) and _switches_mode(node, function.attr):
            off = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
            scope.modes.append((self.position, dotted_name(_moved(function.value)), function.attr == "eval" or off))
        if name.rpartition(".")[2] in ("set_grad_enabled", "_set_grad_enabled") and switches_off(self.source, node):
            scope.frozen = True
        if loops and name and not guarded:
            loop = loops[-1]
            name = name.removesuffix(".forward")
            scope.calls.append(_Call(name, self.position, loop, LOADER.search(_iterated(loop)) is not None))

    def _assign(self, node: ast.Assign, scope: _Scope) -> None:
        """`model = Net().to(device).eval()` switches `model`."""
        value: ast.expr = node.value
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
            if value.func.attr == "eval" and not value.args:
                scope.modes.append((self.position, dotted_name(node.targets[0]), True))
                return
            value = value.func.value

    def _words(
        self, node: ast.Name | ast.Attribute | ast.keyword | ast.arg, scope: _Scope, loops: tuple[_AnyLoop, ...]
    ) -> None:
        word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else node.arg
        if word is None:
            return
        if word in _FROZEN:
            scope.frozen = True
        differentiates = _GRADIENT_WORD.fullmatch(word) is not None
        if differentiates:
            scope.gradients.append(self.position)
        if differentiates or "optim" in word.lower():
            scope.training_loops.update(loops[-1:])


def _guarding(source: Source, loop: ast.AST) -> tuple[Edit, ...]:
    """Edits that put the loop, or the statement a comprehension is in, under `torch.no_grad()`.

    They are no safe ones, because what the model does inside, or the caller with the results, may need gradients. A
    generator would take the guard out with it, so it has none.
    """
    guard = written(source, "torch.no_grad")
    statement = loop
    while isinstance(statement, ast.expr | ast.comprehension | ast.keyword):
        statement = source.index.parents[statement]
    whole = statement is loop or not hasattr(statement, "body")
    lazy = isinstance(loop, ast.GeneratorExp) or any(
        isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(statement)
    )
    return (
        under(source, statement, f"{guard}()")
        if guard and whole and not lazy and isinstance(statement, ast.stmt)
        else ()
    )


def _switches_mode(call: ast.Call, name: str) -> bool:
    """Whether it is `eval()`, `train()` or `train(mode)`."""
    return not call.keywords and ((name == "eval" and not call.args) or name == "train")


def _moved(node: ast.expr) -> ast.expr:
    """`model` of `model.to(device).half()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
        node = node.func.value
    return node


def _iterated(loop: _AnyLoop) -> str:
    if isinstance(loop, ast.While):
        return ""
    return ast.unparse(loop.iter if isinstance(loop, ast.For | ast.AsyncFor) else loop.generators[0].iter).lower()
