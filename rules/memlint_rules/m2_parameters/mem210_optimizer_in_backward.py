from memlint.base.units import format_nbytes
from memlint.lint.rule import MANY_NODES, Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Category, Phase
from memlint.memory.timeline import end_at, without
from memlint.whatif.changes import OptimizerInBackward
from memlint_rules.support.flow import peak_change
from memlint_rules.support.parameters import gradients_read_by_loop

MIN_SHARE = 0.1
"""Minimum share of gradients in the peak."""


class StepInBackward(TraceRule):
    """Gradients of all parameters make the peak; optimizer steps within backward need only a few at a time.

    Looks for a peak in backward or in the optimizer's step of which gradients are a tenth or more, in training without
    gradient-norm clipping, loss scaling or accumulation, which need all gradients together.

    ## Why it costs memory

    Gradients take as many bytes as the trained parameters. A hook on each parameter can take its optimizer step as soon
    as its gradient is complete and then free the gradient, so only a few gradients exist at a time, and the optimizer's
    temporaries are those of one parameter.

    ## How the saving is computed

    The step is traced again with an optimizer for each parameter, called in
    `Tensor.register_post_accumulate_grad_hook`. If a trace has more than 6,000 kernels, gradients are instead freed
    right after the kernel that made them, the optimizer's temporaries are removed, and the peak is computed again.

    ## Known limits

    It is incompatible with gradient clipping, accumulation and `GradScaler`. Learning-rate schedulers must handle all
    optimizers. DistributedDataParallel averages gradients only after these hooks have run. Nothing is reported if the
    peak would fall by little.

    - https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html
    """

    code, name, severity = "MEM210", "optimizer-in-backward", Severity.INFO
    rests_on = "optimizer"
    example = """\
import torch
from torch import nn

from memlint.targets.declare import Declaration


def optimizer(parameters):
    return torch.optim.AdamW(parameters)


def memlint_workload():
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(16)))
    return Declaration(model, {"input": torch.randn(64, 1024)}, optimizer=optimizer)
"""
    bad = (Case(example, line=1),)
    good = (
        bad[0].but(
            {
                "    return torch.optim.AdamW(parameters)": """\
    parameters = list(parameters)
    for parameter in parameters:
        own = torch.optim.AdamW([parameter])

        def update(_parameter, own=own):
            own.step()
            own.zero_grad()

        parameter.register_post_accumulate_grad_hook(update)
    return torch.optim.SGD(parameters)  # finds no gradients"""
            }
        ),
        bad[0].but(
            {
                "optimizer=optimizer)\n": """\
optimizer=optimizer, step=step)


def step(model, inputs, optimizer):
    model(**inputs).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
            },
            title="Gradients are clipped",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace, estimate = context.trace, context.estimate
        peak = estimate.requested.estimate
        gradients = sum(b.nbytes for b in estimate.at_peak if b.category is Category.GRADIENT)
        if estimate.phase not in {Phase.BACKWARD, Phase.OPTIMIZER} or gradients < MIN_SHARE * peak:
            return
        if gradients_read_by_loop(trace):
            return
        is_large = len(trace.nodes) > MANY_NODES
        change = _without_gradients(context) if is_large else _traced(context)
        if change is None or not is_notable(change, peak):
            return
        yield self.finding(
            context,
            None,
            f"Gradients take {format_nbytes(gradients)} of the peak, {gradients / peak:.0%}, because the optimizer "
            "steps when all of them are there.",
            nbytes=gradients,
            peak_change=change,
            confidence=Confidence.MODELLED if is_large else Confidence.EXACT_RETRACE,
            fix="If gradients are neither clipped by their common norm nor accumulated, give each parameter an "
            "optimizer of its own and call its `step()` and `zero_grad()` in a hook registered with "
            "`parameter.register_post_accumulate_grad_hook`.",
        )


def _traced(context: Context) -> int | None:
    answer = context.what_if(OptimizerInBackward())
    return answer.peak_change if answer else None


def _without_gradients(context: Context) -> int:
    timeline = context.timeline
    gradients = {b.id: b.node for b in timeline.buffers if b.category is Category.GRADIENT}
    temporaries = [b.id for b in timeline.buffers if b.category is Category.TEMPORARY and b.phase is Phase.OPTIMIZER]
    return peak_change(timeline, without(end_at(timeline, gradients), temporaries))
