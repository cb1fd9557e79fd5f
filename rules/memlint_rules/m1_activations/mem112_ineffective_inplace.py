from math import prod

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Category, Node
from memlint.memory.timeline import resize
from memlint_rules.support.flow import MIN_NBYTES, Flow, grouped, most_alive, numel, peak_change


class IneffectiveInplace(TraceRule):
    """Dropout in place keeps noise in the input's dtype for backward; out of place it keeps one byte per element.

    Looks on CUDA for dropout with `inplace=True` in training: kernels that fill a tensor with random zeros and ones,
    scale it and multiply the input by it in place, and keep that tensor for backward.

    ## Why it costs memory

    CUDA has one kernel for dropout that keeps one byte per element for backward. That kernel returns a new tensor, so
    PyTorch does not use it in place: the noise is then a tensor of the input's dtype, four bytes per element in
    float32. `inplace=True` saves nothing in return, because the input is freed anyway as soon as nothing needs it.

    ## How the saving is computed

    Each such tensor is reduced to one byte per element, and the peak is computed again.

    ## Known limits

    `inplace=True` of SiLU, Hardswish, ReLU6 and Mish has no effect on memory in training, because autograd copies the
    input first; this is not reported, since removing it changes nothing either.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html
    """

    code, name, severity = "MEM112", "ineffective-inplace", Severity.WARNING
    example = Case.of_layers(
        {
            "layers": "nn.ModuleList(nn.Linear(1024, 1024) for _ in range(3))",
            "dropout": "nn.Dropout(0.1, inplace=True)",
        },
        "for layer in self.layers:\n    x = self.dropout(layer(x))\nreturn x",
        {"x": "torch.randn(16384, 1024)"},
        line=13,
    )
    bad = (example, example.but(title="In bfloat16", dtype="bfloat16"))
    good = (
        example.but({"nn.Dropout(0.1, inplace=True)": "nn.Dropout(0.1)"}),
        example.but(
            {"nn.Dropout(0.1, inplace=True)": "nn.SiLU(inplace=True)"}, title="In place, and without effect on memory"
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        if not context.device.is_cuda:
            return
        flow = Flow.of(trace)
        drawn = ((node, trace.buffers[node.outputs[0].buffer]) for node in flow.forward("aten.bernoulli_.float"))
        lines = grouped(
            (node.frame, noise)
            for node, noise in drawn
            if noise.category is Category.ACTIVATION and _scales_in_place(flow, node)
        )
        for frame, group in lines.items():
            nbytes = most_alive(context.timeline, [noise.id for noise in group])
            if nbytes < MIN_NBYTES:
                continue
            number = sum(noise.step == trace.num_steps - 1 for noise in group)
            yield self.finding(
                context,
                frame,
                f"Dropout works in place here ({number} per step) and keeps its noise in {group[0].dtype} for "
                f"backward, {format_nbytes(nbytes)} at one time; out of place CUDA keeps one byte per element.",
                nbytes=nbytes,
                peak_change=peak_change(
                    context.timeline, resize(context.timeline, {noise.id: prod(noise.shape) for noise in group})
                ),
                fix="Remove `inplace=True` from the dropout.",
            )


def _scales_in_place(flow: Flow, drawn: Node) -> bool:
    """Return True if the noise is divided by the probability and then multiplied into another tensor."""
    noise = drawn.outputs[0].buffer
    ops = [reader for reader in flow.readers(noise, drawn.index) if reader.phase in FORWARDS]
    return [reader.op for reader in ops] == ["aten.div_.Tensor", "aten.mul_.Tensor"] and (
        ops[1].outputs[0].buffer != noise and numel(ops[1].outputs[0]) == numel(drawn.outputs[0])
    )
