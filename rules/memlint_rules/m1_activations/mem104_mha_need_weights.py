from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.timeline import resize
from memlint_rules.support.attention import fused_sizes, match_attention, unread_average
from memlint_rules.support.flow import MIN_NBYTES, Flow, grouped, most_alive, peak_change


class MhaNeedWeights(TraceRule):
    """`nn.MultiheadAttention` computes attention weights that nothing reads.

    Looks for a `MultiheadAttention` whose weights, averaged over the heads, no kernel reads.

    ## Why it costs memory

    `need_weights=True` is the default. To return the weights the module must compute them by matrix product, softmax
    and product, with tensors that grow with the square of the length and are kept for backward. With
    `need_weights=False` it calls `scaled_dot_product_attention`, which does not need them.

    ## How the saving is computed

    As for materialised attention (MEM103): the storages of that size are replaced by the tensors that a fused kernel
    saves, and the mean over the heads is removed. The peak is computed again.

    ## Known limits

    Weights that are kept and read after the step, for a plot, are reported too. With `average_attn_weights=False` there
    is no mean by which to recognise the module, and MEM103 reports the attention.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html
    """

    code, name, severity = "MEM104", "mha-need-weights", Severity.WARNING
    bad = (
        Case.of_layers(
            {"attention": "nn.MultiheadAttention(64, 4, batch_first=True)"},
            """\
y, _ = self.attention(x, x, x)
return x + y""",
            {"x": "torch.randn(8, 512, 64)"},
            name="Block",
            line=11,
        ),
    )
    good = (
        bad[0].but({"y, _ = self.attention(x, x, x)": "y, _ = self.attention(x, x, x, need_weights=False)"}),
        bad[0].but(
            {
                "y, _ = self.attention(x, x, x)": "y, weights = self.attention(x, x, x)",
                "return x + y": "return x + y + weights.square().mean()",
            },
            title="The weights are used",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        if not any("MultiheadAttention" in kind for _, kind in trace.modules):
            return
        flow, timeline = Flow.of(trace), context.timeline
        attentions = (match_attention(flow, softmax) for softmax in flow.forward("aten._softmax.default"))
        averages = ((each, unread_average(flow, each)) for each in attentions if each)
        lines = grouped((each.softmax.frame, (each, average)) for each, average in averages if average)
        for frame, group in lines.items():
            sizes = fused_sizes(trace, [attention for attention, _ in group])
            sizes |= {geometry.buffer: 0 for _, average in group for geometry in average.outputs}
            nbytes = most_alive(timeline, sizes)
            if nbytes < MIN_NBYTES:
                continue
            shape = list(group[0][0].softmax.outputs[0].shape)
            modules = len({average.module for _, average in group})
            yield self.finding(
                context,
                frame,
                f"{modules} `MultiheadAttention` {'modules' if modules > 1 else 'module'} called here return weights "
                f"that nothing reads; computing them takes {format_nbytes(nbytes)} at one time, in tensors of shape "
                f"{shape}.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix="Call the module with `need_weights=False`.",
            )
