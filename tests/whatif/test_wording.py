"""Changes in words."""

from __future__ import annotations

import pytest

from memlint.memory.records import Frame, Phase
from memlint.whatif import changes as c
from memlint.whatif.change import Change, Names
from memlint.whatif.changes.selective_checkpoint import KeptOutput

MODULES = [("", "Model"), *((f"blocks.{i}", "Block") for i in range(6))]
KEPT = (
    KeptOutput("aten.addmm.default", (), ("up", "experts.0.down", "experts.1.down")),
    KeptOutput("aten.bmm.default", (), ("attention",)),
)
ORIGIN = ("aten.mm.default", Frame("/home/model.py", 7, "forward"), "head", (4, 32), "float32", Phase.FORWARD)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (c.CheckpointModules(("blocks.1",)), "checkpoint `blocks.1` (Block)"),
        (c.CheckpointModules(("blocks.0", "blocks.1")), "checkpoint 2 `Block` modules, `blocks.0` to `blocks.1`"),
        (
            c.CheckpointModules(("blocks.0", "blocks.2", "blocks.4")),
            "checkpoint 3 `Block` modules, every second one, `blocks.0` to `blocks.4`",
        ),
        (
            c.CheckpointSelectively(("blocks.1",), KEPT[:1]),
            "checkpoint `blocks.1` (Block), but keep outputs of `addmm`",
        ),
        (
            c.CheckpointSelectively(tuple(f"blocks.{i}" for i in range(6)), KEPT),
            "checkpoint 6 `Block` modules, `blocks.0` to `blocks.5`, but keep outputs of `addmm` and `bmm`",
        ),
        (c.OptimizerImplementation(foreach=False, fused=True), "construct the optimizer with fused=True"),
        (c.OptimizerImplementation(foreach=False, fused=False), "construct the optimizer with foreach=False"),
        (c.AttentionImplementation("flash_attention_2"), "use the flash_attention_2 attention"),
        (c.DropReference((ORIGIN,)), "let go of the float32 [4, 32] made at model.py:7 after its last use"),
    ],
)
def test_a_change_says_what_to_do(change: Change, text: str) -> None:
    assert change.describe(Names(MODULES, {})) == text


def test_a_variable_is_named() -> None:
    assert "`logits`, the float32" in c.DropReference((ORIGIN,)).describe(Names(MODULES, {ORIGIN: "logits"}))


def test_no_kind_of_change_is_without_words() -> None:
    arguments = {
        c.ChunkedCrossEntropy: (8,), c.AccumulationSteps: (2,), c.BatchSize: (4,), c.ParameterDtype: ("bfloat16",),
        c.AutocastTraining: ("bfloat16",), c.AttentionImplementation: ("sdpa",), c.ZeroGradPlacement: (True,),
        c.InPlaceFlag: (("blocks.0",), True), c.FrozenBatchNorm: (("blocks.0",),), c.NoGrad: (("blocks.0",),),
        c.FreezeParameters: (("weight",),), c.CheckpointModules: (("blocks.0",),), c.DropReference: ((ORIGIN,),),
        c.WithoutDropout: (("blocks.0",),), c.ActivationBudget: (0.5,), c.DecodeInParts: ("slicing",),
        c.CheckpointInstead: (("blocks.0",),), c.CheckpointSelectively: (("blocks.0",), KEPT[:1]),
    }  # fmt: skip
    for kind in c.CHANGES:
        text = kind(*arguments.get(kind, ())).describe(Names(MODULES, {}))
        assert kind.__name__ not in text
