import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, is_literal, unpacks
from memlint.source.scopes import Scope, named_calls
from memlint.source.text import Source

_FSDP = re.compile(r"torch\.distributed\.fsdp\.(fully_sharded_data_parallel\.)?FullyShardedDataParallel")
_FULLY_SHARD = re.compile(r"torch\.distributed\.(fsdp|_composable\.fsdp(\.fully_shard)?)\.fully_shard")
_WRAPS_PARTS = re.compile(
    r"enable_wrap|\bwrap\(|auto_wrap|\.apply\(\s*(\w+\.)?fully_shard|partial\(\s*(\w+\.)?fully_shard"
)
_WORDS = frozenset({"FullyShardedDataParallel", "fully_shard"})


class FsdpFlags(SourceRule):
    """A sharded model is gathered as a whole, or in larger parts than a step needs.

    Looks for these uses of `FullyShardedDataParallel` and `fully_shard`: the whole model as one unit; `NO_SHARD`;
    `limit_all_gathers=False`; and blocks with `reshard_after_forward=False`.

    ## Why it costs memory

    A unit is gathered as a whole before it runs. If the model is one unit, every GPU holds all parameters during
    forward and backward, as without sharding. Blocks that are not resharded after their forward stay whole until their
    backward. Without the limit on gathers, several units can be whole at once.

    ## How the saving is computed

    With `P` bytes of parameters on `n` GPUs, a single unit keeps all `P` at the peak; units of size `u` keep `P / n`
    plus about two units.

    ## Known limits

    A file that shards blocks by a call this rule cannot see is reported as one unit. Calls that unpack keyword
    arguments are left out.

    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - https://docs.pytorch.org/docs/stable/fsdp.html
    """

    code, name, severity = "MEM607", "fsdp-flags", Severity.INFO
    example = """\
from torch.distributed.fsdp import fully_shard

def shard(model):
    fully_shard(model)
    return model
"""
    bad = (
        Case(example, line=4),
        Case("""\
from torch.distributed.fsdp import fully_shard

def shard(model):
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=False)
    fully_shard(model)
    return model
""").but(title="Every block stays whole until its backward", line=5),
        Case("""\
from torch.distributed.fsdp import FullyShardedDataParallel

def shard(model):
    return FullyShardedDataParallel(model, use_orig_params=True)
""").but(title="The first version", line=4),
    )
    good = (
        bad[1].but({"fully_shard(block, reshard_after_forward=False)": "fully_shard(block)"}),
        Case("""\
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from models import Block

def shard(model):
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)
""").but(title="The first version"),
    )

    def check(self, source: Source) -> Findings:
        if _WORDS.isdisjoint(source.words):
            return
        names = {"fsdp": _FSDP, "fully_shard": _FULLY_SHARD}
        calls = [
            (kind, scope, call)
            for scope, call, qualified in named_calls(source)
            for kind, name in names.items()
            if name.fullmatch(qualified)
        ]
        parts = len(calls) != 1 or _WRAPS_PARTS.search(source.text) is not None
        for kind, scope, call in calls:
            remark = _first_version(call) if kind == "fsdp" else _second_version(scope, call)
            if remark is None and not parts and _is_one_unit(scope, call):
                remark = _ONE_UNIT[kind]
            if remark is not None and not unpacks(call):
                yield self.finding(source, call, *remark)


_WHOLE = "The model is one unit, so every GPU gathers all of its parameters at once, in forward and in backward."
_ONE_UNIT = {
    "fsdp": (_WHOLE, "Give `auto_wrap_policy=ModuleWrapPolicy({Block})` with the class of the repeated block."),
    "fully_shard": (_WHOLE, "Call `fully_shard` on each block first, and on the model last."),
}


def _first_version(call: ast.Call) -> tuple[str, str] | None:
    strategy = argument(call, "sharding_strategy", 2)
    if strategy is not None and ast.unparse(strategy).endswith("NO_SHARD"):
        message = "`NO_SHARD` keeps all parameters, gradients and optimizer states on every GPU."
        return message, "Use `ShardingStrategy.FULL_SHARD`, or DistributedDataParallel if nothing is to be sharded."
    if is_literal(argument(call, "limit_all_gathers"), False):
        message = "`limit_all_gathers=False` lets more than two units be gathered at the same time."
        return message, "Leave it out: by default gathers wait for memory to be free."
    return None


def _second_version(scope: Scope, call: ast.Call) -> tuple[str, str] | None:
    if scope.loops(call) and is_literal(argument(call, "reshard_after_forward"), False):
        message = (
            "Each of these blocks stays gathered from its forward to its backward, so at the end of the forward the "
        )
        return (
            message + "whole model is.",
            "Leave `reshard_after_forward` out, or give the number of GPUs in a machine.",
        )
    return None


def _is_one_unit(scope: Scope, call: ast.Call) -> bool:
    """Return True if it wraps a whole model, once, without a policy that finds its parts."""
    repeated = any(
        isinstance(parent, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp)
        for parent in scope.around(call)
    )
    several = bool(call.args) and isinstance(call.args[0], ast.List | ast.Tuple)
    return not (scope.loops(call) or repeated or several or argument(call, "auto_wrap_policy", 4) is not None)
