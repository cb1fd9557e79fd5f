import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, called, is_literal, unpacks
from memlint.source.scopes import Scope, calls, calls_backward, over_batches, scopes, under_condition, uses_torch
from memlint.source.text import Source, dotted_name

_SET_ANOMALY = re.compile(r"torch\.autograd\.(anomaly_mode\.)?set_detect_anomaly")
_ANOMALY = re.compile(r"torch\.autograd\.(anomaly_mode\.)?detect_anomaly")
_PROFILE = re.compile(r"torch\.(autograd\.)?profiler\.profile")
_RECORD = re.compile(r"torch\.(cuda\.)?memory\._record_memory_history|torch\.cuda\.memory\._record_memory_history")
_STOPS = re.compile(r"_record_memory_history\(\s*(enabled\s*=\s*)?(None|False)")
_EMPTIES = re.compile(r"\.clear\(\)|\.remove\(\)|\.pop\(")
_CUTS = re.compile(r"\.(detach|cpu|item|numpy|tolist|mean|std|sum|norm|shape|size)\b|no_grad|inference_mode")


class DebugLeftOn(SourceRule):
    """Anomaly detection, a profiler, a memory history or a collecting hook is on for the whole run.

    Looks for `set_detect_anomaly(True)` and `detect_anomaly()` that no condition turns on; for a profiler without a
    `schedule` around a loop that trains; for `_record_memory_history()` without `max_entries` that nothing stops; and
    for forward hooks that append a module's output to a list that is never emptied.

    ## Why it costs memory

    Anomaly detection keeps a Python traceback for every node of the graph, and checks each gradient with a temporary
    mask of one byte per element. A profiler without a schedule, and a memory history without a limit, keep a record of
    each operation on the host until they stop. A hook that collects outputs keeps them, with their graph, on the GPU:
    memory grows with each forward.

    ## Known limits

    The value of a variable that switches something on is not known, so only constants are checked. Hooks are followed
    to lambdas and to functions of the same file. Tests are left out.

    - https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection
    - https://docs.pytorch.org/docs/stable/profiler.html
    - https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
    """

    code, name, severity = "MEM411", "debug-left-on", Severity.INFO
    example = """\
import torch

torch.autograd.set_detect_anomaly(True)

def fit(model, loader, optimizer):
    for x in loader:
        model(x).mean().backward()
        optimizer.step()
"""
    bad = (
        Case(example, line=3),
        Case("""\
import torch

activations = []

def watch(model):
    for block in model.blocks:
        block.register_forward_hook(lambda module, inputs, output: activations.append(output))
""").but(title="Every forward adds its activations to a list", line=7),
    )
    good = (
        Case("""\
import torch

def fit(model, loader, optimizer, debug=False):
    torch.autograd.set_detect_anomaly(debug)
    for x in loader:
        model(x).mean().backward()
        optimizer.step()
"""),
        Case("""\
import torch

activations = {}

def watch(model):
    for name, block in model.blocks.items():
        block.register_forward_hook(
            lambda module, inputs, output, name=name: activations.update({name: output.detach()})
        )
""").but(title="The last activations only, without their graph"),
        Case("""\
import torch

def fit(model, loader):
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)) as profiler:
        for x in loader:
            model(x).mean().backward()
            profiler.step()
""").but(title="A few steps are profiled"),
    )

    def check(self, source: Source) -> Findings:
        if not source.mentions("detect_anomaly", "_record_memory_history", "register_forward_hook", "profile("):
            return
        if not uses_torch(source):
            return
        for scope, call in calls(source, tests=False):
            name = source.qualified_name(call.func) or ""
            if under_condition(scope, call):
                continue
            if called(call) == "register_forward_hook":
                yield from self._hook(scope, call)
            elif _SET_ANOMALY.fullmatch(name) or _ANOMALY.fullmatch(name):
                yield from self._anomaly(scope, call, entered=_ANOMALY.fullmatch(name) is not None)
            elif _PROFILE.fullmatch(name):
                yield from self._profile(scope, call)
            elif _RECORD.fullmatch(name):
                yield from self._history(scope, call)

    def _anomaly(self, scope: Scope, call: ast.Call, *, entered: bool) -> Findings:
        on = _trains_inside(scope, call) if entered else is_literal(argument(call, "mode", 0), True)
        if on:
            yield self.finding(
                scope.source,
                call,
                "Anomaly detection is on in every step: each node of the graph keeps a traceback, and each gradient is "
                "checked with a temporary mask.",
                "Turn it on only while looking for a NaN, under a flag.",
            )

    def _profile(self, scope: Scope, call: ast.Call) -> Findings:
        switched = argument(call, "enabled", 0)  # torch.autograd's has such an argument
        if switched is not None and not is_literal(switched, True):
            return
        if not unpacks(call) and argument(call, "schedule") is None and _trains_inside(scope, call):
            yield self.finding(
                scope.source,
                call,
                "The profiler keeps a record of every operation of the whole loop, on the host.",
                "Give it `schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)` and call its `step()` in each "
                "round.",
            )

    def _history(self, scope: Scope, call: ast.Call) -> Findings:
        first = argument(call, "enabled", 0)
        off = isinstance(first, ast.Constant) and not first.value
        if off or unpacks(call) or argument(call, "max_entries") is not None or _STOPS.search(scope.source.text):
            return
        yield self.finding(
            scope.source,
            call,
            "The history keeps an entry of several kB on the host for each allocation, without a limit, and nothing in "
            "this file stops it.",
            "Give it `max_entries`, and stop it with `_record_memory_history(enabled=None)`.",
        )

    def _hook(self, scope: Scope, call: ast.Call) -> Findings:
        hook = _function(scope, argument(call, "hook", 0))
        if hook is not None and _collects_output(hook) and not _EMPTIES.search(scope.source.text):
            yield self.finding(
                scope.source,
                call,
                "This hook appends what the module returns to a list that nothing empties, so each forward adds its "
                "activations to what is on the GPU.",
                "Append `output.detach().cpu()`, empty the list after each step, and remove the hook when it is no "
                "longer needed.",
                Severity.WARNING,
            )


def _trains_inside(scope: Scope, call: ast.Call) -> bool:
    """Return True if `call` is the context of a block with a training loop."""
    block = next((parent for parent in scope.around(call) if isinstance(parent, ast.With)), None)
    if block is None or not any(item.context_expr is call for item in block.items):
        return False
    return any(
        isinstance(node, ast.For) and (over_batches(node) or calls_backward(node))
        for statement in block.body
        for node in ast.walk(statement)
    )


def _function(scope: Scope, hook: ast.expr | None) -> ast.Lambda | ast.FunctionDef | None:
    """Return the function of a hook, if the file defines it."""
    if isinstance(hook, ast.Lambda):
        return hook
    name = dotted_name(hook).rpartition(".")[2] if hook is not None else ""
    nodes = (other.node for other in scopes(scope.source))
    return next((node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _collects_output(hook: ast.Lambda | ast.FunctionDef) -> bool:
    """Return True if it appends its last argument unchanged."""
    parameters = [parameter.arg for parameter in hook.args.args]
    output = parameters[3:4] if parameters[:1] == ["self"] else parameters[2:3]
    body = hook.body if isinstance(hook.body, list) else [hook.body]
    return not any(_CUTS.search(ast.unparse(node)) for node in body) and any(
        called(node) == "append"
        and isinstance(node, ast.Call)
        and [dotted_name(value) for value in node.args] == output
        for statement in body
        for node in ast.walk(statement)
    )
