from collections.abc import Iterator

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import FORWARDS, Buffer, Category, Trace
from memlint.memory.timeline import resize
from memlint_rules.support.flow import PRODUCTS, peak_change

MIN_SHARE = 0.7
"""Minimum share of the weights in the peak."""
MIN_NBYTES = 2**28
"""Smaller models are not worth another precision."""

_ITEMSIZES = {"float32": 4, "float16": 2, "bfloat16": 2}

_MODEL = """\
import memlint
import torch
from torch import nn


@memlint.workload(mode="{mode}")
def layers():
    return nn.Sequential(*(nn.Linear({size}, {size}) for _ in range(8))), {{"input": torch.randn(1, {size})}}
"""


class QuantizeForInference(TraceRule):
    """The weights of matrix products take most of the memory of an inference.

    Sums the floating-point weights of matrix products that are alive at the peak of an inference, and reports them if
    they are 256 MiB or more and 70 % of the peak.

    ## Why it costs memory

    A weight takes four bytes in float32 and two in half precision. As an 8-bit integer with a scale for each row it
    takes one byte, with four bits half a byte.

    ## How the saving is computed

    Each weight is reduced to one byte per element and, for each row, a scale of the weight's dtype. The peak is
    computed again.

    ## Known limits

    Quantised weights change results; only a test can say by how much. Their matrix-product kernels are separate
    packages, and may need memory that is not counted.

    - https://docs.pytorch.org/ao/stable/
    - https://arxiv.org/abs/2208.07339
    """

    code, name, severity = "MEM312", "quantize-for-inference", Severity.INFO
    bad = (Case(_MODEL.format(mode="inference", size=4096), line=1, dtype="bfloat16"),)
    good = (
        Case(title="Small", source=_MODEL.format(mode="inference", size=1024), dtype="bfloat16"),
        Case(title="Training", source=_MODEL.format(mode="train", size=4096), dtype="bfloat16"),
    )

    def check(self, context: Context) -> Findings:
        if context.workload.mode == "train":
            return
        weights = {buffer.id: buffer for buffer in _weights(context.trace)}
        nbytes = sum(buffer.nbytes for buffer in context.estimate.at_peak if buffer.id in weights)
        peak = context.estimate.requested.estimate
        if nbytes < max(MIN_NBYTES, MIN_SHARE * peak):
            return
        timeline = context.timeline
        sizes = {buffer.id: _quantised(buffer) for buffer in weights.values()}
        yield self.finding(
            context,
            None,
            f"{nbytes / peak:.0%} of the peak, {format_nbytes(nbytes)}, are weights of matrix products in "
            f"{max(weights.values(), key=lambda weight: weight.nbytes).dtype}.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, resize(timeline, sizes)),
            fix="If the results stay good enough, quantise the weights to 8 bits (the figure given here) or 4, such as "
            "with `torchao.quantization.quantize_(model, Int8WeightOnlyConfig())` or bitsandbytes, whose bytes "
            "`--dtype int8` and `nf4` give.",
        )


def _weights(trace: Trace) -> Iterator[Buffer]:
    """Yield matrices that are floating-point parameters and the right factor of a product."""
    for node in trace.nodes:
        if node.op in PRODUCTS and node.phase in FORWARDS and node.inputs[-1].buffer >= 0:
            weight = trace.buffers[node.inputs[-1].buffer]
            if weight.category is Category.PARAMETER and weight.dtype in _ITEMSIZES and len(weight.shape) == 2:
                yield weight


def _quantised(weight: Buffer) -> int:
    itemsize = _ITEMSIZES[weight.dtype]
    return weight.nbytes // itemsize + weight.shape[0] * itemsize
