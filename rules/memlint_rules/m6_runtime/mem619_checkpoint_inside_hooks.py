from memlint.lint.rule import Case, Context, Findings, Severity, TraceRule
from memlint.whatif.changes import CheckpointAroundHooks
from memlint_rules.support.ranks import found_by_wrapping

_MODEL = """\
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import memlint


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(1024, 4096)
        self.down = nn.Linear(4096, 1024)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)
        self.mlp = MLP()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def checkpoint(model):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, MLP))


@memlint.workload(world_size=8)
def wrapped(batch=2):
    mesh = init_device_mesh("cuda", (8,))
    model = nn.Sequential(*(Block() for _ in range(6)))
    gathered = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    for block in model:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=Shard(1))}
        parallelize_module(block.mlp, mesh, plan)
    FIRST
    for block in model:
        parallelize_module(block, mesh, {"norm": SequenceParallel(), "mlp": gathered})
    LAST
    return model, torch.randn(batch, 512, 1024)
"""


class CheckpointInsideHooks(TraceRule):
    """Checkpoints keep inputs that tensor parallelism has gathered.

    Looks for models on several ranks with modules that were wrapped for checkpointing before `parallelize_module` gave
    them hooks, and reports the peak with the opposite order.

    ## Why it costs memory

    A checkpoint keeps its input. Hooks of the wrapper run first, so each checkpoint keeps an input gathered from all
    ranks. If the wrapper comes after the hooks, the checkpoint keeps only this rank's part, and gathers again for the
    backward, which costs communication.

    ## How the saving is computed

    The step is traced again with these hooks on the modules within the wrappers.

    ## Known limits

    FSDP gathers parameters, not activations: it may wrap a block before or after checkpointing.

    - https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
    """

    code, name, severity = "MEM619", "checkpoint-inside-hooks", Severity.INFO
    bad = (Case(_MODEL.replace("FIRST", "checkpoint(model)").replace("    LAST\n", "")),)
    good = (Case(_MODEL.replace("    FIRST\n", "").replace("LAST", "checkpoint(model)")),)

    def check(self, context: Context) -> Findings:
        message = "Checkpoints keep inputs that hooks of their modules have gathered from all ranks."
        fix = "Wrap modules for checkpointing after `parallelize_module`."
        yield from found_by_wrapping(self, context, CheckpointAroundHooks(), message, fix)
