"""Time of two training steps: on bare meta tensors, traced by memlint, and under PyTorch's MemTracker.

    python benchmarks/trace.py
    python benchmarks/trace.py --only gpt2 --repeats 9

All three take the same model, inputs and AdamW (its foreach implementation, which a GPU would run) and are run in turn
in one process; the medians are printed. Making the model, the inputs and the optimizer is timed apart, for all three.
On meta tensors and on the CPU, foreach kernels are loops over the parameters.

Mamba is that of transformers, with 4 of its layers and 32 tokens: without compiled kernels it runs one after the other
token by token, so that its steps are many small kernels, and the published 24 layers with usual lengths take minutes.

memlint's time is that of `trace_program` from the end of the program's setup to its return: the steps, the attribution
to lines and modules, the records and the graph. MemTracker runs under FakeTensorMode, as its documentation has it, and
only its steps are timed. Python's collector of cycles runs before each measurement and not during the steps of meta
tensors and of MemTracker; memlint runs it after each step itself, within its time.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import click
import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from memlint.memory.devices import DEFAULT_DEVICE, device_named
from memlint.tracing.recorder import trace_program
from memlint.workloads import torchvision_schemas

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from fixtures.models.bert import Bert
from fixtures.models.clip import CLIP, contrastive_loss
from fixtures.models.gpt2 import GPT2
from fixtures.models.llama import Llama, LlamaConfig
from fixtures.models.resnet50 import ResNet50
from fixtures.models.swin import Swin

torchvision_schemas.install()  # which transformers imports, and which may be a build for another PyTorch
from transformers import MambaConfig, MambaForCausalLM

NUM_STEPS = 2
MOST_OF_META, LEAST_OF_MEMTRACKER = 1.2, 8

MakeModel = Callable[[], nn.Module]
MakeInputs = Callable[[str], dict[str, Tensor]]
"""Gives the arguments of the model on the device named."""


class Seconds(NamedTuple):
    """Of one measurement."""

    setup: float
    steps: float


class Program:
    """The training loop that is measured, on a device given by name."""

    def __init__(self, make_model: MakeModel, make_inputs: MakeInputs, device: str) -> None:
        self.make_model, self.make_inputs, self.device = make_model, make_inputs, device

    def setup(self) -> None:
        self.model = self.make_model().train()
        if next(self.model.parameters()).device.type != self.device:
            self.model.to(self.device)
        self.inputs = self.make_inputs(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)
        self.ready = time.perf_counter()

    def step(self) -> None:
        output = self.model(**self.inputs)  # which lives as long as in an ordinary loop
        loss = loss_of(self.model, output)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def loss_of(model: nn.Module, output: Any) -> Tensor:
    """The model's own loss, or that of classes."""
    if isinstance(model, CLIP):
        return contrastive_loss(*output)
    if isinstance(output, tuple):
        return output[1]
    if not isinstance(output, Tensor):
        return output.loss
    return nn.functional.cross_entropy(output, torch.zeros(len(output), dtype=torch.int64, device=output.device))


def tokens(vocab: int, *names: str, batch: int = 4, length: int = 512) -> MakeInputs:
    return lambda device: {name: torch.randint(vocab, (batch, length), device=device) for name in names}


def images(batch: int = 8, size: int = 224) -> MakeInputs:
    return lambda device: {"images": torch.randn(batch, 3, size, size, device=device)}


def image_text_pairs(batch: int = 8) -> MakeInputs:
    return lambda device: images(batch)(device) | tokens(49408, "tokens", batch=batch, length=77)(device)


def small_mamba() -> nn.Module:
    return MambaForCausalLM(MambaConfig(num_hidden_layers=4, use_cache=False))


WORKLOADS = {
    "gpt2": ("GPT-2, batch 4, 512 tokens", GPT2, tokens(50257, "tokens", "targets")),
    "bert": ("BERT, batch 4, 512 tokens", Bert, tokens(30522, "input_ids", "labels")),
    "clip": ("CLIP ViT-B/32, batch 8", CLIP, image_text_pairs()),
    "llama": (
        "Llama, 24 layers, batch 4, 512 tokens",
        lambda: Llama(LlamaConfig(num_layers=24)),
        tokens(32000, "tokens", "targets"),
    ),
    "resnet50": ("ResNet-50, batch 8, 224 x 224", ResNet50, images()),
    "swin": ("Swin-T, batch 8, 224 x 224", Swin, images()),
    "mamba": (
        "Mamba, 4 layers, batch 2, 32 tokens",
        small_mamba,
        tokens(50280, "input_ids", "labels", batch=2, length=32),
    ),
}


def on_meta(make_model: MakeModel, make_inputs: MakeInputs) -> Seconds:
    """Take the steps on meta tensors, without any mode."""
    program = Program(make_model, make_inputs, "meta")
    with _collected():
        start = time.perf_counter()
        with torch.device("meta"):
            program.setup()
        for _ in range(NUM_STEPS):
            program.step()
        return Seconds(program.ready - start, time.perf_counter() - program.ready)


def traced(make_model: MakeModel, make_inputs: MakeInputs) -> Seconds:
    """Trace for an A100, graph and attribution included."""
    program = Program(make_model, make_inputs, "cuda")
    start = time.perf_counter()
    recorded = trace_program(program, device_named(DEFAULT_DEVICE), num_steps=NUM_STEPS)
    end = time.perf_counter()
    assert recorded.trace.num_steps == NUM_STEPS
    assert len(recorded.graph.nodes) > len(recorded.trace.nodes) // 2
    return Seconds(program.ready - start, end - program.ready)


def with_memtracker(make_model: MakeModel, make_inputs: MakeInputs) -> Seconds:
    """Track fake CPU tensors: fake CUDA tensors have no backward where there is no GPU."""
    program = Program(make_model, make_inputs, "cpu")
    # trunc_normal_ reads a value, which FakeTensorMode cannot give; the weights' values do not matter here.
    with FakeTensorMode(), patch("torch.nn.init.trunc_normal_", lambda tensor, *_, **__: tensor), _collected():
        start = time.perf_counter()
        program.setup()
        tracker = MemTracker()
        tracker.track_external(program.model, program.optimizer, *program.inputs.values())
        ready = time.perf_counter()
        with tracker:
            for _ in range(NUM_STEPS):
                tracker.reset_mod_stats()
                program.step()
        return Seconds(ready - start, time.perf_counter() - ready)


@contextmanager
def _collected() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


SUBJECTS = {"meta": on_meta, "memlint": traced, "MemTracker": with_memtracker}


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Measurements of each.")
@click.option("--only", type=click.Choice(tuple(WORKLOADS)), multiple=True, help="Workloads to measure.")
@click.option("--without-memtracker", is_flag=True, help="Leave MemTracker out: it takes most of the time.")
def main(repeats: int, only: tuple[str, ...], without_memtracker: bool) -> None:
    """Print medians in seconds and their ratios."""
    subjects = {name: run for name, run in SUBJECTS.items() if not (without_memtracker and name == "MemTracker")}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, seconds: medians of {repeats} runs in turn\n")
    rows = []
    for key in only or WORKLOADS:
        title, make_model, make_inputs = WORKLOADS[key]
        measured: dict[str, list[Seconds]] = {name: [] for name in subjects}
        for _ in range(repeats):
            for name, run in subjects.items():
                measured[name].append(run(make_model, make_inputs))
        setup = {name: statistics.median(each.setup for each in runs) for name, runs in measured.items()}
        steps = {name: statistics.median(each.steps for each in runs) for name, runs in measured.items()}
        tracker = steps.get("MemTracker")
        rows.append(
            [
                title,
                *(steps.get(name) for name in SUBJECTS),
                steps["memlint"] / steps["meta"],
                tracker and tracker / steps["memlint"],
                *(setup.get(name) for name in SUBJECTS),
            ]
        )
        print(f"{key}: done", file=sys.stderr)
    headers = [
        "workload",
        *(f"steps: {name}" for name in SUBJECTS),
        "memlint / meta",
        "MemTracker / memlint",
        *(f"setup: {name}" for name in SUBJECTS),
    ]
    print(tabulate(rows, headers, tablefmt="github", floatfmt=".2f", missingval="-"))
    slowest = max(rows, key=lambda row: row[4])
    verdict(
        f"Tracing two steps takes at most {MOST_OF_META} times as long as the bare steps on meta tensors",
        f"at most {slowest[4]:.2f} times ({slowest[0]})",
        held=slowest[4] <= MOST_OF_META,
    )
    if not without_memtracker:
        nearest = min(rows, key=lambda row: row[5])
        verdict(
            f"Tracing is at least {LEAST_OF_MEMTRACKER} times as fast as MemTracker",
            f"at least {nearest[5]:.1f} times ({nearest[0]})",
            held=nearest[5] >= LEAST_OF_MEMTRACKER,
        )


if __name__ == "__main__":
    main()
