import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import Scope, named_calls, position
from memlint.source.text import Source

_OPTIMIZER = re.compile(r"torch\.optim\.(\w+\.)?[A-Z]\w+")
_SHARDS = re.compile(
    r"torch\.distributed\.(fsdp|_composable\.fsdp(\.fully_shard)?)\.fully_shard"
    r"|torch\.distributed\.fsdp\.(fully_sharded_data_parallel\.)?FullyShardedDataParallel"
)


class OptimizerBeforeSharding(SourceRule):
    """An optimizer is created from parameters that are sharded afterwards.

    Looks for `torch.optim` optimizers that get `model.parameters()` before `fully_shard(model)` or
    `FullyShardedDataParallel(model)` in the same function.

    ## Why it costs memory

    Sharding replaces the model's parameters. The optimizer keeps the original, unsharded ones in memory and trains
    those: the model does not learn.

    ## How the saving is computed

    The possible saving is the bytes of all parameters on every rank, except one rank's part.

    ## Known limits

    Only a model with the same name in both calls is followed. In the first version of FSDP, `use_orig_params=True`
    keeps the parameter objects, but not their data.

    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - https://docs.pytorch.org/docs/stable/fsdp.html
    """

    code, name, severity = "MEM614", "optimizer-before-sharding", Severity.WARNING
    example = """\
import torch
from torch.distributed.fsdp import fully_shard

def build(model):
    optimizer = torch.optim.AdamW(model.parameters())
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model, optimizer
"""
    bad = (Case(example, line=5),)
    good = (
        Case("""\
import torch
from torch.distributed.fsdp import fully_shard

def build(model):
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters())
"""),
    )

    def check(self, source: Source) -> Findings:
        if source.words.isdisjoint({"FullyShardedDataParallel", "fully_shard"}):
            return
        made: dict[tuple[Scope, str], ast.Call] = {}
        for scope, call, name in sorted(named_calls(source), key=lambda each: position(each[1])):
            if _OPTIMIZER.fullmatch(name) and (model := _model_of(call)):
                made.setdefault((scope, model), call)
            elif _SHARDS.fullmatch(name) and call.args:
                early = made.pop((scope, ast.unparse(call.args[0])), None)
                if early is not None:
                    yield self.finding(
                        source,
                        early,
                        "The model is sharded after this: the optimizer keeps and trains the original "
                        "parameters, not the sharded ones of the model.",
                        "Create the optimizer after sharding the model.",
                    )


def _model_of(call: ast.Call) -> str:
    """Return `model` for `AdamW(model.parameters())`."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute) and first.func.attr == "parameters":
        return ast.unparse(first.func.value)
    return ""
