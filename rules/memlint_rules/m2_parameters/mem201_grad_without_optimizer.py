from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Buffer, Category
from memlint.memory.timeline import without
from memlint.whatif.changes import FreezeParameters
from memlint_rules.support.flow import made, most_alive, peak_change


class GradWithoutOptimizer(TraceRule):
    """Gradients are computed for parameters that no optimizer updates.

    Looks for parameters that get a gradient in backward but that no kernel of any step updates, while others are
    updated. Parameters updated by hand, or by a second optimizer, count as updated.

    ## Why it costs memory

    Each gradient takes as many bytes as its parameter. In addition, backward has to go through the layers of these
    parameters, so the activations that they need stay alive. With `requires_grad_(False)` there are no gradients, and
    layers before the first trained parameter save nothing.

    ## How the saving is computed

    The step is traced again with these parameters frozen. If that is impossible, the gradients are removed and the peak
    is computed again.

    ## Known limits

    Gradients that the program reads for another purpose, such as a penalty or a statistic, are reported as well.
    Parameters that are only updated outside the two traced steps look as if nothing updated them.

    - https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
    """

    code, name, severity = "MEM201", "grad-without-optimizer", Severity.ERROR
    example = """\
import torch
from torch import nn

from memlint.targets.declare import Declaration


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)))
        self.head = nn.Linear(1024, 10)

    def forward(self, x):
        return self.head(self.backbone(x))


def memlint_workload():
    model = Model()
    return Declaration(
        model,
        {"x": torch.randn(4096, 1024)},
        optimizer=lambda parameters: torch.optim.AdamW(model.head.parameters()),
    )
"""
    bad = (Case(example, line=14),)
    good = (
        bad[0].but({"return Declaration(": "model.backbone.requires_grad_(False)\n    return Declaration("}),
        bad[0].but({"model.head.parameters()": "parameters"}, title="All of them are updated"),
        Case("""\
import torch
from torch import nn

from memlint.targets.declare import Declaration


def step(model, inputs, optimizer):
    model(**inputs).mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None


def memlint_workload():
    return Declaration(nn.Linear(1024, 1024), {"input": torch.randn(4, 1024)}, step=step)
""").but(title="The loop updates parameters by hand"),
    )

    def check(self, context: Context) -> Findings:
        trace, timeline = context.trace, context.timeline
        updated = {buffer for node in trace.nodes if node.step >= 0 for buffer in made(node)}
        parameters = {b.name: b for b in trace.buffers if b.category is Category.PARAMETER}
        if updated.isdisjoint(parameter.id for parameter in parameters.values()):
            return
        gradients = [
            buffer
            for buffer in trace.buffers
            if buffer.category is Category.GRADIENT
            and (parameter := parameters.get(_owner(buffer))) is not None
            and parameter.id not in updated
        ]
        if not gradients:
            return
        names = tuple(dict.fromkeys(_owner(gradient) for gradient in gradients))
        ids = [gradient.id for gradient in gradients]
        answer = context.what_if(FreezeParameters(names))
        change = answer.peak_change if answer else peak_change(timeline, without(timeline, ids))
        nbytes = most_alive(timeline, ids)
        which = f"`{names[0]}`" if len(names) == 1 else f"{len(names)} parameters, among them `{names[-1]}`,"
        yield self.finding(
            context,
            max(gradients, key=lambda gradient: gradient.nbytes).frame,
            f"{which} {'gets a gradient' if len(names) == 1 else 'get gradients'} of {format_nbytes(nbytes)}, and no "
            "optimizer updates " + ("it." if len(names) == 1 else "them."),
            nbytes=nbytes,
            peak_change=change,
            confidence=Confidence.EXACT_RETRACE if answer else Confidence.EXACT_LIFETIME,
            fix="Call `requires_grad_(False)` on them before the first step, or give them to an optimizer.",
        )


def _owner(gradient: Buffer) -> str:
    """Return the name of the parameter that this gradient belongs to."""
    return gradient.name.rpartition(" of ")[2]
