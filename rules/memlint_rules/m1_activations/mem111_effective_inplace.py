from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Category, Node
from memlint.memory.timeline import merge
from memlint_rules.support.flow import Flow, grouped, most_alive, peak_change

SAVES_EITHER = {
    "aten.leaky_relu.default": "aten.leaky_relu_backward.default",
    "aten.elu.default": "aten.elu_backward.default",
}
"""Kernels, with their backward, that uses the input, or the result if in place (tools/autograd/derivatives.yaml)."""

HAS_IN_PLACE = frozenset(
    f"aten.{op}.default"
    for op in ("relu", "leaky_relu", "elu", "silu", "mish", "hardswish", "hardtanh", "hardsigmoid", "sigmoid", "tanh")
)
"""Kernels that can overwrite their input if no gradients are computed."""


class EffectiveInplace(TraceRule):
    """An activation keeps input and output for backward; in place it would keep one tensor.

    Looks in training for LeakyReLU and ELU whose input nothing else reads, and without gradients for any activation
    that is the last reader of its input. It reports them if the peak falls when input and output are one tensor.

    ## Why it costs memory

    The backward of LeakyReLU and ELU can be computed from the input or from the result. Out of place, PyTorch saves the
    input, and the next operation usually saves the output as well. In place, one tensor serves both.

    This holds for few activations. ReLU saves its output in either case, so `inplace=True` changes nothing after a
    convolution or a normalisation. SiLU, Hardswish, ReLU6 and Mish need their input in backward and copy it first.

    ## How the saving is computed

    Input and output become one storage, alive from the birth of the first to the death of the last, in every step, and
    the peak is computed again.

    ## Known limits

    An input that is also used elsewhere, held by a variable, or part of a larger tensor is not reported, because
    overwriting it would change a result or fail in backward. The saving counts all activations on the line together.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.LeakyReLU.html
    - https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-operations-with-autograd
    """

    code, name, severity = "MEM111", "effective-inplace", Severity.INFO
    example = Case.of_layers(
        {
            "blocks": "nn.Sequential(*(nn.Sequential(nn.Conv2d(n, 64, 3, 1, 1), nn.LeakyReLU(0.1)) for n in (3, 64)))",
            "head": "nn.Conv2d(64, 1, 3)",
        },
        "return self.head(self.blocks(images))",
        {"images": "torch.randn(8, 3, 128, 128)"},
        name="Discriminator",
        line=12,
    )
    bad = (example, example.but({"nn.LeakyReLU(0.1)": "nn.ELU()"}, title="ELU"))
    good = (
        example.but({"nn.LeakyReLU(0.1)": "nn.LeakyReLU(0.1, inplace=True)"}),
        example.but({"nn.LeakyReLU(0.1)": "nn.ReLU()"}, title="ReLU saves its output in either case"),
        Case.of_layers(
            {"first": "nn.Linear(512, 512)", "second": "nn.Linear(512, 512)"},
            "hidden = self.first(x)\nreturn self.second(nn.functional.leaky_relu(hidden)) + hidden",
            {"x": "torch.randn(4096, 512)"},
            title="The input is used again",
        ),
    )

    def check(self, context: Context) -> Findings:
        ops = SAVES_EITHER if context.workload.mode == "train" else HAS_IN_PLACE
        flow = Flow.of(context.trace)
        lines = grouped((node.frame, node) for node in flow.forward(*ops) if _may_write_over_input(flow, node))
        for frame, group in lines.items():
            pairs = {node.outputs[0].buffer: node.inputs[0].buffer for node in group}
            change = peak_change(context.timeline, merge(context.timeline, pairs))
            if change >= 0:
                continue
            number = sum(node.step == context.trace.num_steps - 1 for node in group)
            kinds = " and ".join(sorted({node.op.split(".")[1] for node in group}))
            nbytes = most_alive(context.timeline, pairs)
            yield self.finding(
                context,
                frame,
                f"{kinds} here ({number} per step) keeps its input and its output, {format_nbytes(nbytes)} of each; in "
                "place it keeps one tensor.",
                nbytes=nbytes,
                peak_change=change,
                confidence=Confidence.EXACT_LIFETIME,
                fix="Construct the activation with `inplace=True`, or call it as `F.leaky_relu(x, inplace=True)`.",
            )


def _may_write_over_input(flow: Flow, node: Node) -> bool:
    """Return True if only this activation and its backward read the input, and nothing keeps it longer."""
    source, output = node.inputs[0], node.outputs[0]
    if source.buffer < 0 or output.buffer < 0 or (source.shape, source.stride) != (output.shape, output.stride):
        return False
    buffer, result = flow.trace.buffers[source.buffer], flow.trace.buffers[output.buffer]
    if buffer.category not in (Category.ACTIVATION, Category.TEMPORARY) or buffer.nbytes != result.nbytes:
        return False
    later = list(flow.readers(source.buffer, node.index))
    if buffer.died is None or len(later) > 1 or any(reader.op != SAVES_EITHER.get(node.op) for reader in later):
        return False
    last = later[-1] if later else node
    return flow.trace.event_nodes[buffer.died] <= last.index
