from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Buffer, Category, Node, Phase, Trace
from memlint.memory.timeline import without
from memlint_rules.support.flow import Flow, most_alive, peak_change

MIN_SHARE = 0.25
"""Minimum ratio of the copies to the parameters."""

_COPIES = frozenset({"aten._to_copy.default", "aten.clone.default", "aten.copy_.default"})
_SET_STORAGE = "aten.set_.source_Storage_storage_offset"
_OWN = frozenset({Category.TEMPORARY, Category.OTHER, Category.ACTIVATION})


class WeightCopiesOnGpu(TraceRule):
    """A copy of the weights stays on the device although no forward reads it.

    Looks for clones of parameters that live across steps and that only copies and averages read: the best weights so
    far, or an exponential moving average.

    ## Why it costs memory

    Each copy takes as many bytes as the parameters. `copy.deepcopy(model.state_dict())` copies on the device where the
    model is, and so do `AveragedModel` and most implementations of moving averages unless told otherwise. A new copy is
    made before the old one is freed.

    ## How the saving is computed

    The copies are removed, and the peak is computed again.

    ## Known limits

    A moving average kept on the host has to be moved there in every step, which takes time. Copies inside the model,
    such as the teacher of a self-supervised method, belong to it and are not reported.

    - https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema
    """

    code, name, severity = "MEM206", "weight-copies-on-gpu", Severity.WARNING
    example = """\
import copy

import torch
from torch import nn

from memlint.targets.declare import Declaration

best = {}


def step(model, inputs, optimizer):
    model(**inputs).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    best["weights"] = copy.deepcopy(model.state_dict())


def memlint_workload():
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))
    return Declaration(model, {"input": torch.randn(64, 1024)}, step=step)
"""
    bad = (Case(example, line=15),)
    good = (
        bad[0].but(
            {"copy.deepcopy(model.state_dict())": ("{name: value.cpu() for name, value in model.state_dict().items()}")}
        ),
        bad[0].but({"= copy.deepcopy(model.state_dict())": "= model.state_dict()"}, title="No copy"),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        copies = [(copy, node) for node in trace.nodes if (copy := _copy_of_parameter(trace, node))]
        copies = [(copy, node) for copy, node in copies if _outlives_its_step(trace, copy)]
        if not copies:
            return
        flow, timeline = Flow.of(trace), context.timeline
        makers = {copy.id: node for copy, node in copies if _only_copied(flow, copy)}
        parameters = sum(b.nbytes for b in trace.buffers if b.category is Category.PARAMETER)
        nbytes = most_alive(timeline, makers)
        if not makers or nbytes < MIN_SHARE * parameters:
            return
        yield self.finding(
            context,
            next(iter(makers.values())).frame,
            f"Copies of the parameters take {format_nbytes(nbytes)} on the device from step to step, and no forward "
            f"reads them; the parameters take {format_nbytes(parameters)}.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, without(timeline, makers)),
            confidence=Confidence.EXACT_LIFETIME,
            fix="Keep the copy on the host, `{name: value.cpu() for name, value in model.state_dict().items()}`, or "
            'save it to a file; an average takes `AveragedModel(model, device="cpu")`.',
        )


def _copy_of_parameter(trace: Trace, node: Node) -> Buffer | None:
    """Return the Buffer into which `node` copies a whole parameter, outside the optimizer."""
    if node.step < 0 or node.phase is Phase.OPTIMIZER or node.op not in _COPIES | {_SET_STORAGE}:
        return None
    # copy.deepcopy clones the storage, and then makes an empty tensor like the old one to hold it.
    reader = trace.nodes[node.index - 1] if node.op == _SET_STORAGE else node
    copy = trace.buffers[node.outputs[0].buffer] if node.outputs[0].buffer >= 0 else None
    if copy is None or copy.category not in _OWN or (reader is not node and reader.op != "aten.new_empty.default"):
        return None
    read = [b for b in trace.buffers_of(reader.inputs) if b.category is Category.PARAMETER]
    return copy if any(parameter.nbytes == copy.nbytes for parameter in read) else None


def _outlives_its_step(trace: Trace, buffer: Buffer) -> bool:
    following = buffer.step + 1
    if buffer.died is None or following >= trace.num_steps:
        return buffer.died is None
    return trace.event_nodes[buffer.died] >= trace.step_nodes[following]


def _only_copied(flow: Flow, buffer: Buffer) -> bool:
    """Return True if the copy's readers only copy or overwrite it."""
    return all(
        node.op in _COPIES or any(g.buffer == buffer.id for g in node.outputs)
        for node in flow.readers(buffer.id, buffer.node)
    )
