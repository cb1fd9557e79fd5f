"""What `memlint run` costs beyond a script's own imports and data, against the trace of the same step declared.

    python benchmarks/run_overhead.py
    python benchmarks/run_overhead.py --only gpt2 --repeats 9

Both take the same model, batch and AdamW for two steps, each in a process of its own, in turn; medians are printed, and
the median of the ratios of neighbours. Counted is the time from the end of the program's setup, which imports and makes
model and data, to the Trace. Neither counts what both do after that, such as the rules. Seconds are those of the
processor, as far as the process itself uses it: a busy machine changes them little.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import click
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict

MOST_TIMES = 1.3
NUM_STEPS = 2
WORKLOADS = {
    "gpt2": (
        "GPT-2, batch 4, 512 tokens",
        "from fixtures.models.gpt2 import GPT2",
        "GPT2()",
        "[torch.randint(50257, (4, 512), device='cuda') for _ in range(2)]",
        "[1]",
    ),
    "resnet50": (
        "ResNet-50, batch 8, 224 x 224",
        "from fixtures.models.resnet50 import ResNet50",
        "ResNet50()",
        "[torch.randn(8, 3, 224, 224, device='cuda')]",
        ".mean()",
    ),
    "llama": (
        "Llama, 24 layers, batch 4, 512 tokens",
        "from fixtures.models.llama import Llama, LlamaConfig",
        "Llama(LlamaConfig(num_layers=24))",
        "[torch.randint(32000, (4, 512), device='cuda') for _ in range(2)]",
        "[1]",
    ),
    "transformers": (
        "GPT-2 of transformers, batch 4, 512 tokens",
        "from transformers import GPT2Config, GPT2LMHeadModel",
        "GPT2LMHeadModel(GPT2Config())",
        "[torch.randint(50257, (4, 512), device='cuda')]",
        ".logits.mean()",
    ),
}
"""What is shown, and the text that imports and makes the model, makes the batch and takes the loss."""
PROGRAM = """
import torch
{imports}

def setup():
    model = {model}.train().cuda()
    return model, {batch}, torch.optim.AdamW(model.parameters(), foreach=True)

def step(model, batch, optimizer):
    model(*batch){loss}.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SCRIPT = """
import time
import program
state = program.setup()
print("ready", time.process_time())
while True:
    program.step(*state)
"""


def of_script(folder: Path) -> None:
    """Run train.py of `folder`, and print the times at which its setup and its Trace are there."""
    from memlint.memory.allocator.settings import AllocatorSettings
    from memlint.memory.devices import DEFAULT_DEVICE, device_named
    from memlint.script.run import ScriptRun, run_script
    from memlint.targets.script import Script
    from memlint.workloads import torchvision_schemas

    torchvision_schemas.install()

    def answer(run: ScriptRun) -> NoReturn:
        print("end", time.process_time(), flush=True)
        assert run.num_steps == NUM_STEPS, run.ending
        os._exit(0)

    def fail(error: BaseException) -> NoReturn:
        raise error

    script = Script(name="train", path=str(folder / "train.py"), steps=NUM_STEPS)
    exchange = Path(tempfile.mkdtemp(dir=folder))
    (exchange / "scratch").mkdir()
    run_script(script, device_named(DEFAULT_DEVICE), AllocatorSettings(), exchange, lambda _run: None, answer, fail)


def of_declaration() -> None:
    """Trace the program in the current folder; as `of_script`."""
    from memlint.memory.devices import DEFAULT_DEVICE, device_named
    from memlint.tracing.recorder import trace_program
    from memlint.workloads import torchvision_schemas

    torchvision_schemas.install()
    import program  # type: ignore[import-not-found]

    declared = SimpleNamespace()

    def setup() -> None:
        declared.model, declared.inputs, declared.optimizer = program.setup()
        print("ready", time.process_time())

    declared.setup = setup
    declared.step = lambda: program.step(declared.model, declared.inputs, declared.optimizer)
    trace_program(declared, device_named(DEFAULT_DEVICE), num_steps=NUM_STEPS)
    print("end", time.process_time())


def seconds(folder: Path, measured: str) -> float:
    """Of one measurement, in a process of its own."""
    command = [sys.executable, __file__, "--measure", measured, "--folder", str(folder)]
    path = os.pathsep.join((str(folder), str(ROOT)))
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    marks = dict(line.split() for line in done.stdout.splitlines())
    if "end" not in marks:
        raise click.ClickException(f"{measured} failed:\n{done.stderr}")
    return float(marks["end"]) - float(marks["ready"])


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Measurements of each.")
@click.option("--only", type=click.Choice(tuple(WORKLOADS)), multiple=True, help="Workloads to measure.")
@click.option("--measure", type=click.Choice(("run", "declared")), hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(repeats: int, only: tuple[str, ...], measure: str | None, folder: Path | None) -> None:
    """Print medians in seconds, and the ratio."""
    if measure is not None and folder is not None:
        of_declaration() if measure == "declared" else of_script(folder)
        return
    rows, most = [], (0.0, "")
    for name in only or WORKLOADS:
        title, imports, model, batch, loss = WORKLOADS[name]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            text = PROGRAM.format(imports=imports, model=model, batch=batch, loss=loss)
            (folder / "program.py").write_text(textwrap.dedent(text))
            (folder / "train.py").write_text(SCRIPT)
            pairs = [(seconds(folder, "run"), seconds(folder, "declared")) for _ in range(repeats + 1)][1:]
        ratio = statistics.median(run / declared for run, declared in pairs)
        run, declared = (statistics.median(each) for each in zip(*pairs, strict=True))
        rows.append([title, run, declared, ratio])
        most = max(most, (ratio, title))
    print(f"processor seconds, medians of {repeats} pairs of processes in turn, after one that is not counted\n")
    headers = ("two steps of", "memlint run", "trace, declared", "times")
    print(tabulate(rows, headers, tablefmt="github", floatfmt=".2f"))
    claim = f"Beyond imports and data memlint run takes at most {MOST_TIMES} times the trace of the same step declared"
    verdict(claim, f"at most {most[0]:.2f} times ({most[1]})", held=most[0] <= MOST_TIMES)


if __name__ == "__main__":
    main()
