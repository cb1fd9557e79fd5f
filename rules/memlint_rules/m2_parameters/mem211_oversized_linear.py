from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Buffer, Category, Node, Trace
from memlint.memory.timeline import resize
from memlint_rules.support.flow import most_alive, peak_change
from memlint_rules.support.parameters import belonging, temporaries_of

MIN_SHARE = 0.25
"""Minimum share of the bytes of all parameters."""

_PRODUCTS = frozenset({"aten.addmm.default", "aten.mm.default"})


class OversizedLinear(TraceRule):
    """A Linear over a flattened feature map has a large share of the parameters.

    Looks for matrix products whose input is a flattened feature map of [batch, channels, height, width] that the model
    computed, and whose weight holds a quarter or more of the bytes of all parameters.

    ## Why it costs memory

    The weight has a row for every pixel of every channel: 512 x 7 x 7 inputs and 4096 outputs take 392 MiB in float32,
    four times that in training with Adam. After averaging over the pixels, the map needs only a row for every channel.

    ## How the saving is computed

    The weight, its gradient, its state and its temporaries in the optimizer are divided by the number of pixels, and
    the peak is computed again.

    ## Known limits

    This is a different model, and existing weights do not fit it. The memory of the average itself is not counted.

    - https://arxiv.org/abs/1312.4400
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html
    """

    code, name, severity = "MEM211", "oversized-linear", Severity.INFO
    bad = (
        Case.of_layers(
            {"conv": "nn.Conv2d(3, 256, 7, stride=4)", "head": "nn.Linear(256 * 16 * 16, 256)"},
            """\
x = torch.relu(self.conv(x))
return self.head(x.flatten(1))""",
            {"x": "torch.randn(8, 3, 67, 67)"},
            line=13,
        ),
    )
    good = (
        bad[0].but(
            {
                "self.head = nn.Linear(256 * 16 * 16, 256)": (
                    "self.pool = nn.AdaptiveAvgPool2d(1)\n        self.head = nn.Linear(256, 256)"
                ),
                "return self.head(x.flatten(1))": "return self.head(self.pool(x).flatten(1))",
            }
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        parameters = sum(b.nbytes for b in trace.buffers if b.category is Category.PARAMETER)
        timeline = context.timeline
        oversized = {each.weight.id: each for node in trace.nodes if (each := _oversized(trace, node, parameters))}
        for node, weight, (channels, height, width) in oversized.values():
            pixels = height * width
            kept = belonging(trace, {weight.name})
            sizes = {
                b.id: b.nbytes // pixels for b in (*kept, *temporaries_of(trace, weight)) if b.shape == weight.shape
            }
            nbytes = most_alive(timeline, [b.id for b in kept])
            what = "with gradient and optimizer state" if nbytes > weight.nbytes else "these are"
            yield self.finding(
                context,
                node.frame,
                f"`{weight.name}` takes {weight.nbytes / parameters:.0%} of the parameters, because its input is a map "
                f"of {channels} x {height} x {width}; {what} {format_nbytes(nbytes)}.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix="For a new model, average the map over its pixels first (`torch.nn.AdaptiveAvgPool2d(1)`, the "
                "figure given here) or pool it further, or factor the Linear into two.",
            )


class _Oversized(NamedTuple):
    product: Node
    weight: Buffer
    feature_map: tuple[int, int, int]


def _oversized(trace: Trace, node: Node, parameters: int) -> _Oversized | None:
    if node.op not in _PRODUCTS or node.phase not in FORWARDS:
        return None
    features, weight = node.inputs[-2:]
    if features.buffer < 0 or weight.buffer < 0:
        return None
    source, parameter = trace.buffers[features.buffer], trace.buffers[weight.buffer]
    if (
        parameter.category is not Category.PARAMETER
        or source.category is Category.INPUT
        or parameter.nbytes < MIN_SHARE * parameters
        or len(source.shape) != 4
        or source.shape[2] * source.shape[3] == 1
        or features.shape != (source.shape[0], source.shape[1] * source.shape[2] * source.shape[3])
    ):
        return None
    _, channels, height, width = source.shape
    return _Oversized(node, parameter, (channels, height, width))
