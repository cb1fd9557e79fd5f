from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Buffer, Category, Phase
from memlint.whatif.changes import AutocastTraining
from memlint_rules.support.flow import HALF

_OF_STEP = frozenset({Category.ACTIVATION, Category.TEMPORARY})
"""Categories whose float32 Buffers autocast can halve: parameters, gradients and optimizer state stay float32."""


class Fp32Training(TraceRule):
    """Training runs in float32; autocast to bfloat16 would lower the peak.

    Looks at training in float32 in which no tensor is of half precision, on GPUs of compute capability 8.0 and later,
    if activations and temporaries make up enough of the peak. It reports the saving of autocast to bfloat16.

    ## Why it costs memory

    Under autocast, matrix products and convolutions read and write bfloat16, so the tensors that they save for backward
    take two bytes per element instead of four. Parameters, gradients and optimizer state stay float32, and a cast copy
    of each weight stays until its backward, so small batches gain nothing.

    ## How the saving is computed

    The step is traced again with forward and loss under `torch.autocast` with bfloat16.

    ## Known limits

    Results change a little, though bfloat16 needs no loss scaling. If the peak would fall by little, nothing is
    reported. For a step of a declaration's own, only the model's forward is traced under autocast.

    - https://docs.pytorch.org/docs/stable/amp.html
    """

    code, name, severity = "MEM301", "fp32-training", Severity.INFO
    rests_on = "dtype"
    bad = (
        Case.of_layers(
            {"layers": "nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)))"},
            "return self.layers(x)",
            {"x": "torch.randn(8192, 1024)"},
            line=1,
        ),
    )
    good = (
        bad[0].but(dtype="bf16-amp"),
        bad[0].but({"torch.randn(8192, 1024)": "torch.randn(16, 1024)"}, title="The peak is the optimizer's"),
    )

    def check(self, context: Context) -> Findings:
        trace, workload, estimate = context.trace, context.workload, context.estimate
        if workload.mode != "train" or workload.dtype != "float32" or context.device.capability < (8, 0):
            return
        peak = estimate.requested.estimate
        of_step = [buffer for buffer in estimate.at_peak if _is_of_forward_or_backward(buffer)]
        halved = sum(buffer.nbytes for buffer in of_step if buffer.dtype == "float32")
        if not is_notable(-halved // 2, peak) or any(b.dtype in HALF for b in trace.buffers):
            return
        after = context.retrace(AutocastTraining("bfloat16"))
        if after is None or not is_notable(after.requested.estimate - peak, peak):
            return
        nbytes = sum(buffer.nbytes for buffer in of_step)
        complex_nbytes = sum(buffer.nbytes for buffer in of_step if buffer.dtype.startswith("complex"))
        kept = f", {format_nbytes(complex_nbytes)} of them complex, which stay as they are" if complex_nbytes else ""
        then = format_nbytes(after.requested.estimate)
        yield self.finding(
            context,
            None,
            f"Training runs in float32 throughout. At the peak {format_nbytes(nbytes)} are activations and "
            f"temporaries{kept}; under autocast to bfloat16 the peak is {then} in place of {format_nbytes(peak)}.",
            nbytes=nbytes,
            peak_change=after.requested.estimate - peak,
            confidence=Confidence.EXACT_RETRACE,
            fix='Run forward and loss, not backward, under `torch.autocast("cuda", dtype=torch.bfloat16)`.',
        )


def _is_of_forward_or_backward(buffer: Buffer) -> bool:
    return buffer.category in _OF_STEP and buffer.phase is not Phase.OPTIMIZER
