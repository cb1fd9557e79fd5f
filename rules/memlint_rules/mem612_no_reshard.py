from memlint.lint.rule import Context, Findings, Severity, TraceRule
from memlint.whatif.changes import ReshardAfterForward
from memlint_rules.ranks import BLOCKS, case, found_by_wrapping


class NoReshard(TraceRule):
    """Gathered parameters of FSDP2 stay from the forward to the backward.

    Looks at models on several ranks with `reshard_after_forward=False`, and reports what the peak would be without.

    ## Why it costs memory

    Each unit stays whole until its backward, so that at the end of the forward the whole model is. With resharding it
    is gathered again for the backward, which costs communication.

    ## How the saving is computed

    The step is traced again with `reshard_after_forward=True` in these calls.

    ## Known limits

    Pipelines with many small batches keep units gathered on purpose; a number in place of True reshards to so many
    ranks, which lies between.

    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    """

    code, name, severity = "MEM612", "no-reshard", Severity.INFO
    bad = (
        case(
            "for block in model.blocks:",
            "    fully_shard(block, mesh=mesh, reshard_after_forward=False)",
            "fully_shard(model, mesh=mesh)",
        ),
    )
    good = (case(*BLOCKS),)

    def check(self, context: Context) -> Findings:
        message = "Units with reshard_after_forward=False stay whole from their forward to their backward."
        fix = "Leave `reshard_after_forward` out, or give the number of GPUs in a machine."
        yield from found_by_wrapping(self, context, ReshardAfterForward(), message, fix)
