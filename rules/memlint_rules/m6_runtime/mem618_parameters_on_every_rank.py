from memlint.base.units import format_nbytes
from memlint.lint.rule import NOTABLE_NBYTES, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Category
from memlint_rules.support.ranks import BLOCKS, case

_PER_NODE = 8


class ParametersOnEveryRank(TraceRule):
    """Every rank creates all parameters on the host before it keeps its part of them.

    Looks for sharded models on several ranks whose parameters were all in host memory when the model was built.

    ## Why it costs memory

    Each process of a machine creates the whole model: eight processes hold it eight times in host memory, which runs
    out for a model of many billion parameters. On the device `meta` parameters take no memory; `to_empty` allocates the
    shards, which are then initialised or loaded.

    ## How the saving is computed

    The bytes that one process allocated on the host while the model was built, times eight processes per machine. GPU
    memory does not change.

    ## Known limits

    Weights loaded from memory-mapped files are counted as well.

    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
    """

    code, name, severity = "MEM618", "parameters-on-every-rank", Severity.INFO
    bad = (case(*BLOCKS),)
    good = (
        case(*BLOCKS, 'model.to_empty(device="cuda")').but(
            {"    model = Net()": '    with torch.device("meta"):\n        model = Net()'}
        ),
    )

    def check(self, context: Context) -> Findings:
        trace = context.trace
        world = trace.world
        if world is None or world.size == 1 or not any(each.kind == "all_gather" for each in trace.collectives):
            return
        opened = {event for event in trace.events if event >= 0}
        shards = sum(b.nbytes for b in trace.buffers if b.category is Category.PARAMETER and b.died is None)
        on_host = sum(b.nbytes for b in trace.buffers if b.step < 0 and b.id not in opened)
        ranks = min(world.size, _PER_NODE)
        if on_host < NOTABLE_NBYTES or on_host < shards * min(world.size, 2):
            return
        yield self.finding(
            context,
            None,
            f"Each rank allocates {format_nbytes(on_host)} in host memory to keep only a part of it: "
            f"{format_nbytes(ranks * on_host)} on a machine of {ranks} GPUs.",
            nbytes=ranks * on_host,
            peak_change=0,
            confidence=Confidence.ANALYTIC,
            fix='Build the model under `torch.device("meta")`, shard it, call `model.to_empty(device="cuda")` and '
            "initialise or load its shards.",
        )
