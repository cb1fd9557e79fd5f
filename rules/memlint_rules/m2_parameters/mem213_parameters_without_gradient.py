from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Finding, Findings, Severity, TraceRule, place_of
from memlint.memory.records import Buffer, Phase

MIN_SHARE = 0.5
"""Minimum share of bytes in an optimizer: a few parts of a model may have no gradient on purpose."""


class ParametersWithoutGradient(TraceRule):
    """Most parameters of an optimizer take part in the forward but never get a gradient.

    Looks for optimizers with parameters that get a gradient, while at least half of them, by bytes, require one and are
    read in the forward but never get one.

    ## Why it costs memory

    It does not: the sign of this mistake is a peak that is too low. A checkpoint with `use_reentrant=True` runs its
    function under `torch.no_grad` and is part of the graph only if one of its inputs requires a gradient. Around the
    first layers none does, and all parameters inside stay at their initial values. A forward under `no_grad`, or a
    `detach` in the middle of a model, does the same.

    ## How the saving is computed

    There is no saving: a step that trains these parameters takes more memory. The finding reports the bytes of the
    parameters.

    ## Known limits

    If memlint chose the loss, nothing is reported: a real one may reach these parameters. Optimizers without any
    gradient, such as the generator's during a discriminator step, are left out.

    - https://docs.pytorch.org/docs/stable/checkpoint.html
    - https://github.com/pytorch/pytorch/issues/147449
    """

    code, name, severity = "MEM213", "parameters-without-gradient", Severity.WARNING
    model = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
        self.head = nn.Linear(512, 8)

    def forward(self, x):
        return {"loss": self.head(checkpoint(self.body, x, use_reentrant=True)).mean()}
"""
    bad = (
        Case.of_model(
            model, 'Model(), {"x": torch.randn(64, 512)}', imports="from torch.utils.checkpoint import checkpoint\n"
        ),
    )
    good = (
        bad[0].but({"use_reentrant=True": "use_reentrant=False"}),
        bad[0].but({"self.body, x,": "self.body, x.requires_grad_(),"}, title="An input requires a gradient"),
        bad[0].but(
            {
                "        self.head = nn.Linear(512, 8)\n": "        self.head = nn.Linear(512, 8)\n        "
                "self.body.requires_grad_(False)\n"
            },
            title="They are frozen",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        if "loss" in context.assumed:
            return
        reading = (node for node in trace.nodes if node.step >= 0 and node.phase is Phase.FORWARD)
        read = {geometry.buffer for node in reading for geometry in node.inputs}
        for group in trace.trained:
            trained = [trace.buffers[number] for number in sorted(group) if trace.buffers[number].name]
            without = [each for each in trained if each.id in read - trace.with_gradient]
            is_any_trained = not trace.with_gradient.isdisjoint(each.id for each in trained)
            if is_any_trained and _nbytes(without) >= MIN_SHARE * _nbytes(trained):
                yield self._report(context, without, len(trained))

    def _report(self, context: Context, without: list[Buffer], num_trained: int) -> Finding:
        ids = {each.id for each in without}
        nodes = (node for node in context.trace.nodes if node.step >= 0)
        first = next(node for node in nodes if any(geometry.buffer in ids for geometry in node.inputs))
        return Finding(
            code=self.code,
            **place_of(first.frame, context),
            message=f"{len(without)} of {num_trained} parameters of the optimizer, {format_nbytes(_nbytes(without))}, "
            f"take part in the forward and never get a gradient, `{without[0].name}` first of all: they are not "
            "trained, and the peak is lower for that reason alone.",
            severity=self.severity,
            confidence=Confidence.EXACT_LIFETIME,
            nbytes=_nbytes(without),
            peak_change=None,
            fix="Checkpoint with `use_reentrant=False`, which needs no input that requires a gradient; look for "
            "`torch.no_grad` and `detach` around them; or freeze them, `requires_grad_(False)`, if that is meant.",
        )


def _nbytes(buffers: list[Buffer]) -> int:
    return sum(buffer.nbytes for buffer in buffers)
