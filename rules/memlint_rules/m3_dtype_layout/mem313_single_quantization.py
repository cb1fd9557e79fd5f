import re

from memlint.base.units import format_nbytes
from memlint.lint.edits import unsafe, with_argument
from memlint.lint.rule import Case, Confidence, Context, Finding, Findings, Severity, SourceRule, place_of
from memlint.source.calls import argument, is_literal, unpacks
from memlint.source.scopes import calls
from memlint.source.text import Source
from memlint.whatif.changes import DoubleQuantization

_CONFIG = re.compile(r"transformers\.(\w+\.)*BitsAndBytesConfig")
_ARGUMENT = "bnb_4bit_use_double_quant"


class SingleQuantization(SourceRule):
    """4-bit weights keep their scales in 32 bits.

    Looks for `BitsAndBytesConfig(load_in_4bit=True)` without `bnb_4bit_use_double_quant`, and for traced steps with
    4-bit weights of bitsandbytes.

    ## Why it costs memory

    Each 64 weights share a float32 scale: half a bit per weight, an eighth of the weights themselves. Double
    quantization keeps the scales in 8 bits, with a float32 number for each 256 of them: 0.127 bits per weight.

    ## How the saving is computed

    In a traced workload the scales are quantized, and the step is traced again. From source text alone nothing is
    computed.

    ## Known limits

    Weights are rounded slightly differently, and one more kernel runs wherever they are read.

    - https://arxiv.org/abs/2305.14314
    - https://huggingface.co/docs/transformers/quantization/bitsandbytes
    """

    code, name, severity = "MEM313", "single-quantization", Severity.INFO
    words = ("bitsandbytes",)
    bad = (
        Case(
            """\
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
model = AutoModelForCausalLM.from_pretrained("model", quantization_config=config)
""",
            line=3,
        ),
    )
    good = (
        bad[0].but({"load_in_4bit=True": "load_in_4bit=True, bnb_4bit_use_double_quant=True"}),
        bad[0].but({"load_in_4bit=True": "load_in_8bit=True"}, title="8-bit weights have a scale for each row"),
    )

    def check(self, source: Source) -> Findings:
        for _scope, call in calls(source, _CONFIG):
            is_4bit, choice = is_literal(argument(call, "load_in_4bit"), True), argument(call, _ARGUMENT)
            if is_4bit and not unpacks(call) and (choice is None or is_literal(choice, False)):
                correction = unsafe(with_argument(source, call, f"{_ARGUMENT}=True")) if choice is None else None
                yield self.finding(
                    source,
                    call,
                    "Scales of the 4-bit weights take half a bit per weight, because they are kept in 32 bits.",
                    f"Add `{_ARGUMENT}=True`.",
                    correction=correction,
                )

    def check_steps(self, context: Context) -> Findings:
        if not any(node.op.startswith("bitsandbytes.") for node in context.trace.nodes):
            return
        after = context.retrace(DoubleQuantization())
        if after is None:
            return
        change = after.requested.estimate - context.estimate.requested.estimate
        yield Finding(
            code=self.code,
            **place_of(None, context),
            message="Scales of the 4-bit weights are kept in 32 bits; "
            f"in 8 bits the step takes {format_nbytes(-change)} less.",
            severity=self.severity,
            confidence=Confidence.EXACT_RETRACE,
            nbytes=-change,
            peak_change=change,
            fix=f"Add `{_ARGUMENT}=True` to BitsAndBytesConfig, or make layers with `compress_statistics=True`.",
        )
