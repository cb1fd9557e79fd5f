from collections import Counter

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Buffer
from memlint.whatif.changes import OnlyTheOutput
from memlint_rules.support.dead_references import biggest_of, dead_at_peak, nbytes_of


class OutputsOfEveryLayer(TraceRule):
    """A model of transformers returns the hidden states or attention weights of every layer.

    Looks for several tensors of one line that are alive at the peak although nothing reads them again, and runs the
    program again with `output_hidden_states`, `output_attentions`, `output_scores` and `output_logits` of its configs
    off.

    ## Why it costs memory

    What each layer has computed lives until the model's result is released, in a generation those of every token.
    Attention weights have one element for each head and each pair of positions; that they are wanted also rules out
    FlashAttention, which never writes them.

    ## How the saving is computed

    The program is run again with these settings off.

    ## Known limits

    Settings that are given to the call itself, `model(tokens, output_attentions=True)`, are not switched off.

    - https://huggingface.co/docs/transformers/main_classes/output
    """

    code, name, severity = "MEM121", "outputs-of-every-layer", Severity.WARNING
    bad = (
        Case(
            """\
import memlint
import torch
from transformers import LlamaConfig, LlamaModel


@memlint.workload(mode="inference")
def encoder():
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "vocab_size": 99}
    config = LlamaConfig(**sizes, num_hidden_layers=12, output_hidden_states=True)
    return LlamaModel(config), {"input_ids": torch.zeros(32, 512, dtype=torch.int64)}
"""
        ),
    )
    good = (bad[0].but({", output_hidden_states=True": ""}),)

    def check(self, context: Context) -> Findings:
        peak, dead = context.estimate.requested.estimate, dead_at_peak(context)
        if not is_notable(-nbytes_of(_made_alike(dead)), peak) or not _is_of_transformers(context):
            return
        after = context.what_if(OnlyTheOutput())
        if after is None or not is_notable(after.peak_change, peak):
            return
        yield self.finding(
            context,
            biggest_of(dead).frame,
            "The model returns what its layers have computed, which lives on beside its output: "
            f"{format_nbytes(nbytes_of(dead))} at the peak are never read again.",
            nbytes=nbytes_of(dead),
            peak_change=after.peak_change,
            confidence=Confidence.EXACT_RETRACE,
            fix="Set `output_hidden_states`, `output_attentions`, `output_scores` and `output_logits` of the config "
            "and the generation config to False, and ask for them in those calls alone that read them.",
        )


def _made_alike(buffers: list[Buffer]) -> list[Buffer]:
    """Return those of which a line has made several, as one in each layer."""
    count = Counter(buffer.frame for buffer in buffers)
    return [buffer for buffer in buffers if count[buffer.frame] > 1]


def _is_of_transformers(context: Context) -> bool:
    """Return True if a kernel ran in a file of transformers."""
    frames = {node.frame for node in context.trace.nodes if node.frame is not None}
    return any("/transformers/" in frame.path for frame in frames)
