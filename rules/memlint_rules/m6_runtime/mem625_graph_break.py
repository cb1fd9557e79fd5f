from memlint.base.units import format_count, format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.whatif.changes import WithoutBreaks


class GraphBreak(TraceRule):
    """A line that TorchDynamo leaves to Python breaks a compiled graph in two, which costs notable memory.

    Looks for graph breaks that settings of TorchDynamo avoid: `.item()` and other numbers read from tensors, shapes
    that depend on values, and `print`. Reports the first of them if the peak then falls.

    ## Why it costs memory

    Every tensor that is needed after the break has to exist, where it might have been fused away; and backward of the
    second graph knows nothing of the first, so each saves what it needs for itself.

    ## How the saving is computed

    The step is traced and compiled again with `torch._dynamo.config.capture_scalar_outputs` and
    `capture_dynamic_output_shape_ops`, and `print` among the `reorderable_logging_functions`.

    ## Known limits

    Breaks that these settings do not avoid, such as a branch that depends on the values of a tensor or a library's own
    kernel, are named among the assumptions; what they cost is not known.

    - https://docs.pytorch.org/docs/stable/torch.compiler_faq.html#graph-breaks
    """

    code, name, severity = "MEM625", "graph-break", Severity.WARNING
    bad = (
        Case.of_layers(
            {"up": "nn.Linear(256, 1024)", "down": "nn.Linear(1024, 256)"},
            "hidden = self.up(x).sin()\nscale = hidden.mean().item()\nreturn self.down((hidden * 2).cos() + scale)",
            {"x": "torch.randn(16384, 256)"},
        ).but({"return Model(),": "return torch.compile(Model()),"}, line=13),
    )
    good = (
        bad[0].but({".item()": ""}, title="A tensor that stays on the GPU"),
        bad[0].but({"torch.compile(Model())": "Model()"}, title="Not compiled"),
        bad[0].but({"torch.randn(16384, 256)": "torch.randn(16, 256)"}, title="Few bytes"),
    )

    def check(self, context: Context) -> Findings:
        breaks = context.trace.graph_breaks
        answer = context.what_if(WithoutBreaks()) if breaks else None
        if answer is None or not is_notable(answer.peak_change, context.estimate.requested.estimate):
            return
        others = f" and at {format_count(len(breaks) - 1, 'other line')}" if len(breaks) > 1 else ""
        yield self.finding(
            context,
            breaks[0],
            f"Compiled code breaks here{others}: in one graph the step would take "
            f"{format_nbytes(-answer.peak_change)} less.",
            nbytes=-answer.peak_change,
            peak_change=answer.peak_change,
            confidence=Confidence.EXACT_RETRACE,
            fix="Read no number and print nothing in compiled code, or set "
            "`torch._dynamo.config.capture_scalar_outputs = True`.",
        )
