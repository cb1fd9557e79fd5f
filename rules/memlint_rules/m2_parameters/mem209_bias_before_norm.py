from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Buffer, Category, Node, Phase, Trace
from memlint.memory.timeline import without
from memlint_rules.support.flow import peak_change
from memlint_rules.support.parameters import belonging

_CONVOLUTION = "aten.convolution.default"
_NORMS = frozenset({"aten.cudnn_batch_norm.default", "aten.native_batch_norm.default"})
"""InstanceNorm runs these too, with each channel of each sample as a channel."""


class BiasBeforeNorm(TraceRule):
    """A convolution before BatchNorm or InstanceNorm has a bias without effect.

    Looks for convolutions with a trained bias whose output is read only by a BatchNorm in training mode, or by an
    InstanceNorm.

    ## Why it costs memory

    It hardly does: a bias takes four bytes per channel, four times that with its gradient and the state of Adam. It has
    no effect on the output, and a kernel computes its gradient in every backward.

    ## How the saving is computed

    The biases, their gradients and their state are removed, and the peak is computed again. Under autocast this is an
    approximation, because the casts of the biases stay.

    ## Known limits

    Weights trained with a bias cannot be loaded without it. In evaluation mode of BatchNorm the bias does have an
    effect, unless it is subtracted from the running mean.

    - https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
    """

    code, name, severity = "MEM209", "bias-before-norm", Severity.INFO
    example = Case.of_layers(
        {"conv": "nn.Conv2d(3, 64, 3)", "norm": "nn.BatchNorm2d(64)"},
        "return self.norm(self.conv(x)).relu()",
        {"x": "torch.randn(4, 3, 64, 64)"},
        line=12,
    )
    bad = (example, example.but({"= nn.BatchNorm2d(64)": "= nn.InstanceNorm2d(64)"}, title="InstanceNorm", line=12))
    good = (
        example.but({"self.conv = nn.Conv2d(3, 64, 3)": "self.conv = nn.Conv2d(3, 64, 3, bias=False)"}),
        example.but({"= nn.BatchNorm2d(64)": "= nn.GroupNorm(8, 64)"}, title="GroupNorm keeps it"),
        example.but(
            {
                "return self.norm(self.conv(x)).relu()": (
                    "self.norm.eval()\n        return self.norm(self.conv(x)).relu()"
                )
            },
            title="The statistics are fixed",
        ),
    )

    def check(self, context: Context) -> Findings:
        """Yield one finding for all such biases, at the first."""
        trace = context.trace
        trained = {b.name for b in trace.buffers if b.category is Category.GRADIENT}
        if context.workload.mode != "train" or not trained or not any(node.op in _NORMS for node in trace.nodes):
            return
        biased = [(bias.name, node) for node in trace.nodes if (bias := _bias(trace, node)) and bias.name in trained]
        if not biased:
            return
        normalised = _only_normalised(trace, {node.outputs[0].buffer for _, node in biased})
        biases: dict[str, Node] = {}
        norms: dict[str, None] = {}
        for name, node in biased:
            if node.outputs[0].buffer in normalised:
                biases.setdefault(name, node)
                norms[_name(trace, normalised[node.outputs[0].buffer])] = None
        if not biases:
            return
        timeline = context.timeline
        needless = belonging(trace, biases)
        is_cast = any(trace.buffers[node.inputs[2].buffer].name not in biases for node in biases.values())
        nbytes = sum(b.nbytes for b in needless if b.step <= 0)
        names = list(biases)
        which = f"`{names[0]}` has" if len(names) == 1 else f"{len(names)} biases, `{names[0]}` to `{names[-1]}`, have"
        yield self.finding(
            context,
            biases[names[0]].frame,
            f"{which} no effect, because each channel loses its mean in {' and '.join(norms)}; with gradients and "
            f"optimizer state {format_nbytes(nbytes)}.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, without(timeline, [b.id for b in needless])),
            confidence=Confidence.MODELLED if is_cast else Confidence.EXACT_LIFETIME,
            fix="Construct the convolution with `bias=False`.",
        )


def _bias(trace: Trace, node: Node) -> Buffer | None:
    """Return the parameter that a convolution in forward adds as its bias, cast by autocast or not."""
    if node.op != _CONVOLUTION or node.phase is not Phase.FORWARD or len(node.inputs) < 3:
        return None
    geometry = node.inputs[2]
    if geometry.buffer < 0 or len(geometry.shape) != 1:
        return None
    bias = trace.buffers[geometry.buffer]
    if bias.category is not Category.PARAMETER and bias.op == "aten._to_copy.default":
        source = trace.nodes[bias.node].inputs[0].buffer
        bias = trace.buffers[source] if source >= 0 else bias
    return bias if bias.category is Category.PARAMETER else None


def _only_normalised(trace: Trace, buffers: set[int]) -> dict[int, Node]:
    """Return, with the norm, those of `buffers` that forward only reads to normalise them with their own statistics."""
    normalised: dict[int, Node] = {}
    others: set[int] = set()
    for node in trace.nodes:
        if node.phase is Phase.FORWARD:
            read = {g.buffer for g in node.inputs if g.buffer in buffers}
            if node.op in _NORMS and _computes_statistics(node):
                normalised.update(dict.fromkeys(read, node))
            else:
                others |= read
    return {buffer: norm for buffer, norm in normalised.items() if buffer not in others}


def _name(trace: Trace, norm: Node) -> str:
    """Return the class of the layer, if the norm is a layer."""
    kind = dict(trace.modules).get(norm.module, "")
    return kind if "Norm" in kind else norm.op.split(".")[1]


def _computes_statistics(norm: Node) -> bool:
    """Return True if the norm computes the batch's mean, as it does in training."""
    return len(norm.outputs) > 2 and len(norm.outputs[1].shape) == 1 and norm.outputs[1].shape[0] > 0
