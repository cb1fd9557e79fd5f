from memlint.lint.rule import Context, Findings, Severity, TraceRule
from memlint.whatif.changes import ShardBlocks
from memlint_rules.support.ranks import BLOCKS, case, found_by_wrapping


class OneFsdpUnit(TraceRule):
    """A whole model is a single unit of FSDP2, and is gathered as a whole.

    Looks for models on several ranks whose repeated blocks are in one unit of `fully_shard`, and reports the peak with
    a unit for each block.

    ## Why it costs memory

    The parameters of a unit are gathered before its forward and again before its backward, all at once, and its
    gradients are unsharded until they are reduced. With a unit for each block, only one or two blocks are unsharded at
    a time.

    ## How the saving is computed

    The step is traced again with `fully_shard` called on each repeated block first, with the options of the model.

    ## Known limits

    Blocks are the outermost modules of a class that repeats side by side three times or more. The first version of FSDP
    is not checked; MEM607 finds it in the source.

    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    """

    code, name, severity = "MEM611", "one-fsdp-unit", Severity.WARNING
    bad = (case("fully_shard(model, mesh=mesh)"),)
    good = (case(*BLOCKS),)

    def check(self, context: Context) -> Findings:
        message = "The whole model is one unit of fully_shard: all of its parameters are gathered at once."
        fix = "Call `fully_shard` on each block, and on the model last."
        yield from found_by_wrapping(self, context, ShardBlocks(), message, fix)
