from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Phase, Trace
from memlint.memory.repeated_modules import MIN_BLOCKS, is_inside
from memlint.memory.timeline import alive_at, peak_event
from memlint.whatif.changes import CheckpointModules
from memlint.whatif.repeated_blocks import blocks_that_save, granularities, selections
from memlint_rules.support.block_calls import call_of_blocks

MIN_SHARE = 0.25
"""Minimum share of saved activations inside the blocks among the live bytes at the peak."""


class MissingActivationCheckpointing(TraceRule):
    """Activations saved inside repeated blocks are a large part of the peak and could be recomputed.

    Looks for three or more modules of one class side by side, such as the layers of a transformer, whose activations
    saved for backward are a quarter or more of the live bytes at the peak. Blocks that are checkpointed already save
    nothing inside themselves and are not reported. The finding points to the call of the blocks, if the source of their
    class shows it, and else to the line that allocates the largest of these activations.

    ## Why it costs memory

    Every block saves activations for its backward, and keeps all of them until backward reaches that block. With
    activation checkpointing a block keeps only its input and runs its forward again during backward, so the activations
    of only one block exist at a time. The price is a second forward of the blocks, usually a fifth to a third more
    time.

    ## How the saving is computed

    The step is traced again with each of the blocks under `torch.utils.checkpoint.checkpoint`. The floating-point
    operations of both steps are counted by the shapes of their matrix products, convolutions and attention. With `-v`,
    checkpoints on every second block, or on one part of each such as its attention, are traced and listed too.

    ## Known limits

    In models with many layers, only all blocks together are tried. Running statistics of BatchNorm inside a block are
    updated twice per step.

    - https://docs.pytorch.org/docs/stable/checkpoint.html
    - https://arxiv.org/abs/1604.06174
    """

    code, name, severity = "MEM101", "missing-activation-checkpointing", Severity.WARNING
    model = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(256)
        self.up = nn.Linear(256, 1024)
        self.down = nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(8))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""
    bad = (Case.of_model(model, 'Model(), {"x": torch.randn(16, 512, 256)}', line=23),)
    good = (
        bad[0].but(
            {
                "from torch import nn": "from torch import nn\nfrom torch.utils.checkpoint import checkpoint",
                "x = block(x)": "x = checkpoint(block, x, use_reentrant=False)",
            }
        ),
    )

    def check(self, context: Context) -> Findings:
        """Yield at most one finding, for the class of blocks that saves most."""
        trace, timeline, estimate = context.trace, context.timeline, context.estimate
        if context.workload.mode != "train" or estimate.phase is Phase.OPTIMIZER or not timeline.events:
            return
        peak = estimate.requested.estimate
        candidates = blocks_that_save(trace, alive_at(timeline, peak_event(timeline)))
        worth_while = [
            each
            for each in candidates
            if each.nbytes >= MIN_SHARE * peak and each.num_busy >= max(MIN_BLOCKS, len(each.paths) // 2)
        ]
        tried = [
            (answer, blocks)
            for blocks in granularities(worth_while)
            if (answer := context.what_if(CheckpointModules(blocks.paths))) is not None
        ]
        if not tried:
            return
        answer, blocks = min(tried, key=lambda each: each[0].estimate.requested.estimate)
        for selection in selections(trace, blocks):
            context.show_as_well(CheckpointModules(selection.paths))
        kind = dict(trace.modules)[blocks.paths[0]]
        biggest = max(blocks.saved, key=lambda buffer: buffer.nbytes)
        work = f"{answer.recompute_flops / answer.step_flops:.0%} more" if answer.step_flops else "more"
        yield self.finding(
            context,
            call_of_blocks(trace, blocks.paths) or biggest.frame,
            f"The {len(blocks.paths)} `{kind}` modules `{blocks.paths[0]}` to `{blocks.paths[-1]}` keep "
            f"{format_nbytes(blocks.nbytes)} of activations for backward, {blocks.nbytes / peak:.0%} of the peak.",
            nbytes=blocks.nbytes,
            peak_change=answer.peak_change,
            confidence=Confidence.EXACT_RETRACE,
            fix=f"{_how(trace, blocks.paths[0])} A step takes {work} floating-point operations.",
        )


def _how(trace: Trace, block: str) -> str:
    """Say how the model with `block` enables checkpointing: by its own switch, if it has one."""
    switch = next((switch for path, switch in trace.switches if not path or is_inside(block, path)), "")
    if switch.endswith("()"):
        return f"The model has a switch for it: call `model.{switch}`."
    call = "all each block as `torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)`."
    return f"The model has a switch for it, `{switch}`; or c{call}" if switch else f"C{call}"
