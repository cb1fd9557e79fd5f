"""Shared parts of the rules about models on several ranks: cases, and steps with changed wrappers."""

import re

from memlint.lint.rule import Case, Confidence, Context, Findings, TraceRule, is_notable
from memlint.memory.records import Frame, Trace
from memlint.source.scopes import calls
from memlint.source.text import source_at
from memlint.whatif.change import Change

_MODEL = """\
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import memlint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(1024, 4096)
        self.down = nn.Linear(4096, 1024)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(6)))

    def forward(self, x):
        return self.blocks(x)


@memlint.workload(world_size=8)
def wrapped(batch=64):
    mesh = init_device_mesh("cuda", (8,))
    model = Net()
    WRAP
    return model, torch.randn(batch, 1024)
"""


def case(*lines: str, **options: object) -> Case:
    """Return the case of a net of six blocks on eight ranks, with 192 MiB of parameters, which these lines wrap."""
    return Case(_MODEL.replace("WRAP", "\n    ".join(lines)), **options)  # type: ignore[arg-type]


BLOCKS = ("for block in model.blocks:", "    fully_shard(block, mesh=mesh)", "fully_shard(model, mesh=mesh)")


DDP = re.compile(r"torch\.nn\.parallel\.(distributed\.)?DistributedDataParallel")
"""Matches its qualified names."""


def ddp_call(trace: Trace) -> Frame | None:
    """Return the line that constructs DistributedDataParallel, which broadcasts parameters; None if none was seen."""
    lines = {trace.nodes[each.node].frame for each in trace.collectives if trace.nodes[each.node].step < 0}
    for frame in filter(None, lines):
        line = frame.of_project
        source = source_at(line.path)
        for _scope, call in calls(source, DDP) if source is not None else ():
            if call.lineno <= line.line <= (call.end_lineno or call.lineno):
                return Frame(line.path, call.lineno, line.function)
    return None


def found_by_wrapping(
    rule: TraceRule, context: Context, change: Change, message: str, fix: str, frame: Frame | None = None
) -> Findings:
    """Yield a finding, at `frame`, if the step takes notably less memory with the wrapper changed by `change`."""
    world = context.trace.world
    after = context.retrace(change) if world is not None and world.size > 1 else None
    peak = context.estimate.requested.estimate
    if after is not None and is_notable(fall := after.requested.estimate - peak, peak):
        options = {"nbytes": -fall, "peak_change": fall, "confidence": Confidence.EXACT_RETRACE, "fix": fix}
        yield rule.finding(context, frame, message, **options)  # type: ignore[arg-type]
