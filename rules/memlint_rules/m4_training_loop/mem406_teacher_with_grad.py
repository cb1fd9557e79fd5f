import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import Loop, Scope, calls_backward, differentiates, position, scopes, uses_torch
from memlint.source.text import Source, dotted_name, named

_VERB = re.compile(r"_*(build|create|get|init|load|make|prepare|save|set|setup|switch|update|wrap)_.*")
_TEACHER = re.compile(r"(.*_)?(teacher|ref_model|reference_model)(_(model|net|network))?", re.IGNORECASE)
_MODEL = re.compile(
    r"(.*_)?(model|net|network|teacher|generator|encoder|critic|actor|policy|backbone|vgg)(_target|_ema|_old)?|net_?[GD]",
    re.IGNORECASE,
)
_STEP = re.compile(r"training_step|train_step|compute_loss")
_GEOMETRY = frozenset({"shape", "size", "device", "dtype", "ndim", "dim"})


class TeacherWithGrad(SourceRule):
    """A model that only computes targets runs with autograd switched on.

    Looks in training steps for calls of models whose result is always detached, and for calls of models named like a
    teacher or a reference model, outside `torch.no_grad()`, in files that do not freeze them.

    ## Why it costs memory

    Autograd saves tensors for a backward through that model as soon as its parameters, or its inputs, require
    gradients. `detach()` comes too late: everything stays saved until the original output is released. If the output is
    not even detached, the backward runs through the teacher too and computes gradients for its parameters.

    ## How the saving is computed

    The possible saving is the activations that one forward of that model saves.

    ## Known limits

    Models are recognised by the usual names. The rule cannot tell whether their parameters require gradients; files
    that set `requires_grad` on something of that name are left out. An output that is used both with and without
    `detach()` is not reported.

    - https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
    """

    code, name, severity = "MEM406", "teacher-with-grad", Severity.WARNING
    example = """\
import torch.nn.functional as F

def step(student, teacher, x, optimizer):
    targets = teacher(x)
    loss = F.mse_loss(student(x), targets.detach())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    bad = (
        Case(example, line=4),
        Case("""\
import torch.nn.functional as F

def step(student, teacher, x, optimizer):
    F.mse_loss(student(x), teacher(x)).backward()
    optimizer.step()
    optimizer.zero_grad()
""").but(title="Not even detached", line=4),
    )
    good = (
        Case("""\
import torch
import torch.nn.functional as F

def step(student, teacher, x, optimizer):
    with torch.no_grad():
        targets = teacher(x)
    loss = F.mse_loss(student(x), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""),
        bad[1].but(
            {
                "F.mse_loss(student(x), teacher(x)).backward()": (
                    "teacher.requires_grad_(False)\n    F.mse_loss(student(x), teacher(x)).backward()"
                )
            },
            title="The teacher is frozen",
        ),
        Case("""\
import torch

def step(generator, critic, noise, optimizer):
    fake = generator(noise)
    critic(fake.detach()).mean().backward()
    (-critic(fake)).mean().backward()
    optimizer.step()
""").but(title="The discriminator sees it detached, the generator does not"),
    )

    def check(self, source: Source) -> Findings:
        if not (differentiates(source) or source.mentions("training_step", "train_step", "compute_loss")):
            return
        if not source.mentions(".detach(", "teacher", "ref_model", "reference_model") or not uses_torch(source):
            return
        for scope in scopes(source):
            for call in () if scope.evaluates else scope.calls:
                name = dotted_name(call.func).removesuffix(".forward")
                how = _why_no_gradient(scope, call, name) if name else ""
                if not how or not (_STEP.fullmatch(scope.name) or calls_backward(scope.node)):
                    continue
                if not scope.guarded(call) and _in_step(scope, call) and not _frozen(source, name):
                    yield self.finding(
                        source,
                        call,
                        f"`{name}` runs with autograd switched on although {how}, so everything a backward through it "
                        "would need is saved.",
                        f"Put the call of `{name}` under `with torch.no_grad():`.",
                    )


def _in_step(scope: Scope, call: ast.Call) -> bool:
    """Return True if it runs at each differentiation: in the same loop, or both outside loops."""
    return any(map(calls_backward, scope.loops(call))) or not any(
        calls_backward(node) for node in scope.nodes if isinstance(node, Loop)
    )


def _why_no_gradient(scope: Scope, call: ast.Call, name: str) -> str:
    """Say why no gradient is needed through this call; empty if one may be."""
    last = name.rpartition(".")[2]
    if _VERB.fullmatch(last):
        return ""
    if _MODEL.fullmatch(last):
        parent = scope.parents[call]
        if isinstance(parent, ast.Attribute) and parent.attr == "detach":
            return "its output is detached at once"
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and _only_detached(scope, parent):
            return "its output is only used detached"
    if _TEACHER.fullmatch(last) and calls_backward(scope.node):
        return "nothing trains it here"
    return ""


def _only_detached(scope: Scope, assignment: ast.Assign) -> bool:
    name = dotted_name(assignment.targets[0])
    if not name or sum(isinstance(node.ctx, ast.Store) for node in named(scope.nodes, name)) != 1:
        return False
    detached = 0
    for node in named(scope.nodes, name):
        if not isinstance(node.ctx, ast.Load) or position(node) < position(assignment):
            continue
        parent = scope.parents[node]
        attribute = parent.attr if isinstance(parent, ast.Attribute) else ""
        if attribute not in ("detach", "data") and attribute not in _GEOMETRY:
            return False
        detached += attribute in ("detach", "data")
    return detached > 0


def _frozen(source: Source, name: str) -> bool:
    """Return True if `requires_grad` is set on something of that name anywhere in the file."""
    if "requires_grad" not in source.text and "freeze" not in source.text:
        return False
    last = re.escape(name.rpartition(".")[2])
    mentions = re.compile(rf"{last}\b.*(requires_grad|freeze)|(requires_grad|freeze).*\b{last}\b")
    loops = re.compile(rf"\b{last}\.(named_)?parameters\(")
    return mentions.search(source.text) is not None or any(
        loops.search(ast.unparse(node.iter)) and "requires_grad" in ast.unparse(node)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.For)
    )
