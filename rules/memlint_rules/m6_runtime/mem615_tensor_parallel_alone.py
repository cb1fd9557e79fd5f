import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import calls
from memlint.source.text import Source

_PARALLELIZE = re.compile(r"torch\.distributed\.tensor\.parallel\.(api\.)?parallelize_module")
_SEQUENCE = re.compile(r"SequenceParallel|output_layouts\s*=\s*\(?\s*Shard\(")


class TensorParallelAlone(SourceRule):
    """Every rank holds whole activations between tensor-parallel layers.

    Looks for `parallelize_module` with `RowwiseParallel` in files that never shard activations between layers with
    `SequenceParallel` or `output_layouts=Shard(1)`.

    ## Why it costs memory

    `RowwiseParallel` sums its output on every rank, so norms, dropout, residuals and their saved tensors exist on every
    rank. If they are sharded over the tokens, each rank holds only its part.

    ## How the saving is computed

    With n ranks, each rank keeps one n-th of the activations between the parallel layers. For the bytes, trace the step
    both ways: `memlint run --ranks 8`.

    ## Known limits

    Layouts set in another file are not seen.

    - https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
    - https://arxiv.org/abs/2205.05198
    """

    code, name, severity = "MEM615", "tensor-parallel-alone", Severity.INFO
    example = """\
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

def split(block, mesh):
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
"""
    bad = (Case(example, line=4),)
    good = (
        Case("""\
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

def split(block, mesh):
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(block, mesh, plan)
"""),
    )

    def check(self, source: Source) -> Findings:
        if not {"parallelize_module", "RowwiseParallel"} <= source.words or _SEQUENCE.search(source.text):
            return
        for _scope, call in calls(source, _PARALLELIZE, tests=False):
            yield self.finding(
                source,
                call,
                "Activations between the parallel layers are whole on every rank.",
                "Shard them over the tokens: `SequenceParallel()` for norms, `output_layouts=Shard(1)` for "
                "RowwiseParallel and `input_layouts=Shard(1)` for ColwiseParallel.",
            )
