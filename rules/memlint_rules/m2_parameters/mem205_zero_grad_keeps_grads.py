import ast
import re

from memlint.lint.edits import span, unsafe, without_argument
from memlint.lint.rule import Case, Edit, Findings, Severity, SourceRule
from memlint.source.scopes import Scope, is_test, scopes, uses_torch
from memlint.source.text import Source, dotted_name

_ADDRESSES = ("CUDAGraph", "cuda.graph", "make_graphed_callables")
"""Code that needs gradients to keep their addresses."""
_KEPT = re.compile(r"\.grad(?:\s*\+=|(?:\.data)?\.(?:add_|copy_)\()")
"""Code that needs gradients to exist."""


class ZeroGradKeepsGrads(SourceRule):
    """Gradients are set to zero and kept through the next forward instead of being freed.

    Looks for `zero_grad(set_to_none=False)` and for `parameter.grad.zero_()`.

    ## Why it costs memory

    Gradients set to `None` are allocated again by the next backward. Gradients set to zero stay allocated, so the next
    forward runs with all of them in memory: as many bytes as the trained parameters.

    ## How the saving is computed

    The possible saving is the bytes of the trained parameters, if the peak comes before backward has allocated all
    gradients.

    ## Known limits

    Files that use CUDA graphs are left out, because a captured step needs gradients with fixed addresses. So are files
    that add to `parameter.grad` by hand, and definitions of optimizers and other `zero_grad` methods. Zeroing by hand
    is only detected in loops over parameters, not for a single tensor. Code that reads `parameter.grad` after
    `zero_grad()` must be ready to find `None`.

    - https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
    """

    code, name, severity = "MEM205", "zero-grad-keeps-grads", Severity.WARNING
    example = """\
import torch

def step(model, optimizer, x, y):
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
"""
    bad = (
        Case(example, line=6),
        Case("""\
import torch

def sgd(model, rate):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= rate * parameter.grad
            parameter.grad.zero_()
""").but(title="By hand", line=7),
    )
    good = (
        bad[0].but({"optimizer.zero_grad(set_to_none=False)": "optimizer.zero_grad()"}),
        Case("""\
import torch

def capture(model, optimizer, x):
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=False)
    with torch.cuda.graph(graph):
        model(x).sum().backward()
    return graph
""").but(title="A CUDA graph needs gradients that keep their addresses"),
        Case("""\
import torch

class Lion(torch.optim.Optimizer):
    def zero_grad(self, set_to_none=True):
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                else:
                    parameter.grad.zero_()
""").but(title="The method of an optimizer does what its caller asks for"),
    )

    def check(self, source: Source) -> Findings:
        if not source.mentions("zero_grad(", ".zero_(", ".fill_(") or not uses_torch(source):
            return
        if any(word in source.text for word in _ADDRESSES) or _KEPT.search(source.text):
            return
        if is_test(source):
            return
        for scope in scopes(source):
            if scope.name == "zero_grad" or _in_optimizer(scope):
                continue
            for call in scope.calls:
                if _keeps(call) or (_filled(call) is not None and _over_parameters(scope, call)):
                    yield self.finding(
                        source,
                        call,
                        f"`{ast.unparse(call)[:60]}` fills the gradients with zeros and keeps them, so the next "
                        "forward runs with as many bytes of gradients as there are bytes of trained parameters.",
                        "Call `optimizer.zero_grad()` right after `optimizer.step()`: by default it frees gradients. "
                        "By hand, assign `parameter.grad = None`.",
                        correction=unsafe(_freeing(source, call)),
                    )


def _keeps(call: ast.Call) -> bool:
    """Return True for `zero_grad(set_to_none=False)`."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad"):
        return False
    value = _set_to_none(call)
    return isinstance(value, ast.Constant) and value.value is False


def _set_to_none(call: ast.Call) -> ast.expr | None:
    values = [keyword.value for keyword in call.keywords if keyword.arg == "set_to_none"] or call.args[:1]
    return values[0] if values else None


def _freeing(source: Source, call: ast.Call) -> tuple[Edit, ...]:
    """Return edits that free the gradients instead of setting them to zero.

    The edits are not safe: code may read a gradient that is now None, and optimizers treat a missing gradient
    differently from a zero one.
    """
    start, end = span(source, call)
    none_argument = _set_to_none(call)
    if _keeps(call) and none_argument is not None:
        return without_argument(source, call, none_argument) or (Edit(*span(source, none_argument), "True"),)
    held = _filled(call)
    if held is None or not isinstance(source.index.parents[call], ast.Expr) or "#" in source.text[start:end]:
        return ()
    return (Edit(span(source, held)[1], end, " = None"),)


def _filled(call: ast.Call) -> ast.Attribute | None:
    """Return the `x.grad` that is filled with zeros."""
    if not isinstance(call.func, ast.Attribute):
        return None
    held = call.func.value
    if isinstance(held, ast.Attribute) and held.attr == "data":
        held = held.value
    filled = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    zeroes = call.func.attr == "zero_" or (call.func.attr == "fill_" and filled in ([0], [0.0]))
    return held if zeroes and isinstance(held, ast.Attribute) and held.attr == "grad" else None


def _over_parameters(scope: Scope, call: ast.Call) -> bool:
    return any(isinstance(loop, ast.For) and "param" in ast.unparse(loop.iter) for loop in scope.loops(call))


def _in_optimizer(scope: Scope) -> bool:
    return scope.owner is not None and any(
        re.search(r"Optimizer|SGD|Adam", dotted_name(base)) for base in scope.owner.bases
    )
