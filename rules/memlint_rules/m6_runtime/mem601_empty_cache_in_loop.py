import ast
import re

from memlint.lint.edits import unsafe, without_statement
from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import Loop, calls, calls_backward, over_batches
from memlint.source.text import Source

_EMPTY_CACHE = re.compile(r"torch\.(cuda|accelerator|xpu|mps)\.(memory\.)?empty_cache")
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)


class EmptyCacheInLoop(SourceRule):
    """`empty_cache` runs in every batch: it frees only memory that PyTorch would reuse, and costs time.

    Looks for `torch.cuda.empty_cache()` that runs in each iteration of a loop over batches, or of a loop that calls
    `backward`.

    ## Why it costs memory

    It saves none. The call frees memory that no tensor uses and that PyTorch would have reused; the tensors that make
    the peak are untouched. The next batch requests the same memory from the driver again, which makes the device wait.
    The `reserved` figure, and what `nvidia-smi` shows between batches, go down; the peak does not.

    ## How the saving is computed

    There is none to compute. Removing the call makes the loop faster.

    ## Known limits

    The call can help if memory is fragmented or another process shares the GPU; then suppress the finding, or set
    `PYTORCH_ALLOC_CONF=expandable_segments:True` against fragmentation. Calls under a condition, in an exception
    handler, or between the phases of an epoch are not reported.

    - https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html
    """

    code, name, severity = "MEM601", "empty-cache-in-loop", Severity.WARNING
    example = """\
import torch

def fit(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        torch.cuda.empty_cache()
"""
    bad = (Case(example, line=8),)
    good = (
        bad[0].but({"        torch.cuda.empty_cache()\n": ""}),
        Case("""\
import torch

def run(model, loader, optimizer):
    for epoch in range(10):
        for x in loader:
            model(x).sum().backward()
            optimizer.step()
        torch.cuda.empty_cache()
        evaluate(model)
""").but(title="Between training and evaluation, once per epoch"),
        Case("""\
import torch

def run(model, loader):
    for x in loader:
        try:
            model(x).sum().backward()
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
""").but(title="After an allocation failed"),
    )

    def check(self, source: Source) -> Findings:
        if "empty_cache" not in source.text:
            return
        for scope, call in calls(source, _EMPTY_CACHE):
            loops, statement = scope.loops(call), scope.parents[call]
            if loops and not scope.conditional(call, loops[0]) and _is_batch_loop(loops[0]):
                yield self.finding(
                    source,
                    call,
                    f"`{ast.unparse(call)}` in every batch lowers no peak: it frees only memory that PyTorch would "
                    "use again, and the next batch waits for the driver to give it back.",
                    "Remove the call. If memory is fragmented, set `PYTORCH_ALLOC_CONF=expandable_segments:True`.",
                    correction=unsafe(without_statement(source, statement))
                    if isinstance(statement, ast.Expr)
                    else None,
                )


def _is_batch_loop(loop: Loop) -> bool:
    if isinstance(loop, ast.For | ast.AsyncFor) and _EPOCHS.search(ast.unparse(loop.target) + ast.unparse(loop.iter)):
        return False
    inner = [node for node in ast.walk(loop) if isinstance(node, Loop) and node is not loop]
    if any(over_batches(other) or calls_backward(other) for other in inner):
        return False
    return over_batches(loop) or calls_backward(loop)
