import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, is_literal
from memlint.source.scopes import calls
from memlint.source.text import Source, dotted_name

SHORT = 128
"""Number of tokens up to which padding is not reported."""

_PADDED = re.compile(r"""padding\s*=\s*['"]max_length""")
_TRAINS = re.compile(r"DataLoader|Trainer|Dataset\)|\.map\(|backward\(|\.fit\(")
_FIXED_SHAPES = re.compile(r"\bxla\b|torch_xla|neuron|openvino|onnx|tensorrt|CUDAGraph|reduce-overhead", re.IGNORECASE)
_TEXT_ENCODER = re.compile(r"diffusers|text_encoder|CLIP|T5Encoder")
_TOKENIZER = re.compile(r"(.*_)?tok(enizer|enize)?(_\w+)?", re.IGNORECASE)


class PadToMax(SourceRule):
    """Every text is padded to the maximum length, not to the longest text of its batch.

    Looks for tokenizers called with `padding="max_length"` in files that create data sets or train, unless the length
    is known to be short.

    ## Why it costs memory

    Activations grow with the padded length: in proportion to it in most layers, and with its square if attention writes
    its scores to memory. A batch padded to its own longest text is only as long as that text.

    ## How the saving is computed

    Trace the workload at the length of most batches, and compare.

    ## Known limits

    The lengths of the texts are not known: if all are near the limit nothing is gained, and the peak over a run is that
    of the longest batch. Lengths of up to 128 are left out, as are the text encoders of image models, which require a
    fixed number of tokens, and files for compilers that require fixed shapes.

    - https://huggingface.co/docs/transformers/main/en/pad_truncation
    - https://huggingface.co/docs/transformers/main/en/main_classes/data_collator
    """

    code, name, severity = "MEM505", "pad-to-max", Severity.WARNING
    example = """\
from transformers import AutoTokenizer, Trainer

def prepare(dataset):
    tokenizer = AutoTokenizer.from_pretrained("gpt2")

    def encode(rows):
        return tokenizer(rows["text"], truncation=True, padding="max_length", max_length=2048)

    return dataset.map(encode, batched=True)
"""
    bad = (Case(example, line=7),)
    good = (
        Case("""\
from transformers import AutoTokenizer, DataCollatorWithPadding, Trainer

def prepare(dataset):
    tokenizer = AutoTokenizer.from_pretrained("gpt2")

    def encode(rows):
        return tokenizer(rows["text"], truncation=True, max_length=2048)

    return dataset.map(encode, batched=True), DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)
"""),
        Case("""\
from torch.utils.data import DataLoader

def encode(tokenizer, caption):
    return tokenizer(caption, padding="max_length", truncation=True, max_length=tokenizer.model_max_length)
""").but(title="A text encoder with positions for exactly 77 tokens"),
    )

    def check(self, source: Source) -> Findings:
        text = source.text
        if (
            "max_length" not in source.words
            or not _PADDED.search(text)
            or not _TRAINS.search(text)
            or _FIXED_SHAPES.search(text)
            or _TEXT_ENCODER.search(text)
        ):
            return
        for _scope, call in calls(source):
            if not is_literal(argument(call, "padding"), "max_length") or not _is_tokenizer(call):
                continue
            length = argument(call, "max_length")
            if not _is_short(length):
                written = f" of {ast.unparse(length)[:40]}" if length is not None else ""
                yield self.finding(
                    source,
                    call,
                    f"Every text is padded to the largest length{written}, so short texts take as many bytes of "
                    "activations as the longest.",
                    "Leave `padding` out and let the collator pad each batch, as `DataCollatorWithPadding` does.",
                )


def _is_tokenizer(call: ast.Call) -> bool:
    name = dotted_name(call.func)
    for method in (".encode_plus", ".batch_encode_plus", ".encode", ".pad", ".__call__"):
        name = name.removesuffix(method)
    return _TOKENIZER.fullmatch(name.rpartition(".")[2]) is not None


def _is_short(length: ast.expr | None) -> bool:
    if isinstance(length, ast.Constant) and isinstance(length.value, int):
        return length.value <= SHORT
    return length is not None and "model_max_length" in ast.unparse(length)
