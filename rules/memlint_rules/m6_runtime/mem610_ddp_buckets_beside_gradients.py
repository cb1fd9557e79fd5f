from memlint.lint.rule import Context, Findings, Severity, TraceRule
from memlint.whatif.changes import GradientsAsBucketViews
from memlint_rules.support.ranks import BLOCKS, case, ddp_call, found_by_wrapping


class DdpBucketsBesideGradients(TraceRule):
    """Buckets of DistributedDataParallel exist beside the gradients at the peak.

    Looks for models on several ranks that DistributedDataParallel wraps without `gradient_as_bucket_view`, and reports
    the peak with it. MEM605 finds the same in the source, without a step and without bytes.

    ## Why it costs memory

    Gradients are copied into permanent buckets, together as large as all gradients; with the option the gradients are
    views of the buckets.

    ## How the saving is computed

    The step is traced again with `gradient_as_bucket_view=True`.

    ## Known limits

    Gradients that are views cannot be detached in place, and must not be replaced by other tensors.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
    """

    code, name, severity = "MEM610", "ddp-buckets-beside-gradients", Severity.WARNING
    bad = (case("model = DistributedDataParallel(model.cuda(), device_ids=[0])"),)
    good = (
        case("model = DistributedDataParallel(model.cuda(), device_ids=[0], gradient_as_bucket_view=True)"),
        case(*BLOCKS),
    )

    def check(self, context: Context) -> Findings:
        message = "The buckets of DistributedDataParallel hold every gradient a second time."
        fix = "Construct DistributedDataParallel with `gradient_as_bucket_view=True`."
        frame = ddp_call(context.trace)
        yield from found_by_wrapping(self, context, GradientsAsBucketViews(), message, fix, frame)
