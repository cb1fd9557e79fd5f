import ast
import re

from memlint.lint.edits import safe, unsafe, with_method
from memlint.lint.rule import Case, Findings, Severity
from memlint.source.containers import StoredValue, joined, read_before_backward, returned, stored_values
from memlint.source.escape import leaves
from memlint.source.scopes import Scope, calls_backward, over_batches
from memlint.source.taint import Kind
from memlint.source.text import Source
from memlint_rules.support.growth import GrowsBy, _GrowthRule, scopes_of_loops

_WORTH_PARSING = re.compile(r"\.append(left)?\(|\.extend\(|\] *=|\+= *\[")


class AppendWithGraph(_GrowthRule):
    """A list of losses or outputs keeps the autograd graph of every batch.

    Looks for losses and model outputs that a loop over batches, or a loop that calls `backward`, puts into a list or
    dictionary created outside the loop, without detaching them.

    ## Why it costs memory

    A tensor that requires a gradient refers to its graph. Without a `backward`, everything that the forward saved stays
    in memory as long as the list: the activations of one more batch in every iteration. With a `backward` the saved
    tensors are freed, but a collected output still stays on the GPU. A collected loss is then only four bytes, and the
    finding a note.

    ## How the saving is computed

    Without a `backward`, the possible saving is the activations of a batch times the number of batches; with one, the
    bytes of an output times the number of batches.

    ## Known limits

    Models and losses are recognised by the usual names, by classes of `torch.nn`, and by the `backward` that is called
    on them. Lists that are read before a later `backward` are left out, because their graphs may be needed, as are
    lists that a function without `backward` returns, unless it is named like an evaluation. Comprehensions are not
    checked.

    - https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory
    """

    code, name, severity, grows_by = "MEM402", "append-with-graph", Severity.WARNING, GrowsBy.LIST
    example = """\
import torch

def evaluate(model, loader):
    outputs = []
    for x, y in loader:
        outputs.append(model(x))
    return torch.cat(outputs)
"""
    bad = (
        Case(example, line=6),
        Case("""\
import torch

def fit(model, loader, optimizer, criterion):
    history = {"logits": []}
    for x, y in loader:
        optimizer.zero_grad()
        logits = model(x)
        criterion(logits, y).backward()
        optimizer.step()
        history["logits"].append(logits)
    report(history)
""").but(title="Outputs of training steps, for a metric", line=10),
    )
    good = (
        Case("""\
import torch

def evaluate(model, loader):
    outputs = []
    with torch.inference_mode():
        for x, y in loader:
            outputs.append(model(x).cpu())
    return torch.cat(outputs)
"""),
        Case("""\
import torch

def fit(model, loader, optimizer, criterion):
    losses, outputs = [], []
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        outputs.append(output.detach().cpu())
    report(losses, outputs)
""").but(title="The graph is cut"),
        Case("""\
import torch

def fit(model, tasks, optimizer, criterion):
    for epoch in range(10):
        losses = []
        for loader in tasks:
            losses.append(criterion(model(loader.x), loader.y))
        torch.stack(losses).mean().backward()
        optimizer.step()
""").but(title="The collected losses are differentiated"),
    )

    def check(self, source: Source) -> Findings:
        for scope in scopes_of_loops(source) if _WORTH_PARSING.search(source.text) else ():
            for kept in stored_values(scope):
                if kept.value.graph and not read_before_backward(scope, kept.container):
                    yield from self._report(scope, kept)

    def _report(self, scope: Scope, kept: StoredValue) -> Findings:
        text = ast.unparse(kept.expression)[:60]
        severity = self.severity
        if calls_backward(kept.loop):
            if kept.value.scalar or not kept.value.on_device:
                severity = Severity.NOTE
                message = (
                    f"`{kept.container}` keeps `{text}` with its graph nodes, on the host; `backward` has already "
                    "freed the large tensors."
                )
            else:
                message = f"`{kept.container}` keeps `{text}` of every iteration on the device, with its graph nodes."
        elif over_batches(kept.loop) and (scope.evaluates or not returned(scope, kept.container)):
            message = (
                f"`{kept.container}` keeps the autograd graph of `{text}`, so each iteration keeps what a "
                "backward of its batch would need."
            )
        else:
            return
        fix = (
            f"Put `{text}.item()` there, or `{text}.detach()`."
            if kept.value.kind is Kind.LOSS
            else f"Put `{text}.detach().cpu()` there, or run the loop under `torch.inference_mode()`."
        )
        correction = None  # where a tensor looks like a number, which cannot be detached
        if kept.value.tensor or joined(scope, kept.container):
            known = safe if kept.value.tensor and not leaves(scope, kept.container) else unsafe
            correction = known(with_method(scope.source, kept.expression, "detach()"))
        yield self.finding(scope.source, kept.node, message, fix, severity, correction)
