from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Frame, Phase
from memlint.source.text import source_at
from memlint.whatif.changes import WithoutGraph
from memlint_rules.m4_training_loop.mem404_eval_without_no_grad import EvalWithoutNoGrad
from memlint_rules.support.dead_references import biggest_of, dead_at_peak, nbytes_of


class ForwardWithoutBackward(TraceRule):
    """A model runs with autograd switched on, but the whole run has no backward.

    Looks for programs without any backward in which tensors whose last kernel has run are alive at the peak, and
    reports the peak under `torch.no_grad()`.

    ## Why it costs memory

    While a parameter requires gradients, every operation saves tensors for its backward. They stay until the output is
    released, which in a loop happens after the next forward: two graphs are then alive. Neither `eval()` nor the
    absence of an optimizer switches that off.

    ## How the saving is computed

    The program is run again under `torch.no_grad()`.

    ## Known limits

    A program that ends before its first backward looks like one without any: run it with `--whole` if it first collects
    outputs of several batches. A loop without a backward in a program that has one elsewhere is found by MEM404 in the
    source, and a script with such a finding is left to MEM404.

    - https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
    - https://github.com/huggingface/diffusers/issues/10350
    """

    code, name, severity = "MEM412", "forward-without-backward", Severity.WARNING
    looks_at = "a traced program without a backward"
    bad = (
        Case(
            """\
import torch
from torch import nn

import memlint


def features(model, inputs, _optimizer):
    model(inputs["x"]).mean()


@memlint.workload(mode="inference")
def encoder():
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.GELU())))
    return memlint.Declaration(model, {"x": torch.randn(4096, 1024)}, step=features)
""",
            line=8,
        ),
    )
    good = (
        bad[0].but({"    model(inputs": "    with torch.no_grad():\n        model(inputs"}),
        bad[0].but({'model(inputs["x"]).mean()': 'model(inputs["x"]).mean().backward()'}, title="There is a backward"),
        bad[0].but({"    return memlint": "    model.requires_grad_(False)\n    return memlint"}, title="It is frozen"),
    )

    def check(self, context: Context) -> Findings:
        nodes = context.trace.nodes
        if any(node.phase in (Phase.BACKWARD, Phase.OPTIMIZER) for node in nodes):
            return
        if context.workload.mode == "generate" and any(_is_of_generate(node.frame) for node in nodes):
            return
        peak = context.estimate.requested.estimate
        dead = dead_at_peak(context)
        if not is_notable(-nbytes_of(dead), peak) or _is_reported_for_loop(context):
            return
        after = context.what_if(WithoutGraph())
        if after is None or not is_notable(after.peak_change, peak):
            return
        yield self.finding(
            context,
            biggest_of(dead).frame,
            f"Everything is saved for a backward that never comes: {format_nbytes(nbytes_of(dead))} alive at the peak "
            "are never read again.",
            nbytes=nbytes_of(dead),
            peak_change=after.peak_change,
            confidence=Confidence.EXACT_RETRACE,
            fix="Run it under `with torch.inference_mode():`, or `torch.no_grad()` if what it computes takes part in a "
            "later backward.",
        )


def _is_of_generate(frame: Frame | None) -> bool:
    """Return True of a line of `generate` of transformers, which runs under `torch.no_grad`."""
    return frame is not None and frame.path.endswith("transformers/generation/utils.py")


def _is_reported_for_loop(context: Context) -> bool:
    """Return True if MEM404 finds an evaluation loop in the source of a script that has run."""
    if context.workload.origin != "script":
        return False
    paths = {node.frame.of_project.path for node in context.trace.nodes if node.frame is not None}
    return any(any(EvalWithoutNoGrad().check(source)) for source in map(source_at, paths) if source is not None)
