from memlint.base.units import format_nbytes
from memlint.lint.rule import MANY_NODES, Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Buffer, Category, Phase
from memlint.memory.timeline import alive_at, peak_event, without
from memlint.whatif.changes import OptimizerImplementation
from memlint_rules.support.flow import peak_change

_REMEDIES = (
    (OptimizerImplementation(foreach=False, fused=True), "`fused=True`"),
    (OptimizerImplementation(foreach=False, fused=False), "`foreach=False`"),
)


class OptimizerStepTemporaries(TraceRule):
    """The temporaries of the optimizer's foreach implementation, as large as all parameters, make the peak.

    Looks for temporaries that `torch._foreach_*` kernels made and that are alive at the peak, when the peak is in the
    optimizer's step.

    ## Why it costs memory

    On CUDA the optimizers of PyTorch run their foreach implementation unless told otherwise. It updates all parameters
    together, so an intermediate such as the square root of Adam's second moment exists for all of them at once: one
    more copy of the parameters, two for Adagrad and Adadelta. The fused kernels need none; a loop over the parameters
    needs the intermediates of only one parameter at a time.

    ## How the saving is computed

    The step is traced again with `fused=True`, or with `foreach=False` if the optimizer has no fused kernel. If a trace
    has more than 6,000 kernels, the temporaries are removed from it instead, and the peak is computed again.

    ## Known limits

    If the peak is elsewhere nothing is reported, because it would not fall. `foreach=False` makes the step slower;
    `fused=True` does not. Optimizers from outside PyTorch may support neither argument.

    - https://docs.pytorch.org/docs/stable/optim.html
    - https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html
    """

    code, name, severity = "MEM204", "optimizer-step-temporaries", Severity.WARNING
    rests_on = "optimizer"
    bad = (
        Case.of_layers(
            {"layers": "nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))"},
            "return self.layers(x)",
            {"x": "torch.randn(2, 1024)"},
        ),
    )
    good = (
        bad[0].but(
            {
                "from torch import nn": "from torch import nn\n\nfrom memlint.targets.declare import Declaration",
                'return Model(), {"x": torch.randn(2, 1024)}': """return Declaration(
        Model(),
        {"x": torch.randn(2, 1024)},
        optimizer=lambda parameters: torch.optim.AdamW(parameters, fused=True),
    )""",
            }
        ),
    )

    def check(self, context: Context) -> Findings:
        trace, estimate = context.trace, context.estimate
        if estimate.phase is not Phase.OPTIMIZER:
            return
        temporaries = [
            buffer
            for buffer in alive_at(context.timeline, peak_event(context.timeline))
            if _is_foreach_temporary(buffer)
        ]
        if not temporaries:
            return
        is_large = len(trace.nodes) > MANY_NODES
        remedy = _left_out(context) if is_large else _traced(context)
        if remedy is None:
            return
        change, text = remedy
        nbytes = sum(buffer.nbytes for buffer in temporaries)
        first = trace.nodes[estimate.peak_node]
        yield self.finding(
            context,
            first.frame,
            f"The peak is in the optimizer's step, where foreach kernels keep {format_nbytes(nbytes)} of temporaries "
            f"({first.op}).",
            nbytes=nbytes,
            peak_change=change,
            confidence=Confidence.MODELLED if is_large else Confidence.EXACT_RETRACE,
            fix=f"Construct the optimizer with {text}.",
        )


def _is_foreach_temporary(buffer: Buffer) -> bool:
    return buffer.category is Category.TEMPORARY and "_foreach_" in buffer.op


def _traced(context: Context) -> tuple[int, str] | None:
    """Return the largest change of the peak by a remedy, and the remedy; None if none applies."""
    changes: list[tuple[int, str]] = []
    for remedy, text in _REMEDIES:
        answer = context.what_if(remedy)
        if answer is not None:
            changes.append((answer.peak_change, text))
            if changes[-1][0] < 0:
                break
    return min(changes, default=None)


def _left_out(context: Context) -> tuple[int, str]:
    timeline = context.timeline
    temporaries = [buffer.id for buffer in timeline.buffers if _is_foreach_temporary(buffer)]
    change = peak_change(timeline, without(timeline, temporaries))
    return change, "`fused=True`, or with `foreach=False` where it has no fused kernel"
