import ast
from collections.abc import Iterator

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import called
from memlint.source.scopes import Loop, Scope, is_test, scopes, uses_torch
from memlint.source.taint import values_of
from memlint.source.text import Source, dotted_name, named

_CONCATENATIONS = frozenset(
    f"torch.{name}" for name in ("cat", "concat", "concatenate", "hstack", "vstack", "row_stack", "column_stack")
)
_WORDS = frozenset(name.removeprefix("torch.") for name in _CONCATENATIONS)
_ASKS = frozenset({"shape", "size", "numel", "dim", "ndim", "device", "dtype"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FEW = 8


class CatInLoop(SourceRule):
    """A tensor grows by `torch.cat` in each iteration of a loop, which copies all of it.

    Looks for `x = torch.cat([x, new])` in a loop that does nothing else with `x`.

    ## Why it costs memory

    Each iteration copies everything gathered so far, so the old and the new tensor are alive together, and each has a
    size that is new to the allocator: blocks of the former sizes stay in its cache. Concatenating a list once at the
    end avoids the intermediate copies, though the parts and the whole are alive together once; a tensor that is
    allocated first and then filled takes only its own bytes.

    ## How the saving is computed

    In the last iteration the loop holds about twice the bytes of the result.

    ## Known limits

    Loops with other uses of `x` are left out, such as the layers of a DenseNet or the tokens of a text generator, as
    are loops over a few literal items.

    - https://docs.pytorch.org/docs/stable/generated/torch.cat.html
    """

    code, name, severity = "MEM410", "cat-in-loop", Severity.INFO
    example = """\
import torch

@torch.inference_mode()
def features(model, loader):
    gathered = torch.empty(0, 512, device="cuda")
    for x in loader:
        gathered = torch.cat([gathered, model(x)])
    return gathered
"""
    bad = (Case(example, line=7),)
    good = (
        Case("""\
import torch

@torch.inference_mode()
def features(model, loader):
    gathered = torch.empty(len(loader.dataset), 512, device="cuda")
    start = 0
    for x in loader:
        gathered[start : start + len(x)] = model(x)
        start += len(x)
    return gathered
"""),
        Case("""\
import torch

def forward(layers, x):
    for layer in layers:
        x = torch.cat([x, layer(x)], 1)
    return x
""").but(title="Each layer reads what was gathered"),
    )

    def check(self, source: Source) -> Findings:
        if _WORDS.isdisjoint(source.words) or not uses_torch(source) or is_test(source):
            return
        growing = {node: name for node in _in_loops(source) if (name := _grown(source, node))}
        for scope in scopes(source) if growing else ():
            grown = [(node, growing[node]) for node in scope.nodes if node in growing and scope.loops(node)]
            values = values_of(scope) if grown else None
            for node, name in grown:
                loop = scope.loops(node)[0]
                if (
                    values is None
                    or values.starts_in(name, loop)
                    or _is_short(loop)
                    or _made_by(loop, name)
                    or _read_otherwise(scope, name, loop)
                ):
                    continue
                assert isinstance(node, ast.Assign)
                yield self.finding(
                    source,
                    node,
                    f"Each iteration copies all of `{name}`, and the old and the new tensor are alive together.",
                    "Allocate the whole tensor before the loop and fill it, which takes its bytes once. A list and one "
                    "`cat` at the end saves the copies in between, not the peak.",
                )


def _in_loops(source: Source) -> Iterator[ast.Assign]:
    """Yield the assignments within loops."""
    loops = [node for node in source.statements if isinstance(node, _LOOPS)]
    lines = {line for loop in loops for line in range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)}
    for node in source.statements if loops else ():
        if isinstance(node, ast.Assign) and node.lineno in lines:
            yield node


def _grown(source: Source, node: ast.AST) -> str:
    """Return the name that `node` extends; empty if it extends none."""
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call)):
        return ""
    call = node.value
    parts = call.args[0].elts if call.args and isinstance(call.args[0], ast.Tuple | ast.List) else []
    if len(parts) < 2:
        return ""
    name = dotted_name(node.targets[0])
    grown = name and any(dotted_name(part) == name for part in parts)
    return name if grown and source.qualified_name(call.func) in _CONCATENATIONS else ""


def _made_by(loop: Loop, name: str) -> bool:
    """Return True if `name` is an attribute of the loop's items, so that each iteration is about another one."""
    targets = ast.walk(loop.target) if isinstance(loop, ast.For | ast.AsyncFor) else ()
    return any(isinstance(node, ast.Name) and node.id == name.partition(".")[0] for node in targets)


def _is_short(loop: Loop) -> bool:
    if not isinstance(loop, ast.For):
        return False
    if isinstance(loop.iter, ast.Tuple | ast.List):
        return True
    bounds = loop.iter.args if isinstance(loop.iter, ast.Call) and called(loop.iter) == "range" else []
    bound = bounds[0].value if len(bounds) == 1 and isinstance(bounds[0], ast.Constant) else None
    return isinstance(bound, int) and bound <= _FEW


def _read_otherwise(scope: Scope, name: str, loop: Loop) -> bool:
    """Return True if the loop uses the gathered tensor for more than extending it, or asking for its size."""
    for node in named(ast.walk(loop), name):
        if not isinstance(node.ctx, ast.Load):
            continue
        parent = scope.parents[node]
        asks = isinstance(parent, ast.Attribute) and parent.attr in _ASKS
        tests = isinstance(parent, ast.Compare) or called(parent) == "len"
        part = isinstance(parent, ast.Tuple | ast.List) and called(scope.parents[parent]) != ""
        adds = part and isinstance(scope.parents[scope.parents[parent]], ast.Assign)
        if not (asks or tests or adds):
            return True
    return False
