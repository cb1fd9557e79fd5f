"""What rules about models on several ranks share: cases, and the step with the wrappers called otherwise."""

from __future__ import annotations

from memlint.lint.rule import Case, Confidence, Context, Findings, TraceRule, is_notable
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
    """One of a net of six blocks on eight ranks, of 192 MiB of parameters, which these lines wrap."""
    return Case(_MODEL.replace("WRAP", "\n    ".join(lines)), **options)  # type: ignore[arg-type]


BLOCKS = ("for block in model.blocks:", "    fully_shard(block, mesh=mesh)", "fully_shard(model, mesh=mesh)")


def found_by_wrapping(rule: TraceRule, context: Context, change: Change, message: str, fix: str) -> Findings:
    """A finding if the step takes notably less where the model is wrapped with `change`."""
    world = context.trace.world
    after = context.retrace(change) if world is not None and world.size > 1 else None
    peak = context.estimate.requested.estimate
    if after is not None and is_notable(fall := after.requested.estimate - peak, peak):
        options = {"nbytes": -fall, "peak_change": fall, "confidence": Confidence.EXACT_RETRACE, "fix": fix}
        yield rule.finding(context, None, message, **options)  # type: ignore[arg-type]
