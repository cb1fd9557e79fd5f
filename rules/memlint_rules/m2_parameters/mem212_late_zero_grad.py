from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Buffer, Category, Phase, Trace
from memlint.memory.timeline import end_at
from memlint_rules.support.flow import most_alive, peak_change


class LateZeroGrad(TraceRule):
    """Gradients of the previous step stay alive while the next forward runs.

    Looks for gradients that nothing reads after their own step and that are freed in the next step, after its forward
    began.

    ## Why it costs memory

    Gradients take as many bytes as the parameters. `zero_grad()` between forward and `backward()` leaves those of the
    previous step alive while the activations build up, although the optimizer no longer needs them.

    ## How the saving is computed

    The gradients are freed after the optimizer's last kernel, and the peak is computed again.

    ## Known limits

    Gradients that are read on the host between the steps without a kernel, for example for a log, look unread.

    - https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
    """

    code, name, severity = "MEM212", "late-zero-grad", Severity.WARNING
    example = """\
import torch
from torch import nn

from memlint.targets.declare import Declaration


def step(model, inputs, optimizer):
    loss = model(**inputs).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def memlint_workload():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)))
    return Declaration(
        model,
        {"input": torch.randn(1024, 1024)},
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        step=step,
    )
"""
    bad = (Case(example, line=11),)
    good = (
        bad[0].but(
            {"    optimizer.zero_grad()\n": "", "optimizer.step()": "optimizer.step()\n    optimizer.zero_grad()"}
        ),
        bad[0].but(
            {"    optimizer.zero_grad()\n": "", "optimizer):": "optimizer):\n    optimizer.zero_grad()"},
            title="Before the forward is as good",
        ),
        bad[0].but(
            {
                "    optimizer.zero_grad()\n": "",
                "    optimizer.step()": "    if inputs is None:\n        optimizer.step()\n    optimizer.zero_grad()",
            },
            title="Gradients are added up over steps",
        ),
    )

    def check(self, context: Context) -> Findings:
        """Yield one finding for all late gradients, at the optimizer's step."""
        late = [buffer for buffer in context.trace.buffers if _is_late(context.trace, buffer)]
        if not late:
            return
        done = {node.step: node for node in context.trace.nodes if node.phase is Phase.OPTIMIZER}
        last_nodes = {b.id: max(b.last_used, done[b.step].index if b.step in done else b.last_used) for b in late}
        timeline = context.timeline
        nbytes = most_alive(timeline, last_nodes)
        optimizer = done.get(late[0].step)
        yield self.finding(
            context,
            optimizer.frame if optimizer else late[0].frame,
            f"{format_nbytes(nbytes)} of gradients stay alive after the optimizer has used them, until the next "
            "forward is running.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, end_at(timeline, last_nodes)),
            confidence=Confidence.EXACT_LIFETIME,
            fix="Call `optimizer.zero_grad()` right after `optimizer.step()`, or before the forward.",
        )


def _is_late(trace: Trace, buffer: Buffer) -> bool:
    """Return True if a gradient is last used in its own step and freed after the next step's forward began."""
    following = buffer.step + 1
    if buffer.category is not Category.GRADIENT or buffer.died is None or not 0 < following < trace.num_steps:
        return False
    first = trace.step_nodes[following]
    return buffer.last_used < first <= trace.event_nodes[buffer.died]
