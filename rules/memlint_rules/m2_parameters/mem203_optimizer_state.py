from math import ceil, prod

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Buffer, Category
from memlint.memory.timeline import resize
from memlint.whatif.changes import EightBitOptimizer
from memlint_rules.support.flow import peak_change

MIN_SHARE = 1 / 3
"""Minimum share of the state in the peak."""

_BLOCK = 256
_MIN_QUANTISED = 4096
"""8-bit optimizers of bitsandbytes and torchao: elements per float32 scale, and of the smallest quantised tensor."""
_FITS = " With 8-bit states the step keeps its budget."
_MOMENTS = ("exp_avg of ", "exp_avg_sq of ")


class OptimizerState(TraceRule):
    """Adam's moments take a large part of the peak.

    Sums the state of Adam-like optimizers at the peak. A smaller part is reported as well if 8-bit states would bring a
    step that exceeds its budget below it.

    ## Why it costs memory

    Adam, AdamW and their relatives keep two moments of each trained parameter, in its dtype: eight bytes per float32
    parameter, twice the parameter itself. SGD keeps none, or one with momentum; Adafactor keeps one number for each row
    and column of a matrix.

    ## How the saving is computed

    If bitsandbytes or torchao is installed, the step is traced again with its 8-bit Adam. Otherwise each moment of 4096
    elements or more is reduced to one byte per element plus four for every 256 elements, as in 8-bit optimizers, and
    the peak is computed again.

    ## Known limits

    Each of these is a different optimizer, and changes training. 8-bit optimizers are separate packages; if none is
    installed, their temporaries are not modelled, and some keep the state of embeddings in 32 bits. Sharding the state
    over several GPUs (`FSDP`, `ZeroRedundancyOptimizer`) keeps the same numerics.

    - https://arxiv.org/abs/2110.02861
    - https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html
    """

    code, name, severity = "MEM203", "optimizer-state", Severity.INFO
    rests_on = "optimizer"
    example = """\
import torch
from torch import nn

from memlint.targets.declare import Declaration


def memlint_workload():
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(16)))
    return Declaration(
        model,
        {"input": torch.randn(64, 1024)},
        optimizer=lambda parameters: torch.optim.AdamW(parameters),
    )
"""
    bad = (Case(example, line=1),)
    good = (
        bad[0].but({"AdamW(parameters)": "Adafactor(parameters)"}),
        bad[0].but({"AdamW(parameters)": "SGD(parameters, lr=0.1, momentum=0.9)"}, title="One moment"),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        peak = context.estimate.requested.estimate
        moments = [b for b in context.estimate.at_peak if _is_moment(b)]
        nbytes = sum(moment.nbytes for moment in moments)
        if len({moment.name.partition(" of ")[0] for moment in moments}) < len(_MOMENTS):
            return
        budget = context.budget
        is_too_much = budget is not None and context.estimate.device.estimate > budget
        if nbytes < MIN_SHARE * peak and not is_too_much:
            return
        after = context.retrace(EightBitOptimizer())
        if after is None:
            sizes = {b.id: _quantised(b) for b in trace.buffers if _is_moment(b) and prod(b.shape) >= _MIN_QUANTISED}
            change = peak_change(context.timeline, resize(context.timeline, sizes))
        else:
            change = after.requested.estimate - peak
        fits = is_too_much and budget is not None and after is not None and after.device.estimate <= budget
        if not is_notable(change, peak) or (nbytes < MIN_SHARE * peak and not fits):
            return
        yield self.finding(
            context,
            None,
            f"The two moments that the optimizer keeps of every parameter take {format_nbytes(nbytes)} of the peak, "
            f"{nbytes / peak:.0%}.{_FITS if fits else ''}",
            nbytes=nbytes,
            peak_change=change,
            confidence=Confidence.MODELLED if after is None else Confidence.EXACT_RETRACE,
            fix="If it trains as well, use an optimizer with less state: an 8-bit AdamW (the figure given "
            "here; `bitsandbytes.optim.AdamW8bit`, `torchao.optim.AdamW8bit`) or `torch.optim.Adafactor`. On several "
            "GPUs shard the state.",
        )


def _is_moment(buffer: Buffer) -> bool:
    return buffer.category is Category.OPTIMIZER_STATE and buffer.name.startswith(_MOMENTS)


def _quantised(buffer: Buffer) -> int:
    numel = prod(buffer.shape)
    return min(buffer.nbytes, numel + 4 * ceil(numel / _BLOCK))
