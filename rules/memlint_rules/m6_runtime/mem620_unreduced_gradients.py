import ast

from memlint.lint.rule import Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Frame, Phase
from memlint.source.calls import called
from memlint.source.scopes import position
from memlint.source.text import source_at
from memlint.whatif.changes import ReduceInEveryBackward
from memlint_rules.support.ranks import case

_SWITCHES = frozenset({"set_requires_gradient_sync", "no_sync"})

_MICRO_BATCHES = {
    "import memlint\n": """\
import memlint


def accumulate(model, inputs, optimizer):
    for i in range(4):
        model.set_requires_gradient_sync(i == 3)
        model(inputs["x"]).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "return model, torch.randn(batch, 1024)": (
        'return memlint.Declaration(model, {"x": torch.randn(batch, 1024)}, step=accumulate)'
    ),
}


class UnreducedGradients(TraceRule):
    """Gradients of a sharded model are not reduced in every backward, so every rank holds all of them meanwhile.

    Looks for models on several ranks that run several backwards per step, and reports the peak if FSDP reduced
    gradients in each of them, without `set_requires_gradient_sync(False)` or FSDP1's `no_sync`.

    ## Why it costs memory

    A gradient that is not reduced yet is as large as the whole parameter: between micro-batches every rank holds the
    gradients of the whole model instead of its part.

    ## How the saving is computed

    The step is traced again with gradients reduced in every backward.

    ## Known limits

    A reduction in every backward costs communication time: with slow connections between GPUs this is a trade-off. If a
    script's first forward runs within `no_sync`, that forward stays unchanged.

    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - https://github.com/pytorch/pytorch/issues/160320
    """

    code, name, severity = "MEM620", "unreduced-gradients", Severity.WARNING
    looks_at = "a traced step on several ranks"
    bad = (
        case("for block in model.blocks:", "    fully_shard(block, mesh=mesh)", "fully_shard(model, mesh=mesh)").but(
            _MICRO_BATCHES, line=12
        ),
    )
    good = (
        bad[0].but({"        model.set_requires_gradient_sync(i == 3)\n": ""}),
        bad[0].but({"range(4)": "range(3, 4)"}, title="One backward a step"),
    )

    def check(self, context: Context) -> Findings:
        world, peak = context.trace.world, context.estimate.requested.estimate
        if world is None or world.size == 1 or not (_is_sharded(context) and _accumulates(context)):
            return
        after = context.retrace(ReduceInEveryBackward())
        if after is None or not is_notable(fall := after.requested.estimate - peak, peak):
            return
        yield self.finding(
            context,
            _switch(context),
            "Gradients are reduced only in the last backward of a step; until then every rank holds those of the "
            "whole model.",
            nbytes=-fall,
            peak_change=fall,
            confidence=Confidence.EXACT_RETRACE,
            fix="Let FSDP reduce them in every backward: leave `set_requires_gradient_sync(False)` or `no_sync` out. "
            "It costs a reduction for each micro-batch.",
        )


def _is_sharded(context: Context) -> bool:
    """Return True if gradients are reduced to shards."""
    return any(each.kind == "reduce_scatter" for each in context.trace.collectives)


def _accumulates(context: Context) -> bool:
    """Return True if a forward follows a backward in the same step."""
    last = (-1, Phase.OTHER)
    for node in context.trace.nodes:
        if node.phase is Phase.FORWARD and last == (node.step, Phase.BACKWARD):
            return True
        if node.phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
            last = (node.step, node.phase)
    return False


def _switch(context: Context) -> Frame | None:
    """Return the project's line that makes FSDP postpone reductions; None if it is elsewhere."""
    frames = (node.frame.of_project for node in context.trace.nodes if node.frame is not None)
    for path in dict.fromkeys((context.workload.path, *(frame.path for frame in frames))):
        source = source_at(path) if path else None
        calls = source.index.of(ast.Call) if source is not None else ()
        switches = sorted((call for call in calls if called(call) in _SWITCHES), key=position)
        if switches:
            return Frame(path, switches[0].lineno, "")
    return None
