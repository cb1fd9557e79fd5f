import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import Scope, calls, position
from memlint.source.text import Source, dotted_name

_DATA_PARALLEL = re.compile(r"torch\.nn\.(parallel\.(data_parallel\.)?)?(DataParallel|data_parallel)")


class UsesDataParallel(SourceRule):
    """`DataParallel` gathers outputs and computes the loss on the first GPU, which fills up first.

    Looks for `torch.nn.DataParallel(...)`, unless the program only needs the names of its weights.

    ## Why it costs memory

    Each forward copies the model to every other GPU. The outputs of all GPUs are gathered on the first, where the loss
    is then computed for the whole batch, the gradients are summed, and the optimizer keeps its state. So the first GPU
    is full before the others are, and limits the batch size for all.

    ## How the saving is computed

    The possible saving on the first GPU is the outputs of the other GPUs and the loss over them; in return,
    DistributedDataParallel keeps gradients and optimizer state on every GPU.

    ## Known limits

    With a single GPU `DataParallel` calls the model itself, and nothing is copied or gathered.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
    - https://docs.pytorch.org/docs/stable/notes/cuda.html#use-nn-parallel-distributeddataparallel-instead-of-multiprocessing-or-nn-dataparallel
    """

    code, name, severity = "MEM608", "data-parallel", Severity.INFO
    example = """\
import torch
from torch import nn

def build(model):
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    return model.cuda()
"""
    bad = (Case(example, line=6),)
    good = (
        Case("""\
from torch.nn.parallel import DistributedDataParallel

def build(model, rank):
    return DistributedDataParallel(model.to(rank), device_ids=[rank], gradient_as_bucket_view=True)
"""),
        Case("""\
from torch import nn

def unwrap(model):
    return model.module if isinstance(model, nn.DataParallel) else model
""").but(title="Only asked for"),
        Case("""\
import torch

def save(model, path):
    model = torch.nn.DataParallel(model)
    torch.save({"model": model.state_dict()}, path)
""").but(title="It adds `module.` to the names of weights, and is never called"),
    )

    def check(self, source: Source) -> Findings:
        if source.words.isdisjoint({"DataParallel", "data_parallel"}):
            return
        for scope, call in calls(source, _DATA_PARALLEL, tests=False):
            if _is_only_saved(scope, call):
                continue
            yield self.finding(
                source,
                call,
                "The first GPU gathers the outputs of all others and computes the loss over them, so it fills "
                "up first.",
                "Run one process per GPU with `torchrun`, and wrap the model in "
                "`DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)`.",
            )


def _is_only_saved(scope: Scope, call: ast.Call) -> bool:
    """Return True if the function only asks the wrapper for its weights."""
    parent, inside = scope.parents[call], set(ast.walk(call))
    names = {dotted_name(target) for target in parent.targets} if isinstance(parent, ast.Assign) else set()
    uses = [
        node
        for node in scope.nodes
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and dotted_name(node) in names - {""}
        and node not in inside
        and position(node) > position(call)
    ]
    parents = (scope.parents[node] for node in uses)
    return bool(uses) and all(isinstance(each, ast.Attribute) and each.attr == "state_dict" for each in parents)
