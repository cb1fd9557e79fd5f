import ast
from typing import get_args

from memlint.lint.edits import safe, unsafe, with_method
from memlint.lint.rule import Case, Findings, Severity
from memlint.source.escape import leaves
from memlint.source.scopes import Loop, Scope, calls_backward, holders, over_batches
from memlint.source.taint import Kind, Values, values_of
from memlint.source.text import Source, dotted_name
from memlint_rules.support.growth import GrowsBy, _GrowthRule, scopes_of_loops

_CUTS = ("item", "float", "detach", "tolist")


class HistoryAccumulation(_GrowthRule):
    """A running sum of losses keeps the autograd graph of every batch.

    Looks for `total += loss`, `total = total + loss` and moving averages, `total = 0.9 * total + 0.1 * loss`, in loops
    over batches, if `loss` comes from a criterion or a model and is not detached, and nothing differentiates `total`.
    If the loop calls `backward` on the loss itself, the finding is a note.

    ## Why it costs memory

    A sum of tensors that require gradients requires one too, so it refers to the graphs of all of them. Without a
    `backward` every graph, with all its saved tensors, stays until the sum is released: memory grows by the activations
    of one batch in each iteration. After a `backward` the saved tensors are freed; a few bytes on the GPU and a growing
    chain of graph nodes on the host remain.

    ## How the saving is computed

    Without a `backward`, the possible saving is the activations of a batch times the number of batches.

    ## Known limits

    Losses are recognised by the function that returns them (`torch.nn.functional`, a class of `torch.nn` whose name
    ends in `Loss`, a name like `criterion` or `loss_fn`), by `output.loss`, or by the `backward` that is called on
    them. Sums that a function returns are left to its caller, unless the function is named like an evaluation.

    - https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory
    """

    code, name, severity, grows_by = "MEM401", "history-accumulation", Severity.WARNING, GrowsBy.SUM
    example = """\
import torch.nn.functional as F

def validate(model, loader):
    total = 0
    for images, labels in loader:
        total += F.cross_entropy(model(images), labels)
    return total / len(loader)
"""
    bad = (
        Case(example, line=6),
        Case("""\
import torch

def fit(model, loader, optimizer):
    criterion = torch.nn.MSELoss()
    running_loss = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        running_loss += loss
    print(running_loss / len(loader))
""").but(title="After a `backward`, where only the graph's nodes stay", line=11),
        Case("""\
import torch.nn.functional as F

def validate(model, loader):
    total = 0
    for images, labels in loader:
        total = total * 0.9 + 0.1 * F.cross_entropy(model(images), labels)
    print(total)
""").but(title="A moving average", line=6),
    )
    good = (
        bad[0].but({"F.cross_entropy(model(images), labels)": "F.cross_entropy(model(images), labels).detach()"}),
        Case("""\
import torch

def fit(model, loader, optimizer):
    criterion = torch.nn.MSELoss()
    for views in loader:
        total = 0
        for x, y in views:
            total += criterion(model(x), y)
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
""").but(title="The sum is what is differentiated"),
        bad[2].but(
            {
                "total * 0.9 + 0.1 * F.cross_entropy(model(images), labels": (
                    "0.9 * total + 0.1 * F.cross_entropy(model(images), labels).detach("
                )
            },
            title="A moving average of what was detached",
        ),
        Case("""\
import torch

def validate(model, loader, criterion):
    total = 0
    with torch.no_grad():
        for x, y in loader:
            total += criterion(model(x), y)
    return total
""").but(title="No graph is recorded"),
    )

    def check(self, source: Source) -> Findings:
        if source.mentions("loss", "criterion", "cross_entropy"):
            looping = holders(source, *get_args(Loop))
            for scope in scopes_of_loops(source):
                yield from self._check_scope(scope) if scope.node in looping else ()

    def _check_scope(self, scope: Scope) -> Findings:
        sums = [
            (node, *added)
            for node in scope.nodes
            if isinstance(node, ast.stmt) and (added := _target_and_term(node)) and scope.loops(node)
        ]
        if not sums:
            return
        values = values_of(scope)
        for node, target, term in sums:
            name = dotted_name(target.value if isinstance(target, ast.Subscript) else target)
            value = values.of(term)
            if value is None or value.kind is not Kind.LOSS or not value.graph or not name:
                continue
            loop = scope.loops(node)[0]
            if values.starts_in(name, loop) or _differentiated(scope, values, name):
                continue
            if calls_backward(loop):
                message = (
                    f"`{name}` keeps the chain of graph nodes of every loss added to it, on the host; `backward` has "
                    "already freed the large tensors."
                )
                severity = Severity.NOTE
            elif over_batches(loop) and (scope.evaluates or not _returned(scope, name)):
                message = (
                    f"`{name}` keeps the autograd graph of every loss added to it, so each iteration keeps "
                    "what a backward of its batch would need."
                )
                severity = self.severity
            else:
                continue
            fix = (
                f"Add `{ast.unparse(term)[:60]}` with `.detach()`, or with `.item()` if a number on the host is wanted."
            )
            known = safe if value.tensor and not leaves(scope, name) else unsafe
            yield self.finding(
                scope.source, node, message, fix, severity, known(with_method(scope.source, term, "detach()"))
            )


def _target_and_term(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return target and term of `a += b`, `a = a + b`, `a = b + a` also with `a` multiplied or divided."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return node.target, node.value
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add)):
        return None
    target, left, right = node.targets[0], node.value.left, node.value.right
    if _scales(left, target):
        return target, right
    return (target, left) if _scales(right, target) else None


def _scales(node: ast.expr, target: ast.expr) -> bool:
    """Return True if it is the target, multiplied or divided by something or not."""
    factors = [node]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factors = [node.left, node.right]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        factors = [node.left]
    return any(ast.unparse(factor) == ast.unparse(target) for factor in factors)


def _differentiated(scope: Scope, values: Values, name: str) -> bool:
    """Return True if the sum, or something computed from it, is differentiated."""
    derived = {name}
    for node in scope.nodes:
        if isinstance(node, ast.Assign) and _mentions(node.value, derived):
            derived |= {dotted_name(target) for target in node.targets}
    return bool((derived - {""}) & values.differentiated)


def _returned(scope: Scope, name: str) -> bool:
    return any(
        isinstance(node, ast.Return | ast.Yield) and node.value is not None and _mentions(node.value, {name})
        for node in scope.nodes
    )


def _mentions(expression: ast.expr, names: set[str]) -> bool:
    """Return True if one of `names` is read, and not through a call that cuts the graph."""
    nodes = list(ast.walk(expression))
    cut = any(isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_CUTS) for node in nodes)
    return not cut and any(dotted_name(node) in names for node in nodes)
