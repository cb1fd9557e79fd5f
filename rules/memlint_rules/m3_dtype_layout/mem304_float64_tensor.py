from collections.abc import Iterator
from math import prod

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.memory.records import Category, Trace
from memlint.memory.timeline import resize
from memlint_rules.support.flow import MIN_NBYTES, most_alive, numel, peak_change

_DOUBLE = frozenset({"float64", "complex128"})


class Float64Tensor(TraceRule):
    """Tensors are float64 although the parameters are not.

    Looks for float64 and complex128 tensors of more than one element in the steps of a model with parameters of another
    dtype. It reports the first line that creates one.

    ## Why it costs memory

    A float64 takes eight bytes. NumPy creates float64 by default, and one such tensor turns every result that depends
    on it into float64 by type promotion, including the tensors that autograd saves. Except on GPUs for scientific
    computing, float64 is also dozens of times slower. Python numbers and tensors without dimensions do not promote.

    ## How the saving is computed

    Every such storage is reduced to half its bytes, or to none if it is only cast to float32, and the peak is computed
    again.

    ## Known limits

    Parts of a program that need float64, such as a solver, are reported as well. Less than 1 MiB at a time is not
    reported.

    - https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
    """

    code, name, severity = "MEM304", "float64-tensor", Severity.ERROR
    example = """\
import numpy as np
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1024, 1024)
        self.register_buffer("scale", torch.from_numpy(np.linspace(0.0, 1.0, 1024)))

    def forward(self, x):
        return torch.relu(self.linear(x) * self.scale).sum(-1)


def memlint_workload():
    return Model(), {"x": torch.randn(4096, 1024)}
"""
    bad = (Case(example, line=13),)
    good = (
        bad[0].but({"np.linspace(0.0, 1.0, 1024)": "np.linspace(0.0, 1.0, 1024, dtype=np.float32)"}),
        bad[0].but({"* self.scale": "* self.scale[3]"}, title="A number does not promote"),
        bad[0].but(
            {', {"x": torch.randn(4096, 1024)}': '.double(), {"x": torch.randn(4096, 1024, dtype=torch.float64)}'},
            title="The model is float64 on purpose",
        ),
    )

    def check(self, context: Context) -> Findings:
        """Yield one finding, at the first line that creates float64 in a step."""
        trace = context.trace
        doubles = [b for b in trace.buffers if b.dtype in _DOUBLE and prod(b.shape) > 1]
        if not doubles or any(b.category is Category.PARAMETER for b in doubles):
            return
        first = next(
            (
                node
                for node in trace.nodes
                if node.step >= 0 and any(g.dtype in _DOUBLE and g.buffer >= 0 and numel(g) > 1 for g in node.outputs)
            ),
            None,
        )
        timeline = context.timeline
        nbytes = most_alive(timeline, [buffer.id for buffer in doubles])
        if first is None or nbytes < MIN_NBYTES:
            return
        sizes = {buffer.id: buffer.nbytes // 2 for buffer in doubles} | dict.fromkeys(_only_cast(trace), 0)
        mixed = next((trace.buffers[g.buffer].name for g in first.inputs if g.buffer >= 0 and g.dtype in _DOUBLE), "")
        cause = f" `{mixed}` is float64, and so is everything computed with it." if mixed else ""
        yield self.finding(
            context,
            first.frame,
            f"Tensors in float64 take {format_nbytes(nbytes)} at one time; the first are made here.{cause}",
            nbytes=nbytes,
            peak_change=peak_change(timeline, resize(timeline, sizes)),
            fix="Make it float32 where it comes from: `np.float32`, `torch.as_tensor(array, dtype=torch.float32)` or "
            "`.float()`.",
        )


def _only_cast(trace: Trace) -> Iterator[int]:
    """Yield float64 Buffers whose last use is a cast to another floating-point dtype, which would then not exist."""
    for node in trace.nodes:
        if node.op == "aten._to_copy.default" and node.step >= 0 and node.inputs[0].buffer >= 0:
            source = trace.buffers[node.inputs[0].buffer]
            made = node.outputs[0].dtype
            if source.dtype in _DOUBLE and source.last_used == node.index and made.startswith(("float", "bfloat")):
                yield source.id
