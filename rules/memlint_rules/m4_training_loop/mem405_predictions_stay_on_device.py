import ast
from collections.abc import Iterator

from memlint.lint.edits import unsafe, with_method
from memlint.lint.rule import Case, Findings, Severity
from memlint.source.containers import stored_values
from memlint.source.scopes import Scope, goes_over_batches, lists_batches, over_batches, scopes, uses_torch
from memlint.source.taint import Kind, Value, values_of
from memlint.source.text import Source
from memlint_rules.support.growth import GrowsBy, _GrowthRule


class PredictionsStayOnDevice(_GrowthRule):
    """The outputs for a whole data set are collected on the GPU.

    Looks for model outputs that a loop over batches puts, without their graph and without moving them, into a list or
    dictionary created outside the loop, or that a list comprehension over batches collects.

    ## Why it costs memory

    The outputs of all batches are on the GPU at the end of the loop, and a `torch.cat` of them needs the same bytes
    again. For logits over a vocabulary, or masks of the image's size, this soon exceeds the model itself.

    ## How the saving is computed

    The possible saving is the bytes of an output times the number of batches, and twice that if the list is
    concatenated.

    ## Known limits

    The rule cannot tell whether the model is on a GPU; files that mention no device are left out. Only loops over
    something named like a data loader are checked. Scalars are left out, and indices of a maximum are a note, because
    they are small.

    - https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-memory-management
    """

    code, name, severity, grows_by = "MEM405", "predictions-stay-on-device", Severity.WARNING, GrowsBy.VALUES
    example = """\
import torch

@torch.inference_mode()
def predict(model, loader, device):
    outputs = []
    for x, y in loader:
        outputs.append(model(x.to(device)))
    return torch.cat(outputs)
"""
    bad = (
        Case(example, line=7),
        Case("""\
import torch

def fit(model, train_loader, optimizer, criterion):
    logits = []
    for x, y in train_loader:
        output = model(x.cuda())
        criterion(output, y.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
        logits.append(output.detach())
    return torch.cat(logits)
""").but(title="Detached is not moved", line=10),
        Case("""\
import torch

@torch.inference_mode()
def predict(model, loader, device):
    return torch.cat([model(x.to(device)) for x in loader])
""").but(title="A list comprehension", line=5),
    )
    good = (
        bad[0].but({"outputs.append(model(x.to(device)))": "outputs.append(model(x.to(device)).argmax(-1).cpu())"}),
        bad[2].but({"model(x.to(device)) for x": "model(x.to(device)).cpu() for x"}, title="A list comprehension"),
        Case("""\
import torch

@torch.inference_mode()
def evaluate(model, loader, device):
    means = []
    for x in loader:
        means.append(model(x.to(device)).mean())
    return torch.stack(means).mean()
""").but(title="One number per batch"),
    )

    def check(self, source: Source) -> Findings:
        if not source.mentions("cuda", "device", "accelerat") or not uses_torch(source):
            return
        if not (goes_over_batches(source) or lists_batches(source)):
            return
        for scope in scopes(source):
            for node, container, expression, value in () if scope.in_module else _collected(scope):
                if value.kind is not Kind.OUTPUT or value.graph or value.scalar or not value.on_device:
                    continue
                text = ast.unparse(expression)[:60]
                yield self.finding(
                    source,
                    node,
                    f"{container} keeps `{text}` of every batch on the model's device, so memory grows with the number "
                    "of batches.",
                    f"Put `{text}.cpu()` there, or only what the metric needs of it.",
                    Severity.NOTE if value.indices else None,
                    unsafe(with_method(source, expression, "cpu()")),
                )


def _collected(scope: Scope) -> Iterator[tuple[ast.expr | ast.stmt, str, ast.expr, Value]]:
    """Yield what loops and list comprehensions over batches keep: place, container, expression and value."""
    for kept in stored_values(scope):
        if over_batches(kept.loop):
            yield kept.node, f"`{kept.container}`", kept.expression, kept.value
    lists = [n for n in scope.nodes if isinstance(n, ast.ListComp) and any(map(over_batches, n.generators))]
    values = values_of(scope) if lists else None
    for node in lists:
        value = values.of(node.elt) if values is not None else None
        if value is not None:
            yield node, "This list", node.elt, value
