from memlint.base.units import format_nbytes
from memlint.lint.rule import Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.whatif.changes import WithoutOffload
from memlint_rules.support.ranks import case


class UselessOffload(TraceRule):
    """Shards are offloaded to the host, but the GPU's peak is hardly lower than without offloading.

    Looks for models on several ranks that `fully_shard` wraps with CPUOffloadPolicy, and traces the step without it.

    ## Why it costs memory

    Offloading moves one rank's part of parameters, gradients and optimizer state to the host. If the peak consists of
    activations, or of gathered units, it falls by little, while each step copies all shards to the GPU and back and the
    optimizer runs on the host.

    ## How the saving is computed

    The step is traced again without the policy. Nothing is reported if that takes notably more memory.

    ## Known limits

    Offloaded activations (`save_on_cpu`) and other libraries are not checked.

    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    """

    code, name, severity = "MEM617", "useless-offload", Severity.INFO
    bad = (
        case("fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy())").but(
            {"batch=64": "batch=4096", "world_size=8": "world_size=512", "(8,)": "(512,)"}
        ),
    )
    good = (
        bad[0].but({", offload_policy=CPUOffloadPolicy()": ""}),
        case(
            "for block in model.blocks:",
            "    fully_shard(block, mesh=mesh, offload_policy=CPUOffloadPolicy())",
            "fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy())",
        ),
    )

    def check(self, context: Context) -> Findings:
        world = context.trace.world
        after = context.retrace(WithoutOffload()) if world is not None and world.size > 1 else None
        peak = context.estimate.requested.estimate
        if after is None or is_notable(peak - after.requested.estimate, after.requested.estimate):
            return
        rise = max(0, after.requested.estimate - peak)
        yield self.finding(
            context,
            None,
            f"CPUOffloadPolicy lowers the peak by {format_nbytes(rise)} alone.",
            nbytes=0,
            peak_change=rise,
            confidence=Confidence.EXACT_RETRACE,
            fix="Remove the policy, and reduce the tensors at the peak instead: a unit per block, checkpointing.",
        )
