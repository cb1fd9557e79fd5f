"""Findings of loop rules in a traced Workload: the Buffers that each step adds, or that only the next step releases."""

import ast
from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from memlint.base.units import format_nbytes
from memlint.lint.rule import Confidence, Context, Finding, Findings, Rule, Severity, SourceRule, place_of
from memlint.memory.records import Buffer, Frame
from memlint.memory.retention import Growth, Keeper, growths, may_grow
from memlint.memory.timeline import Timeline, end_at, live
from memlint.source.calls import argument, is_literal
from memlint.source.scopes import Scope, differentiates, goes_over_batches, position, scopes, uses_torch
from memlint.source.text import Source, dotted_name, source_at
from memlint_rules.support.dead_references import described

FAR_AWAY = 100_000
"""Number of steps beyond which running out of memory is only worth a note."""

_PUTS = frozenset({"append", "appendleft", "extend", "add", "insert", "update", "setdefault"})


class GrowsBy(StrEnum):
    """The kind of object that keeps the Buffers of each step."""

    GRADIENT = "gradient"
    """Gradients that have a graph of their own."""

    SUM = "sum"
    """The graph of one variable, to which each step adds."""
    LIST = "list"
    """Tensors with a graph, in a container."""
    VALUES = "values"
    """Tensors without a graph."""


def kind_of(growth: Growth) -> GrowsBy:
    """Return the kind of the keeper; a keeper without a variable counts as a graph in a container."""
    if growth.keeper is None:
        return GrowsBy.LIST
    if not growth.keeper.has_graph:
        return GrowsBy.VALUES
    if growth.keeper.name.endswith(".grad"):
        return GrowsBy.GRADIENT
    return (
        GrowsBy.LIST
        if growth.keeper.variable.endswith("]") and not growth.keeper.variable.endswith("']")
        else GrowsBy.SUM
    )


class _GrowthRule(SourceRule):
    """A rule about loops that also reports what each step of a traced Workload adds."""

    grows_by: ClassVar[GrowsBy]
    saving = """\
In a traced workload whose own step does this it is exact: four steps run in a row, and the finding says what each adds
to the live bytes and when the GPU is full. The peak falls by what the first of two steps leaves behind. From source
text alone nothing is computed."""

    def check_steps(self, context: Context) -> Findings:
        if may_grow(context.timeline):
            for growth in growths(context.long_run):
                if kind_of(growth) is self.grows_by:
                    yield _report(self, context, growth)


def scopes_of_loops(source: Source) -> Iterator[Scope]:
    """Yield scopes that may have training or evaluation loops: functions outside modules, in a file with such loops."""
    if uses_torch(source) and (differentiates(source) or goes_over_batches(source)):
        yield from (scope for scope in scopes(source) if not scope.in_module)


def _report(rule: Rule, context: Context, growth: Growth) -> Finding:
    frame = place(growth.keeper, growth.buffers)
    steps = steps_until_full(context, growth)
    keeper = f"`{growth.keeper.name}`" if growth.keeper else "Something that outlives the step"
    what = "the autograd graph" if growth.keeper is not None and growth.keeper.has_graph else "the tensors"
    full = f": {context.device.title} is full after {steps:,} steps" if steps is not None else ""
    return Finding(
        code=rule.code,
        **place_of(frame, context),
        message=f"{keeper} keeps {what} of every step, which adds {format_nbytes(growth.nbytes)} each time"
        f"{_biggest(growth.buffers)}{full}.",
        severity=Severity.NOTE if steps is not None and steps > FAR_AWAY else Severity.ERROR,
        confidence=Confidence.EXACT_LIFETIME,
        nbytes=growth.nbytes,
        peak_change=_peak_change(context.timeline, growth),
        fix=_FIXES[kind_of(growth)],
    )


_DETACH = "Keep `.item()` of a loss, and `.detach().cpu()` of an output."
_FIXES = {
    GrowsBy.GRADIENT: "Use `torch.autograd.grad(loss, parameters, create_graph=True)`, or reset gradients each step.",
    GrowsBy.SUM: _DETACH,
    GrowsBy.LIST: _DETACH,
    GrowsBy.VALUES: "Move the kept tensors to the host with `.cpu()`, or keep only the part that is needed.",
}


def steps_until_full(context: Context, growth: Growth) -> int | None:
    """Return the number of steps after which the GPU is full; None if its size is unknown."""
    if not context.device.is_cuda:
        return None
    room = context.device.total_nbytes - context.estimate.device.estimate
    blocks = sum(-(-buffer.nbytes // 512) * 512 for buffer in growth.buffers)  # rounded as by the caching allocator
    return max(room, 0) // blocks + context.timeline.num_steps


def _peak_change(timeline: Timeline, growth: Growth) -> int:
    """Return the change of the traced steps' peak in bytes if the first step releases what it adds."""
    kinds = {(buffer.op, buffer.frame, buffer.shape, buffer.dtype) for buffer in growth.buffers}
    first_end = timeline.step_nodes[1] - 1
    cuts = {
        buffer.id: first_end
        for buffer in timeline.buffers
        if buffer.step == 0 and buffer.died is None and (buffer.op, buffer.frame, buffer.shape, buffer.dtype) in kinds
    }
    return max(live(end_at(timeline, cuts))) - max(live(timeline))


def _biggest(buffers: tuple[Buffer, ...]) -> str:
    rest = f" and {len(buffers) - 1} more" if len(buffers) > 1 else ""
    return f" ({described(buffers[0])}{rest})"


def place(keeper: Keeper | None, buffers: tuple[Buffer, ...]) -> Frame | None:
    """Return the line that puts something into the variable; else the line that allocated the largest Buffer."""
    made = next((buffer.frame for buffer in buffers if buffer.frame is not None), None)
    if keeper is None:
        return made
    paths = dict.fromkeys([keeper.frame.path, *(buffer.frame.path for buffer in buffers if buffer.frame)])
    for path in paths:
        if (source := source_at(path)) is None:
            continue
        name = keeper.name.rpartition(".")[2]
        statements = source.index.of(ast.AugAssign, ast.Assign)
        puts = [node for node in (*source.index.of(ast.Call), *statements) if _puts_into(source, node, name)]
        if puts:
            first = min(puts, key=position)
            return Frame(path, first.lineno, _function(source, first))
    return made


def _puts_into(source: Source, node: ast.Call | ast.AugAssign | ast.Assign, name: str) -> bool:
    """Return True if the variable with this last name gets another value or, for `grad`, a graph."""
    if isinstance(node, ast.Call):
        if name == "grad":
            return is_literal(argument(node, "create_graph"), True)
        return isinstance(node.func, ast.Attribute) and node.func.attr in _PUTS and _last_name(node.func.value) == name
    if _function(source, node) in ("", "__init__"):
        return False
    if isinstance(node, ast.AugAssign):
        return _last_name(node.target) == name
    return any(
        _last_name(target) == name
        and (isinstance(target, ast.Subscript | ast.Attribute) or _mentions(node.value, name))
        for target in node.targets
    )


def _function(source: Source, node: ast.AST) -> str:
    """Return the name of the innermost function around `node`; empty outside functions."""
    while (node := source.index.parents.get(node, source.tree)) is not source.tree:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return node.name
    return ""


def _last_name(node: ast.expr) -> str:
    """Return `losses` for `self.losses[0]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return dotted_name(node).rpartition(".")[2]


def _mentions(node: ast.expr, name: str) -> bool:
    return any(_last_name(part) == name for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute))
