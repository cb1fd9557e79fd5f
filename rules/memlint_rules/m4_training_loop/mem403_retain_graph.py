import ast
import re
from collections.abc import Iterator

from memlint.lint.edits import unsafe, without_argument
from memlint.lint.rule import Case, Confidence, Context, Edit, Finding, Findings, Severity, is_notable, place_of
from memlint.memory.records import Frame, Trace
from memlint.source.calls import argument, called, is_literal
from memlint.source.scopes import Loop, Scope, calls, over_batches, position, under_condition, uses_torch
from memlint.source.taint import values_of
from memlint.source.text import Source, dotted_name, source_at
from memlint.whatif.changes import ResetGradientsWithGraph
from memlint_rules.support.growth import GrowsBy, _GrowthRule

_WORDS = frozenset({"retain_graph", "create_graph"})
_DIFFERENTIATES = frozenset(
    {"backward", "manual_backward", "grad", "vjp", "jvp", "jacobian", "hessian", "hvp", "vhp", "gradgradcheck"}
)
_RESETS = re.compile(r"zero_grad\((?!.*False)|\.grad *= *None")


class RetainGraph(_GrowthRule):
    """`backward` keeps its graph although nothing uses it again.

    Looks for three things: `backward(retain_graph=True)` in a loop over batches that differentiates nothing afterwards;
    two consecutive backwards of which the first keeps the graph for the second; and `backward(create_graph=True)` if
    the gradients are never reset.

    ## Why it costs memory

    A backward frees saved tensors as it proceeds. With `retain_graph=True` everything stays until the loss is bound to
    another value, which is after the next forward: two graphs are alive at once. With `create_graph=True` gradients
    refer to their graph, the graph to the parameters, and the parameters to the gradients: such a cycle is not freed
    until the gradients are reset.

    ## How the saving is computed

    The possible saving is the activations of one forward. If gradients keep a graph, the program is run again with
    gradients reset before the next forward.

    ## Known limits

    Uses of a graph in another function are not seen, so only losses computed in the same iteration of a loop over a
    data loader are reported. Loops that carry a state from one iteration to the next are not: detach the state there.

    - https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html
    """

    code, name, severity, grows_by = "MEM403", "retain-graph", Severity.WARNING, GrowsBy.GRADIENT
    example = """\
import torch

def fit(model, loader, optimizer, criterion):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward(retain_graph=True)
        optimizer.step()
"""
    bad = (
        Case(example, line=7),
        Case("""\
import torch

def step(model, x, y, optimizer, criterion):
    features, output = model(x)
    features.abs().mean().backward(retain_graph=True)
    criterion(output, y).backward()
    optimizer.step()
    optimizer.zero_grad()
""").but(title="Two losses of one graph", line=5),
        Case("""\
import torch

def penalty(model, x):
    model(x).sum().backward(create_graph=True)
    return sum(p.grad.square().sum() for p in model.parameters())
""").but(title="Gradients that keep their own graph", line=4),
    )
    good = (
        bad[0].but({"loss.backward(retain_graph=True)": "loss.backward()"}),
        bad[1].but(
            {
                (
                    "features.abs().mean().backward(retain_graph=True)\n    criterion(output, y).backward()"
                ): "(features.abs().mean() + criterion(output, y)).backward()"
            },
            title="Two losses of one graph",
        ),
        Case("""\
import torch

def fit(generator, critic, loader, optimizer):
    for noise in loader:
        fake = generator(noise)
        critic(fake).mean().backward(retain_graph=True)
        optimizer.step()
        (-critic(fake)).mean().backward()
""").but(title="The graph is differentiated once more, after a step"),
        Case("""\
import torch

def penalty(model, x):
    gradients = torch.autograd.grad(model(x).sum(), model.parameters(), create_graph=True)
    return sum(gradient.square().sum() for gradient in gradients)
""").but(title="Gradients with a graph, without the cycle"),
    )

    def check_steps(self, context: Context) -> Findings:
        """Yield findings about what each step adds, or else about graphs at the peak whose gradients are not reset."""
        growing = list(super().check_steps(context))
        yield from growing
        call, peak = _creates_graph(context.trace), context.estimate.requested.estimate
        answer = context.what_if(ResetGradientsWithGraph()) if call is not None and not growing else None
        if answer is not None and is_notable(answer.peak_change, peak):
            yield Finding(
                code=self.code,
                **place_of(call, context),
                message="Gradients made with `create_graph=True` keep their graph, and are still alive when the next "
                "forward begins.",
                severity=self.severity,
                confidence=Confidence.EXACT_RETRACE,
                nbytes=-answer.peak_change,
                peak_change=answer.peak_change,
                fix=_CREATED,
            )

    def check(self, source: Source) -> Findings:
        if _WORDS.isdisjoint(source.words) or not uses_torch(source):
            return
        for scope, call in calls(source):
            if called(call) not in ("backward", "manual_backward"):
                continue
            remark = _needless_graph(scope, call)
            if remark is not None:
                yield self.finding(
                    source, call, *remark, correction=unsafe(_without_flag(source, call)) if remark is _UNUSED else None
                )


_CREATED = (
    "Take the gradients from `torch.autograd.grad(loss, parameters, create_graph=True)`, or set "
    "`parameter.grad = None` when they are no longer needed."
)
_UNUSED = (
    (
        "`retain_graph=True` keeps everything the forward saved until the next forward has run, and nothing in this "
        "loop differentiates it again."
    ),
    "Leave `retain_graph` out.",
)


def _creates_graph(trace: Trace) -> Frame | None:
    """Return the first line of the project that calls a backward with `create_graph=True`."""
    paths = dict.fromkeys(node.frame.of_project.path for node in trace.nodes if node.frame is not None)
    for source in filter(None, map(source_at, paths)):
        if "create_graph" in source.words:
            for call in source.index.of(ast.Call):
                if called(call) == "backward" and is_literal(argument(call, "create_graph"), True):
                    return Frame(source.path, call.lineno, "")
    return None


def _without_flag(source: Source, call: ast.Call) -> tuple[Edit, ...]:
    flag = argument(call, "retain_graph")
    return without_argument(source, call, flag) if flag is not None else ()


def _needless_graph(scope: Scope, call: ast.Call) -> tuple[str, str] | None:
    """Return message and fix for a backward that keeps its graph without need."""
    if is_literal(argument(call, "create_graph"), True):
        if scope.name.startswith("test") or _RESETS.search(ast.unparse(scope.node)):
            return None
        return (
            (
                "`create_graph=True` makes gradients and parameters refer to each other, so the graph stays until the "
                "gradients are reset, which this function does not do."
            ),
            _CREATED,
        )
    if not is_literal(argument(call, "retain_graph"), True):
        return None
    following = _next_backward(scope, call)
    if following is not None:
        first, second = _differentiated(call), _differentiated(following)
        return (
            (
                f"The graph is kept through this backward for that of `{second}` right after it, so nothing is freed "
                "until the second, which traverses the graph again."
            ),
            f"Add the losses and call `backward` once: `({first} + {second}).backward()`.",
        )
    if _unused_afterwards(scope, call):
        return _UNUSED
    return None


def _next_backward(scope: Scope, call: ast.Call) -> ast.Call | None:
    """Return the backward in the next statement, if both are called directly on losses."""
    statement = scope.parents[call]
    block = next((b for b in _blocks(scope.parents[statement]) if statement in b), None)
    if block is None or not isinstance(statement, ast.Expr):
        return None
    following = block[block.index(statement) + 1 :][:1]
    if not (following and isinstance(following[0], ast.Expr) and called(following[0].value) == "backward"):
        return None
    other = following[0].value
    assert isinstance(other, ast.Call)
    plain = not call.args and not other.args and not argument(other, "inputs") and not argument(call, "inputs")
    scalars = _differentiated(call) and _differentiated(other)
    return other if plain and scalars and not argument(other, "gradient") and not argument(call, "gradient") else None


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _differentiated(call: ast.Call) -> str:
    """Return the object that `backward` is called on, as written."""
    return ast.unparse(call.func.value)[:40] if isinstance(call.func, ast.Attribute) else ""


def _unused_afterwards(scope: Scope, call: ast.Call) -> bool:
    loops = scope.loops(call)
    if not loops or not over_batches(loops[0]) or under_condition(scope, call):
        return False
    later = (other for other in scope.calls if called(other) in _DIFFERENTIATES and position(other) > position(call))
    if any(later) or _carries_state(loops[0]):
        return False
    loss = call.args[0] if called(call) == "manual_backward" or call.args else getattr(call.func, "value", None)
    names = {dotted_name(part) for part in ast.walk(loss)} - {""} if loss is not None else set()
    values = values_of(scope)
    return any(values.starts_in(name, loops[0]) for name in names) or isinstance(loss, ast.Call)


def _carries_state(loop: Loop) -> bool:
    """Return True if a name gets the result of a call on its old value, as the state of a recurrent network does."""
    for node in ast.walk(loop):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        targets = {dotted_name(part) for target in node.targets for part in ast.walk(target)} - {""}
        passed = [*node.value.args, *(keyword.value for keyword in node.value.keywords)]
        if targets & {dotted_name(part) for value in passed for part in ast.walk(value)}:
            return True
    return False
