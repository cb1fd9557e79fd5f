from memlint.lint.rule import Context, Findings, Severity, TraceRule
from memlint.whatif.changes import ReshardRoot
from memlint_rules.support.ranks import BLOCKS, case, found_by_wrapping

_AFTER = {
    "import memlint\n": """\
import memlint


def generate(model, inputs, _optimizer):
    with torch.no_grad():
        logits = model(inputs["x"])
    probabilities = logits.float().softmax(-1)
    probabilities.cumsum(-1)
""",
    "        self.blocks": "        self.head = nn.Linear(1024, 32768, bias=False)\n        self.blocks",
    "return self.blocks(x)": "return self.head(self.blocks(x))",
    "@memlint.workload(world_size=8)": '@memlint.workload(world_size=8, mode="inference")',
    "return model, torch.randn(batch, 1024)": (
        'return memlint.Declaration(model, {"x": torch.randn(2048, 1024)}, step=generate)'
    ),
}


class RootStaysGathered(TraceRule):
    """The outermost unit of FSDP2 stays gathered after its forward, although no backward follows.

    Looks in inference on several ranks, and in training beside a frozen model, for a whole model that is a unit with
    the default `reshard_after_forward`, and reports the peak if it were resharded too.

    ## Why it costs memory

    By default all units are resharded after their forward except the outermost, which the backward would gather again
    at once. Parameters outside all other units, most often embedding and head, stay gathered on every rank: in
    inference, or for a model that only computes targets for another one, until the next forward.

    ## How the saving is computed

    The program is traced again with the outermost unit resharded after its forward.

    ## Known limits

    The next forward gathers its parameters again.

    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    """

    code, name, severity = "MEM622", "root-stays-gathered", Severity.INFO
    looks_at = "a traced step on several ranks"
    bad = (case(*BLOCKS).but(_AFTER),)
    good = (
        bad[0].but({"fully_shard(model, mesh=mesh)": "fully_shard(model, mesh=mesh, reshard_after_forward=True)"}),
        case(*BLOCKS),
    )

    def check(self, context: Context) -> Findings:
        message = "The outermost unit stays gathered on every rank after its forward, although no backward follows."
        fix = "Call `fully_shard` of the whole model with `reshard_after_forward=True`."
        change = ReshardRoot(only_frozen=context.workload.mode == "train")
        yield from found_by_wrapping(self, context, change, message, fix)
