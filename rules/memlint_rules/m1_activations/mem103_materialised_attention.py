from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.timeline import resize
from memlint_rules.support.attention import fused_sizes, match_attention, unread_average
from memlint_rules.support.flow import Flow, grouped, most_alive, peak_change


class MaterialisedAttention(TraceRule):
    """Attention writes scores of length x length to memory; a fused kernel does not.

    Follows the data from one batched matrix product through elementwise kernels to a softmax over at least 32 by 32
    positions, and on to a second product. The kernels may be on any lines and in any modules. Attention whose
    probabilities are also used elsewhere is not reported, because a fused kernel does not return them. Nor is an
    `nn.MultiheadAttention` whose weights nothing reads: that is MEM104.

    ## Why it costs memory

    The scores have one element per head and pair of positions, so they grow with the square of the length. Each of
    scaling, masking, softmax and dropout makes another tensor of that size, and softmax, dropout and the second product
    save theirs for backward. The fused kernels behind `scaled_dot_product_attention` work through the scores in tiles,
    and save the output and one number per row.

    ## How the saving is computed

    In every step, the storages of that size in forward and backward are removed and replaced by the tensors that a
    fused kernel saves (its output and the logarithm of each row's sum) and by a float32 gradient of the queries in
    backward. If a parameter is added to the scores, its full-size gradient stays. The peak is computed again.

    ## Known limits

    Whether a fused kernel supports the call depends on the device, dtype, head size and mask; see the references. With
    `enable_gqa=True` none does in float32. Copies of queries, keys and values that the products need but fused kernels
    do not are kept, so the real saving can be larger.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
    - https://arxiv.org/abs/2205.14135
    """

    code, name, severity = "MEM103", "materialised-attention", Severity.WARNING
    example = Case.of_layers(
        {"projection": "nn.Linear(64, 192)"},
        """\
batch, length, width = x.shape
q, k, v = self.projection(x).view(batch, length, 3, 4, 16).permute(2, 0, 3, 1, 4)
x = (q @ k.mT / 4).softmax(-1) @ v
return x.transpose(1, 2).flatten(2)""",
        {"x": "torch.randn(8, 512, 64)"},
        name="Attention",
        imports="from torch.nn import functional as F\n",
        line=14,
    )
    bad = (
        example,
        example.but(
            {
                "x = (q @ k.mT / 4).softmax(-1) @ v": (
                    "mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()\n"
                    '        scores = (q @ k.mT / 4).masked_fill(~mask, float("-inf"))\n'
                    "        x = F.dropout(scores.softmax(-1), 0.1) @ v"
                )
            },
            title="With a mask and dropout",
        ),
    )
    good = (
        example.but({"x = (q @ k.mT / 4).softmax(-1) @ v": "x = F.scaled_dot_product_attention(q, k, v)"}),
        example.but(
            {
                "x = (q @ k.mT / 4).softmax(-1) @ v": """weights = (q @ k.mT / 4).softmax(-1)
        x = weights @ v + weights.square().mean()"""
            },
            title="The probabilities are used for more than the product",
        ),
        example.but(
            {
                "x = (q @ k.mT / 4).softmax(-1) @ v": """total = weights = (q @ k.mT / 4).softmax(-1)
        for _ in range(40):
            total = total + weights
        x = total @ v"""
            },
            title="Weights that a loop adds up",
        ),
        Case.of_layers(
            {"scores": "nn.Linear(64, 512)", "values": "nn.Linear(512, 64)"},
            "return self.values(self.scores(x).softmax(-1))",
            {"x": "torch.randn(8, 512, 64)"},
            title="A softmax over classes is no attention",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace, timeline, flow = context.trace, context.timeline, Flow.of(context.trace)
        attentions = (match_attention(flow, node) for node in flow.forward("aten._softmax.default"))
        lines = grouped((each.softmax.frame, each) for each in attentions if each and not unread_average(flow, each))
        for frame, matches in lines.items():
            number = sum(match.softmax.step == trace.num_steps - 1 for match in matches)
            sizes = fused_sizes(trace, matches)
            nbytes = most_alive(timeline, sizes)
            shape = matches[0].softmax.outputs[0].shape
            times = f" {number} times per step" if number > 1 else ""
            yield self.finding(
                context,
                frame,
                f"Attention is computed here{times} from scores of shape {list(shape)} in memory; tensors of that size "
                f"take {format_nbytes(nbytes)} at once.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix="Call `torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=..., is_causal=...)`. "
                'Hugging Face models do with `attn_implementation="sdpa"`.',
            )
