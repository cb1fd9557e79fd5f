from memlint.lint.rule import Context, Findings, Severity, TraceRule
from memlint.whatif.changes import ReshardAfterForward
from memlint_rules.support.ranks import BLOCKS, case, found_by_wrapping


class NoReshard(TraceRule):
    """Gathered parameters of FSDP2 stay gathered from the forward to the backward.

    Looks for models on several ranks with `reshard_after_forward=False`, and reports the peak without it.

    ## Why it costs memory

    Each unit stays gathered until its backward, so at the end of the forward the whole model is gathered. With
    resharding, each unit is gathered again for the backward, which costs communication.

    ## How the saving is computed

    The step is traced again with `reshard_after_forward=True` in these calls.

    ## Known limits

    Pipelines with many small batches keep units gathered on purpose; a number in place of True reshards to that many
    ranks, a compromise.

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
        message = "Units with reshard_after_forward=False stay gathered from their forward to their backward."
        fix = "Leave `reshard_after_forward` out, or give the number of GPUs in a machine."
        yield from found_by_wrapping(self, context, ReshardAfterForward(), message, fix)
