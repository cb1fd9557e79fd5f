import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import get_args

from memlint.lint.edits import under, unsafe, written
from memlint.lint.rule import Case, Confidence, Context, Edit, Finding, Findings, Severity, SourceRule, is_notable
from memlint.source.scopes import (
    Loop,
    Scope,
    guarding_blocks,
    holders,
    may_be_wrapped,
    over_batches,
    scopes,
    switches_off,
    uses_torch,
)
from memlint.source.text import Source, dotted_name, source_at
from memlint.source.trees import walk
from memlint.whatif.changes import NoGradInEvaluation

_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
_AnyLoop = Loop | _Comprehension

_MODEL = re.compile(r"(.*[._])?(model|net|network)")
_HOOK = re.compile(r"(on_)?(training|train|validation|test|predict)_(step|step_end|epoch|epoch_end|batch_(start|end))")
_OVER_LOADER = re.compile(r"\bfor\b[^:]*\bin\b[^:]*(loader|dataset|batches|dl|data_iter)", re.IGNORECASE)
_NAMED = re.compile(r"def _*(?i:eval|val|test|predict|infer)")
_SWITCHED = re.compile(r"\.(?:eval\(\s*\)|train\(\s*False)")
_MOVES = frozenset({"to", "cuda", "cpu", "half", "float", "bfloat16", "double", "eval"})
_GRADIENT_WORD = re.compile(r"backward|(zero_|retain_|enable_|value_and_)?grad|jacobian|hessian|vjp|jvp")
_FROZEN = frozenset({"requires_grad", "requires_grad_", "volatile"})
_DEFINITIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef})
_WORDS = (ast.Name, ast.Attribute, ast.keyword, ast.arg)


@dataclass(slots=True)
class _Call:
    """A call of something that may be a model: its dotted name and the innermost loop around it."""

    name: str
    position: int
    loop: _AnyLoop


@dataclass(slots=True)
class _Scope:
    """The relevant content of one function body, or of the file outside functions; positions index its nodes."""

    modes: list[tuple[int, str, bool]] = field(default_factory=list)
    """Position, model, and True if it was switched to evaluation."""
    calls: list[_Call] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    """Positions of words that belong to differentiation."""
    training_loops: set[ast.AST | None] = field(default_factory=set)
    frozen: bool = False
    """True if it uses `requires_grad` or switches gradients off by a plain call."""


class EvalWithoutNoGrad(SourceRule):
    """An evaluation loop runs the model while autograd saves everything for a backward that never comes.

    Looks for loops that call a model after `model.eval()`, or that iterate over a loader in a function named like
    `evaluate`, `validate`, `test` or `predict`, outside `torch.no_grad()`, `torch.inference_mode()` and
    `torch.set_grad_enabled(False)`, and that differentiate nothing.

    ## Why it costs memory

    `model.eval()` changes how dropout and batch normalisation behave; it does not switch autograd off. Every operation
    still saves tensors for its backward until the output is released, and a kept output keeps the whole graph of its
    batch.

    ## How the saving is computed

    If a script runs and reaches the loop, the saving is exact: the script is run again with `torch.no_grad` around its
    models in evaluation mode. For a traced workload, the difference between mode `train` without an optimizer and mode
    `inference` approximates it.

    ## Known limits

    The model is recognised by its `eval()` call or by its name. Functions called only under `no_grad` in another file
    are still reported; decorate them, or suppress the finding. Lightning hooks and decorated functions are left out, as
    are blocks under a context manager kept in a variable, because its effect is unknown. A single call outside a loop
    is not reported.

    - https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
    - https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html
    """

    code, name, severity = "MEM404", "eval-without-no-grad", Severity.WARNING
    text_decides = True
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
        if not _is_worth_reading(source):
            return
        for call in _loops(source):
            yield self.finding(
                source,
                call.loop,
                f"{_message(call)}; `eval()` does not prevent that.",
                _FIX,
                correction=unsafe(_guarding(source, call.loop)),
            )

    def check_steps(self, context: Context) -> Findings:
        """Report the saving without autograd in the loops that a script has run, if the peak is there."""
        ran = {frame.of_project for node in context.trace.nodes if (frame := node.frame) is not None}
        for path in sorted({line.path for line in ran}) if context.workload.origin == "script" else ():
            source = source_at(path)
            if source is None or not _is_worth_reading(source):
                continue
            for call in _loops(source):
                last = call.loop.end_lineno or call.loop.lineno
                if not any(line.path == path and call.loop.lineno <= line.line <= last for line in ran):
                    continue
                answer = context.what_if(NoGradInEvaluation())
                if answer is None or not is_notable(answer.peak_change, context.estimate.requested.estimate):
                    return
                yield Finding(
                    code=self.code,
                    path=path,
                    line=call.loop.lineno,
                    column=call.loop.col_offset + 1,
                    message=f"{_message(call)}.",
                    severity=self.severity,
                    confidence=Confidence.EXACT_RETRACE,
                    nbytes=-answer.peak_change,
                    peak_change=answer.peak_change,
                    fix=_FIX,
                    correction=unsafe(_guarding(source, call.loop)),
                )


_FIX = (
    "Put the loop under `with torch.inference_mode():`, or under `torch.no_grad()` if what it computes takes part in a "
    "later backward."
)


def _message(call: _Call) -> str:
    return (
        f"This loop runs `{call.name}` without switching autograd off, so every batch saves what a backward would need"
    )


def _is_worth_reading(source: Source) -> bool:
    text = source.text
    return (bool(_SWITCHED.search(text)) or bool(_NAMED.search(text) and _OVER_LOADER.search(text))) and uses_torch(
        source
    )


def _loops(source: Source) -> Iterator[_Call]:
    """Yield the first call of a model in each loop of the file that evaluates with autograd."""
    guarded = _guarded(source)
    names = {dotted_name(node.func).rpartition(".")[2] for node in guarded if isinstance(node, ast.Call)}
    looping = holders(source, *get_args(_AnyLoop))
    for scope in scopes(source):
        yield from _unguarded_loops(scope, guarded) if scope.node in looping and scope.name not in names else ()


def _guarded(source: Source) -> set[ast.AST]:
    """Return everything in functions and blocks that may run with autograd switched off."""
    functions = filter(may_be_wrapped, source.index.of(ast.FunctionDef, ast.AsyncFunctionDef))
    return {inner for node in (*functions, *guarding_blocks(source)) for inner in walk(node)}


def _unguarded_loops(scope: Scope, guarded: set[ast.AST]) -> Iterator[_Call]:
    if scope.node in guarded or scope.name in ("forward", "__call__"):
        return
    bases = scope.owner.bases if scope.owner is not None else ()
    if any("Lightning" in ast.unparse(base) for base in bases) and _HOOK.fullmatch(scope.name):
        return
    body = _read(scope, guarded)
    if body.frozen:
        return
    seen: set[ast.AST] = set()
    for call in body.calls:
        if call.loop in seen or call.loop in body.training_loops:
            continue
        switches = [(position, mode) for position, model, mode in body.modes if model == call.name]
        before = [switch for switch in switches if switch[0] < call.position]
        if before:
            since, evaluating = before[-1]
            if not evaluating:
                continue
        elif scope.evaluates and not switches and _MODEL.fullmatch(call.name) and _is_over(call.loop):
            since = -1
        else:
            continue
        until = next((position for position, mode in switches if position > call.position and not mode), None)
        if any(since < position and (until is None or position < until) for position in body.gradients):
            continue
        seen.add(call.loop)
        yield call


def _read(scope: Scope, guarded: set[ast.AST]) -> _Scope:
    body = _Scope()
    for position, node in enumerate(scope.source.index.in_text_order(scope.node.body, _DEFINITIONS)):
        if isinstance(node, _WORDS):
            word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else node.arg
            body.frozen |= word in _FROZEN
            differentiates, trains = _kinds(word or "")
            if differentiates:
                body.gradients.append(position)
            if trains:
                body.training_loops.add(_loop_around(scope, node))
        elif isinstance(node, ast.Call):
            name = dotted_name(node.func)
            if isinstance(node.func, ast.Attribute) and _switches_mode(node, node.func.attr):
                off = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
                body.modes.append((position, dotted_name(_moved(node.func.value)), node.func.attr == "eval" or off))
            if name.endswith("set_grad_enabled") and switches_off(scope.source, node):
                body.frozen = True
            if name and node not in guarded and (loop := _loop_around(scope, node)) is not None:
                body.calls.append(_Call(name.removesuffix(".forward"), position, loop))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_switched(node.value):
            body.modes.append((position, dotted_name(node.targets[0]), True))
    return body


@lru_cache(maxsize=4096)
def _kinds(word: str) -> tuple[bool, bool]:
    """Return if it differentiates, and if a loop with it trains. A file says few words, and each of them often."""
    differentiates = _GRADIENT_WORD.fullmatch(word) is not None
    return differentiates, differentiates or "optim" in word.lower()


def _is_switched(value: ast.expr) -> bool:
    """Return True for a model that was switched to evaluation: `Net().to(device).eval()`."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        if value.func.attr == "eval" and not value.args:
            return True
        value = value.func.value
    return False


def _loop_around(scope: Scope, node: ast.AST) -> _AnyLoop | None:
    """Return the innermost loop or comprehension around `node`."""
    return next((parent for parent in scope.around(node) if isinstance(parent, _AnyLoop)), None)


def _guarding(source: Source, loop: ast.AST) -> tuple[Edit, ...]:
    """Return edits that put the loop, or the statement around a comprehension, under `torch.no_grad()`.

    The edits are not safe, because the model inside, or the caller of the results, may need gradients. A generator gets
    no edit: its guard would also apply to the caller's code.
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
    """Return True for `eval()`, `train()` or `train(mode)`."""
    return not call.keywords and ((name == "eval" and not call.args) or name == "train")


def _moved(node: ast.expr) -> ast.expr:
    """Return `model` for `model.to(device).half()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
        node = node.func.value
    return node


def _is_over(loop: _AnyLoop) -> bool:
    """Return True if the loop iterates over a loader."""
    return over_batches(loop if isinstance(loop, Loop) else loop.generators[0])
