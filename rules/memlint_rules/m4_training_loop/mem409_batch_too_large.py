from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.whatif.changes import AccumulationSteps, BatchSize

_MAX_TRIES = 3
"""Maximum numbers of parts to trace: the first that should fit, and the next larger ones."""


class BatchTooLarge(TraceRule):
    """The step does not fit into memory, but would with gradient accumulation over parts of the batch.

    If the step exceeds its budget or the GPU's memory, the rule traces half the batch, and computes from that the
    fewest equal parts of the batch that fit.

    ## Why it costs memory

    Parameters, gradients and optimizer state do not depend on the batch size; activations grow with it. Gradients of
    several smaller batches add up to those of the large one, so the optimizer takes the same step with a fraction of
    the activations, in about the same time.

    ## How the saving is computed

    The step is traced with half the batch to find the bytes per sample, and then with the batch in parts: the forward
    and backward of each part, then one step of the optimizer.

    ## Known limits

    BatchNorm computes its statistics per part. A declared step of your own is not divided, nor is a batch that cannot
    be divided evenly or of which not even a single sample fits.

    - https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
    """

    code, name, severity = "MEM409", "batch-too-large", Severity.WARNING
    rests_on = "batch"
    looks_at = "the estimate of a step"
    example = """\
import memlint
import torch
from torch import nn


@memlint.workload(batch=16384)
def training(batch):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)))
    return model, {"input": torch.randn(batch, 1024)}
"""
    bad = (Case(example, title="A batch of 16384 in a budget of 1.5 GiB", budget=1610612736),)
    good = (
        bad[0].but(
            {"@memlint.workload(batch=16384)": "@memlint.workload(batch=4096)"},
            title="A batch of 4096, four times before each step of the optimizer",
        ),
    )

    def check(self, context: Context) -> Findings:
        estimate = context.estimate
        limit = context.budget if context.budget is not None else context.device.total_nbytes
        batch = context.workload.batch
        if not limit or estimate.device.estimate <= limit or batch < 2:
            return
        half = context.what_if(BatchSize(batch // 2))
        if half is None:
            return
        per_sample = (estimate.device.estimate - half.estimate.device.estimate) / (batch - batch // 2)
        fixed = estimate.device.estimate - batch * per_sample
        numbers = [parts for parts in range(2, min(batch, AccumulationSteps.most) + 1) if batch % parts == 0]
        enough = [parts for parts in numbers if fixed + per_sample * batch / parts <= limit]
        for parts in enough[:_MAX_TRIES]:
            change = AccumulationSteps(parts) if context.workload.mode == "train" else BatchSize(batch // parts)
            after = context.what_if(change)
            if after is not None and after.estimate.device.estimate <= limit:
                norm = any("BatchNorm" in kind for _path, kind in context.trace.modules)
                yield self.finding(
                    context,
                    estimate.frame,
                    f"A batch of {batch} takes {format_nbytes(estimate.device.estimate)}: "
                    f"{format_nbytes(round(fixed))} whatever the batch, and {format_nbytes(round(per_sample))} per "
                    f"sample. In {parts} parts of {batch // parts} it takes "
                    f"{format_nbytes(after.estimate.device.estimate)} and fits.",
                    nbytes=estimate.device.estimate - limit,
                    peak_change=after.peak_change,
                    confidence=Confidence.EXACT_RETRACE,
                    fix=f"Load batches of {batch // parts}"
                    + (
                        f", divide the loss by {parts}, and call `optimizer.step()` and `optimizer.zero_grad()` after "
                        f"every {parts} of them."
                        if context.workload.mode == "train"
                        else "."
                    )
                    + (" BatchNorm then sees the statistics of a part." if norm else ""),
                )
                return
