"""Published peaks of compiled training steps on a GPU, beside memlint's predictions of the same programs.

    python -m benchmarks.published_compiled
    python -m benchmarks.published_compiled vit-h hf_Bert

Prints for each program what was published, eager and compiled, and what is predicted for the installed PyTorch. Most
figures were measured with PyTorch of 2023 and 2024, whose Inductor fused otherwise; `differs` says what else differs.
Ratios are those of PyTorch's dashboard: its compiled peak includes compilation (`benchmarks/dynamo/common.py`). Each
program runs in a process of its own; to compile takes up to some minutes of processor time. BERT_pytorch needs a
checkout of torchbenchmark/models/BERT_pytorch of github.com/pytorch/benchmark in PYTHONPATH, Flux 2 needs diffusers.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import click
import torch
from tabulate import tabulate
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from memlint.tracing.recorder import Program
from tests.oracles.compiled_issues import Budgeted, TwoTraversals
from tests.oracles.onetrainer import Klein
from tests.oracles.torchao import Pretraining
from tests.oracles.torchtune import Finetuning, Recipe

_VIT = "https://github.com/pytorch/ao/commits/main/torchao/prototype/low_bit_optim/README.md"
"""The history of that page: one version has 12.23 GB for ViT-H; commit 03cf0ade has 12.94, and 9.82 for eager ViT-g."""
_TORCHTUNE = "https://github.com/pytorch/torchtune/blob/1814feb17/README.md"
_DASHBOARD = "https://github.com/pytorch/pytorch/issues/93794"
_PRETRAINING = "https://github.com/pytorch/ao/blob/93b3a5985/torchao/prototype/quantized_training/README.md"
_ISSUES = "https://github.com/pytorch/pytorch/issues/"


class Compilable(Program, Protocol):
    """A program whose model is compiled, or is not."""

    compiles_model: bool


@dataclass
class Step:
    """One training step of `benchmarks/dynamo` in PyTorch (2023) or of torchao's benchmark of optimizers (2024)."""

    make_model: Callable[[], nn.Module]
    make_inputs: Callable[[], dict[str, Any]]
    loss: Callable[[Any, dict[str, Any]], torch.Tensor]
    make_optimizer: Callable[[Any], torch.optim.Optimizer]
    dtype: torch.dtype | None
    """The dtype of autocast; None without."""
    name: str = "published"
    device: str = "cuda"
    compiles: bool = True
    compiles_model: bool = True
    generates: bool = False

    def setup(self) -> None:
        """Build everything on the GPU."""
        self.model = self.make_model().to(self.device).train()
        if self.compiles_model:
            self.model.compile()
        self.inputs = self.make_inputs()
        self.optimizer = self.make_optimizer(self.model.parameters())
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.dtype is torch.float16)

    def step(self) -> None:
        """Take a step: the prediction stays alive through backward."""
        with torch.autocast("cuda", dtype=self.dtype, enabled=self.dtype is not None):
            output = self.model(**self.inputs)
            loss = self.loss(output, self.inputs)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


@dataclass(frozen=True)
class Row:
    """One published figure: bytes of the allocated peak, or the ratio of the eager to the compiled one."""

    name: str
    gpu: str
    program: Callable[[], Compilable]
    eager: float | None
    compiled: float | None
    ratio: float | None
    differs: str
    url: str
    unit: int = 10**9
    """Bytes: GB, or GiB."""
    peak: str = "allocated"
    """The peak of an Estimate that was measured."""
    beside: int = 0
    """Bytes that the measured program held beside what is predicted."""
    num_sms: int = 0
    """Multiprocessors of the GPU, if it is another one of the same compute capability."""


def _images(model: str, batch: int, size: int, dtype: torch.dtype, **options: Any) -> Step:
    import timm

    full = dtype is torch.bfloat16 and options.pop("full", False)
    checkpoints = options.pop("checkpoints", False)

    def make() -> nn.Module:
        made = timm.create_model(model, num_classes=45, **options)
        made.set_grad_checkpointing(checkpoints)
        return made.bfloat16() if full else made

    def inputs() -> dict[str, Any]:
        return {"x": torch.randn(batch, 3, size, size, device="cuda", dtype=dtype if full else torch.float32)}

    def loss(output: torch.Tensor, _inputs: dict[str, Any]) -> torch.Tensor:
        return nn.functional.cross_entropy(output, torch.zeros(batch, dtype=torch.int64, device="cuda"))

    return Step(make, inputs, loss, lambda each: torch.optim.AdamW(each, fused=True), None if full else dtype)


def _scalar(output: Any, _inputs: dict[str, Any]) -> torch.Tensor:
    """The mean of all outputs, as `reduce_to_scalar_loss` of PyTorch's benchmarks takes it."""
    if isinstance(output, torch.Tensor):
        return output.sum() / output.numel()
    values = list(output.values()) if hasattr(output, "values") else list(output)
    parts = [_scalar(each, {}) for each in values if each is not None]
    return sum(parts[1:], parts[0]) / len(parts)


def _dashboard(make: Callable[[], nn.Module], inputs: Callable[[], dict[str, Any]]) -> Step:
    return Step(make, inputs, _scalar, lambda each: torch.optim.SGD(each, lr=0.01), torch.float16)


def _text(kind: str, config: str, batch: int, length: int, **settings: Any) -> Step:
    import transformers

    made = getattr(transformers, config)(**settings)

    def inputs() -> dict[str, Any]:
        tokens = torch.randint(made.vocab_size, (batch, length), device="cuda")
        named = {"input_ids": tokens, "labels": tokens.clone()}
        if made.is_encoder_decoder:
            named["decoder_input_ids"] = tokens.clone()
            del named["labels"]
        return named

    return _dashboard(lambda: getattr(transformers, kind)(made), inputs)


def _vision(make: Callable[[], nn.Module], batch: int, size: int, name: str = "x") -> Step:
    return _dashboard(make, lambda: {name: torch.randn(batch, 3, size, size, device="cuda")})


def _mobilenet() -> nn.Module:
    import torchvision

    model: nn.Module = torchvision.models.mobilenet_v2()
    return model


def _nfnet() -> nn.Module:
    import timm

    model: nn.Module = timm.create_model("dm_nfnet_f0")
    return model


def _bert_pytorch() -> nn.Module:
    from bert_pytorch.model import BERT, BERTLM

    model: nn.Module = BERTLM(BERT(_WORDS), _WORDS)
    return model


def _sentences() -> dict[str, Any]:
    return {name: torch.ones(16, 128, dtype=torch.int64, device="cuda") for name in ("x", "segment_label")}


def _budgeted(budget: float, measured: float) -> Row:
    return Row(f"llama, budget {budget}", "t4", lambda: Budgeted(budget), 1.6429, measured, None,
               "GTX 1650, PyTorch 2.14", _ISSUES + "197838", num_sms=14)  # fmt: skip


_CORPUS = 1_164_000_000
"""Bytes of the tokens of TinyStories, two each: what the eager figure has beside the prediction."""
_WORDS = 20_006
"""Random numbers below 20,000, a separator and five marks."""
_BUDGETS = {0.05: 1.1257, 0.1: 0.8056, 0.15: 0.6052, 0.2: 0.6367, 0.3: 0.6953}
"""Peaks by `activation_memory_budget`: results/measured_backward/inductor of github.com/siddddd17/ackaudit."""
_ALBERT = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_T5 = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "decoder_start_token_id": 0}
_TUNED = Recipe()
_CHUNKED = replace(_TUNED, chunks_loss=True)
_CHECKPOINTED = replace(_CHUNKED, checkpoints=True)
_IN_BACKWARD = replace(_CHECKPOINTED, steps_in_backward=True)
_OFFLOADED = replace(_IN_BACKWARD, offloads=True)
_LORA = replace(_CHECKPOINTED, offloads=True, lora_rank=64, optimizer={})
_OLD = "PyTorch of March 2023, compilation included; transformers of then (attention written out)"


def _tuned(name: str, recipe: Recipe, eager: float | None, compiled: float, differs: str = "") -> Row:
    return Row(name, "a100-80gb", lambda: Finetuning(recipe), eager, compiled, None,
               "PyTorch of 2024" + differs, _TORCHTUNE, 2**30)  # fmt: skip


ROWS = (
    Row("vit-h", "rtx4090", lambda: _images("vit_huge_patch14_224", 8, 224, torch.bfloat16),
        None, 12.23, None, "PyTorch of 2024", _VIT),
    Row("vit-g checkpointed", "rtx4090",
        lambda: _images("vit_giant_patch14_dinov2", 32, 224, torch.bfloat16, img_size=224, full=True, checkpoints=True),
        9.82, 9.90, None, "PyTorch of 2024", _VIT),
    _tuned("llama 3b packed", _TUNED, 60.0, 51.0),
    _tuned("llama 3b, loss in chunks", _CHUNKED, None, 42.9),
    _tuned("llama 3b, checkpointed", _CHECKPOINTED, None, 24.9),
    _tuned("llama 3b, step in backward", _IN_BACKWARD, None, 23.1),
    _tuned("llama 3b, LoRA", _LORA, None, 8.5, "; copies to the host on the same stream"),
    _tuned("llama 3b, activations on the host", _OFFLOADED, None, 21.8, "; copies to the host on the same stream"),
    Row("llama 1b pretrained, checkpointed", "rtx4070-ti-super", Pretraining,
        11.07, 10.25, None, "PyTorch of 2024; the corpus on the GPU, from the eager figure", _PRETRAINING,
        beside=_CORPUS),
    *(_budgeted(budget, measured) for budget, measured in _BUDGETS.items()),
    Row("flux 2, LoRA", "rtx4070-ti-super", Klein,
        11.3, 11.0, None, "the process, PyTorch 2.9.1", _ISSUES + "175058", 2**30, "device"),
    Row("two traversals", "a100-80gb", TwoTraversals,
        None, None, 1 / 2.3, "rebuilt from the description; sizes are ours", _ISSUES + "193193"),
    Row("BERT_pytorch", "a100-40gb", lambda: _dashboard(_bert_pytorch, _sentences),
        None, None, 1.1717, "PyTorch of March 2023, compilation included", _DASHBOARD),
    Row("mobilenet_v2", "a100-40gb", lambda: _vision(_mobilenet, 96, 224),
        None, None, 1.1011, "PyTorch of March 2023, compilation included", _DASHBOARD),
    Row("hf_Bert", "a100-40gb", lambda: _text("BertForMaskedLM", "BertConfig", 4, 512),
        None, None, 1.0262, _OLD, _DASHBOARD),
    Row("hf_Albert", "a100-40gb", lambda: _text("AlbertForMaskedLM", "AlbertConfig", 8, 512, **_ALBERT),
        None, None, 1.2621, _OLD, _DASHBOARD),
    Row("hf_T5", "a100-40gb", lambda: _text("T5ForConditionalGeneration", "T5Config", 8, 1024, **_T5),
        None, None, 1.2478, _OLD, _DASHBOARD),
    Row("timm_nfnet", "a100-40gb", lambda: _vision(_nfnet, 128, 192),
        None, None, 1.0717, "PyTorch of March 2023, compilation included", _DASHBOARD),
)  # fmt: skip


def predicted(row: Row, *, compiles: bool) -> int:
    """Predict the peak that was measured, in bytes; `torch.compile` is memlint's then."""
    from memlint.memory.devices import device_named
    from memlint.memory.estimate import estimate
    from memlint.memory.timeline import Timeline
    from memlint.tracing.recorder import trace_program

    program = row.program()
    program.compiles_model = compiles
    gpu = device_named(row.gpu)
    gpu = replace(gpu, num_sms=row.num_sms or gpu.num_sms)
    trace = trace_program(program, gpu).trace
    peak: int = getattr(estimate(Timeline.of(trace), gpu, trace.nodes), row.peak).estimate
    return peak + row.beside


def _compared(row: Row) -> tuple[Any, ...]:
    command = [sys.executable, "-m", "benchmarks.published_compiled", "--one", row.name]
    output = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    try:
        eager, compiled = (int(each) for each in output.stdout.split()[-2:])
    except ValueError:
        print(output.stderr[-2000:], file=sys.stderr)
        return (row.name, "", "", "", "failed", "", row.differs)
    if row.compiled is None:
        assert row.ratio is not None
        error = (eager / compiled) / row.ratio - 1
        published = f"eager / compiled {row.ratio:.3f}"
    else:
        error = compiled / row.unit / row.compiled - 1
        unit = "GB" if row.unit == 10**9 else "GiB"
        published = f"{row.compiled:.2f} {unit}" + (f" (eager {row.eager:.2f})" if row.eager else "")
    own = f"{eager / compiled:.3f}"
    return (
        row.name,
        published,
        f"{eager / row.unit:.2f}",
        f"{compiled / row.unit:.2f}",
        own,
        f"{100 * error:+.1f} %",
        row.differs,
    )


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([row.name for row in ROWS]))
@click.option("--one", "is_one", is_flag=True, help="Print the predicted bytes of one program, eager and compiled.")
def main(names: tuple[str, ...], is_one: bool) -> None:
    """Print a table of the programs named, or of all."""
    rows = [row for row in ROWS if not names or row.name in names]
    if is_one:
        from memlint.compile import requests
        from memlint.workloads import torchvision_schemas

        torchvision_schemas.install()  # where its build does not match PyTorch's
        requests.install()
        print(*(predicted(rows[0], compiles=compiles) for compiles in (False, True)))
        return
    compared = []
    for row in rows:
        compared.append(_compared(row))
        print(*compared[-1], sep=" | ", flush=True)
    errors = [abs(float(row[5].removesuffix(" %"))) for row in compared if row[5]]
    print(f"torch {torch.__version__}")
    heads = ["program", "published", "eager", "compiled", "eager / compiled", "difference", "differs"]
    print(tabulate(compared, heads, tablefmt="github"))
    if errors:
        print(f"median difference {statistics.median(errors):.1f} % of {len(errors)}")


if __name__ == "__main__":
    main()
