from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.whatif.changes import AttentionImplementation
from memlint.whatif.changes.attention_implementation import is_for_flash, most_saved_by_flash


class FlashAttentionUnused(TraceRule):
    """A transformers model that supports FlashAttention runs another attention that takes more memory.

    Looks at models in half precision, or under autocast, whose attention is eager or PyTorch's own.

    ## Why it costs memory

    Eager attention writes scores of length x length. PyTorch's own does not, but with a padding mask it uses a kernel
    that reads a mask of length x length, and grouped keys and values may be repeated for every head. FlashAttention
    receives padding as lengths, and supports groups directly.

    ## How the saving is computed

    The step is traced again with `attn_implementation="flash_attention_2"`, if at the peak the attentions, and masks
    made outside of them, take memory.

    ## Known limits

    The package flash-attn has to be installed where the model trains. It only computes in half precision, and rounds
    sums differently.

    - https://huggingface.co/docs/transformers/attention_interface
    - https://arxiv.org/abs/2307.08691
    """

    code, name, severity = "MEM119", "flash-attention-unused", Severity.INFO
    bad = (
        Case(
            """\
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def memlint_workload():
    config = LlamaConfig(
        hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=8, vocab_size=64,
        attn_implementation="eager",
    )
    tokens = torch.zeros(4, 512, dtype=torch.int64)
    return LlamaForCausalLM(config), {"input_ids": tokens, "labels": tokens}
""",
            line=1,
            dtype="bfloat16",
        ),
    )
    good = (
        bad[0].but({'"eager"': '"flash_attention_2"'}),
        Case.of_layers(
            {"layer": "nn.Linear(64, 64)"},
            "return self.layer(x)",
            {"x": "torch.randn(8, 64)"},
            title="No attention",
            dtype="bfloat16",
        ),
    )

    def check(self, context: Context) -> Findings:
        peak = context.estimate.requested.estimate
        most = most_saved_by_flash(context.trace, context.estimate.at_peak)
        if not is_for_flash(context.trace) or not is_notable(-most, peak):
            return
        after = context.retrace(AttentionImplementation("flash_attention_2"))
        if after is None or not is_notable(after.requested.estimate - peak, peak):
            return
        change = after.requested.estimate - peak
        yield self.finding(
            context,
            None,
            "The model supports FlashAttention but does not use it; with it the step takes "
            f"{format_nbytes(-change)} less.",
            nbytes=-change,
            peak_change=change,
            confidence=Confidence.EXACT_RETRACE,
            fix='Install flash-attn, and make the model with `attn_implementation="flash_attention_2"`.',
        )
