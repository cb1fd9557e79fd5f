from memlint.lint.rule import Context, Findings, Severity, TraceRule
from memlint.whatif.changes import ReduceInParameterDtype
from memlint_rules.support.ranks import case, found_by_wrapping


class WideReduction(TraceRule):
    """FSDP2 reduces gradients in a wider dtype than it gathers parameters in.

    Looks for models on several ranks whose MixedPrecisionPolicy has a `reduce_dtype` wider than its `param_dtype`, and
    reports the peak without it.

    ## Why it costs memory

    The gradients of a unit are copied into a buffer of that dtype to be reduced: in float32 it is twice as large as
    the gradients in bfloat16.

    ## How the saving is computed

    The step is traced again without the `reduce_dtype`.

    ## Known limits

    Sums over many ranks in bfloat16 are less precise, so this is a trade-off: a wide reduction is often intended.

    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    """

    code, name, severity = "MEM613", "wide-reduction", Severity.INFO
    _policy = "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)"
    bad = (case(f"policy = {_policy}", "fully_shard(model, mesh=mesh, mp_policy=policy)"),)
    good = (bad[0].but({", reduce_dtype=torch.float32": ""}),)

    def check(self, context: Context) -> Findings:
        message = "Gradients are reduced in buffers of a wider dtype than their own."
        fix = "Leave `reduce_dtype` out of the MixedPrecisionPolicy if sums in the narrow dtype are precise enough."
        yield from found_by_wrapping(self, context, ReduceInParameterDtype(), message, fix)
