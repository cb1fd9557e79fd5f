from math import prod

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Frame, Node, Phase, Trace
from memlint.memory.timeline import resize
from memlint_rules.support.composites import RMS_NORM, ROOTS, Composite, composite_around
from memlint_rules.support.flow import MIN_NBYTES, Flow, grouped, made, most_alive, numel, peak_change

FIRST_FUSED_RMS_NORM = (2, 9)
"""Version of PyTorch in which `rms_norm` became one kernel on CUDA."""

_NOT_ELEMENTWISE = ("mm.default", "bmm.default", "convolution_backward.default", "_softmax_backward_data.default")

_MODEL = """\
import math

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 1024)
        self.weight = nn.Parameter(torch.ones(1024))
        self.down = nn.Linear(1024, 256)

    def forward(self, x):
        hidden = self.up(x)
        {}
        return x + self.down(hidden)


def memlint_workload():
    return nn.Sequential(*(Mlp() for _ in range(4))), torch.randn(8192, 256)
"""


class UnfusedComposite(TraceRule):
    """An activation or normalisation is written out in elementary operations that each keep tensors for backward.

    Recognises GELU, SiLU, Mish, layer normalisation, RMS normalisation and the logarithm of a softmax written in
    elementary operations, by the flow of data from kernel to kernel.

    ## Why it costs memory

    Autograd sees each operation separately. GELU by its formula keeps four or more tensors of the size of its input,
    and its backward allocates as many again; the kernel behind `torch.nn.functional.gelu` keeps only the input. The
    kernels of SiLU, Mish and the normalisations keep one tensor instead of two to four.

    ## How the saving is computed

    Intermediate results are removed in forward, and in backward all gradients except the final one. The tensors that
    the single kernel saves stay. The peak is computed again.

    ## Known limits

    Variants that differ by more than order and casts are not recognised, such as a standard deviation instead of the
    root of a variance, or a sigmoid of a multiple of the input. Some kernels round differently from the formula.
    `torch.compile` fuses such formulas by itself.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gelu.html
    - https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#fuse-operations
    """

    code, name, severity = "MEM108", "unfused-composite", Severity.WARNING
    bad = (
        Case(
            _MODEL.format(
                "inner = math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)\n        "
                "hidden = 0.5 * hidden * (1 + torch.tanh(inner))"
            ),
            line=18,
        ),
        Case(_MODEL.format("hidden = hidden * torch.sigmoid(hidden)"), title="SiLU"),
        Case(_MODEL.format("hidden = hidden * torch.tanh(F.softplus(hidden))"), title="Mish"),
        Case(
            _MODEL.format("hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight"),
            title="RMS normalisation",
        ),
        Case(
            _MODEL.format(
                "hidden = hidden - hidden.mean(-1, keepdim=True)\n        "
                "hidden = hidden / torch.sqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)"
            ),
            title="Layer normalisation",
        ),
    )
    good = (
        Case(_MODEL.format('hidden = F.gelu(hidden, approximate="tanh")')),
        Case(_MODEL.format("hidden = F.silu(hidden)"), title="SiLU"),
        Case(_MODEL.format("hidden = F.mish(hidden)"), title="Mish"),
        Case(_MODEL.format("hidden = F.rms_norm(hidden, (1024,), self.weight, 1e-6)"), title="RMS normalisation"),
        Case(_MODEL.format("hidden = F.layer_norm(hidden, (1024,))"), title="Layer normalisation"),
        Case(
            _MODEL.format("hidden = hidden * torch.sigmoid(self.weight + hidden)"),
            title="A gate of another tensor is no SiLU",
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        if context.workload.mode != "train":
            return
        flow, timeline = Flow.of(trace), context.timeline
        fuses_rms = context.device.is_cuda and tuple(map(int, trace.torch.split(".")[:2])) >= FIRST_FUSED_RMS_NORM
        composites = (composite_around(flow, root) for root in flow.forward(*ROOTS) if root.step >= 0)
        lines = grouped(
            ((composite.exit.frame, composite.function), composite)
            for composite in composites
            if composite and (composite.function != RMS_NORM or (fuses_rms and _of_one_dtype(trace, composite)))
        )
        for (frame, function), group in lines.items():
            sizes = _sizes(flow, group)
            nbytes = most_alive(timeline, [buffer for buffer, left in sizes.items() if not left])
            if nbytes < MIN_NBYTES:
                continue
            number = sum(composite.exit.step == trace.num_steps - 1 for composite in group)
            times = f" {number} times per step" if number > 1 else ""
            yield self.finding(
                context,
                frame,
                f"This is `{function}` in {len(group[0].nodes)} kernels{times}, and keeps {format_nbytes(nbytes)} at "
                "one time that the function itself would not.",
                nbytes=nbytes,
                peak_change=peak_change(timeline, resize(timeline, sizes)),
                fix=f"Call `{function}`.",
            )


def _of_one_dtype(trace: Trace, composite: Composite) -> bool:
    """Return True if weight and input have one dtype, which the single kernel requires on CUDA."""
    return not any(
        trace.is_parameter(geometry) and geometry.dtype != composite.entry.dtype
        for node in composite.nodes
        for geometry in node.inputs
    )


def _sizes(flow: Flow, group: list[Composite]) -> dict[int, int]:
    """Return the bytes of the storages of these functions if one kernel computed each: zero."""
    trace = flow.trace
    gone: set[int] = set()
    places: dict[tuple[int, str, Frame | None], int] = {}
    for composite in group:
        gone |= {buffer for node in composite.nodes if node is not composite.exit for buffer in made(node)} - {
            composite.kept
        }
        places.update({(n.step, n.module, n.frame): numel(composite.entry) for n in composite.nodes})
    gone -= {buffer for composite in group for buffer in (composite.entry.buffer, composite.exit.outputs[0].buffer)}
    inside = {
        node.index: node
        for node in trace.nodes
        if node.phase is Phase.BACKWARD
        and (node.step, node.module, node.frame) in places
        and not node.op.endswith(_NOT_ELEMENTWISE)
    }
    for node in inside.values():
        size = places[node.step, node.module, node.frame]
        gone |= {b for b in made(node) if _is_passing(flow, inside, b, size)}
    kept = {f.kept: trace.buffers[f.entry.buffer].nbytes for f in group if f.kept is not None}
    return {**dict.fromkeys(gone, 0), **{b: min(n, trace.buffers[b].nbytes) for b, n in kept.items()}}


def _is_passing(flow: Flow, inside: dict[int, Node], buffer: int, size: int) -> bool:
    """Return True for a backward storage with that many elements that is written and read only within the function."""
    made_there = flow.trace.buffers[buffer]
    return (
        made_there.phase is Phase.BACKWARD
        and made_there.node in inside
        and prod(made_there.shape) == size
        and all(reader.index in inside for reader in flow.readers(buffer, made_there.node))
    )
