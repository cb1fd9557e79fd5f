"""Compiled steps on the host: memlint's prediction beside Inductor's own step, really compiled and run.

    python -m benchmarks.compiled
    python -m benchmarks.compiled gpt2 bert

Prints for each model the requested peak in bytes of two training steps: eager as predicted, compiled as predicted and
at most, and compiled as the profiler's memory events say of the real step. Inductor compiles a real step with g++, a
minute or so; the prediction needs no compiler. Each real step runs in a process of its own, which has nothing of
memlint's device.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

import click
import torch
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from tests.oracles.programs import OPTIMIZERS, PROGRAMS

if TYPE_CHECKING:
    from memlint.memory.estimate import Interval
    from tests.oracles.programs import TrainingProgram

MODELS = ("mlp", "gpt2", "gpt2-dropout", "bert", "llama", "vit", "mixer", "convnext", "lstm")


def program_of(name: str, *, compiles: bool = True) -> TrainingProgram:
    """Make the program whose model is compiled, by whatever `torch.compile` is then."""
    program = PROGRAMS[name](OPTIMIZERS["adamw"])
    setup = program.setup

    def compiled_setup() -> None:
        setup()
        program.model.compile()

    if compiles:
        program.setup = compiled_setup  # type: ignore[method-assign]
    program.compiles = compiles  # type: ignore[attr-defined]
    return program


def predicted(name: str, *, compiles: bool = True) -> Interval:
    """Predict the peak in bytes; `torch.compile` is memlint's then."""
    from memlint.memory.devices import device_named
    from memlint.memory.estimate import estimate
    from memlint.memory.timeline import Timeline
    from memlint.tracing.recorder import trace_program

    host = device_named("cpu")
    trace = trace_program(program_of(name, compiles=compiles), host).trace
    return estimate(Timeline.of(trace), host, trace.nodes).requested


def real(name: str) -> int:
    """Measure the peak in bytes of the real step."""
    from memlint.session.real.cpu import measure_cpu_step

    return measure_cpu_step(program_of(name)).peak_nbytes


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(MODELS))
@click.option("--real", "is_real", is_flag=True, help="Print the real peak of one model alone.")
def main(names: tuple[str, ...], is_real: bool) -> None:
    """Print a table of the models named, or of all."""
    if is_real:
        with TemporaryDirectory() as folder, patch.dict("os.environ", {"TORCHINDUCTOR_CACHE_DIR": folder}):
            print(real(names[0]))
        return
    from memlint.compile import requests

    requests.install()
    rows = []
    for name in names or MODELS:
        command = [sys.executable, "-m", "benchmarks.compiled", "--real", name]
        measured = int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()[-1])
        compiled = predicted(name)
        difference = f"{100 * (compiled.estimate / measured - 1):+.2f} %"
        eager = predicted(name, compiles=False).estimate
        rows.append((name, eager, compiled.estimate, compiled.high, measured, difference))
        print(*rows[-1], flush=True)
    print(f"torch {torch.__version__}")
    heads = ["model", "eager", "compiled", "at most", "really", "difference"]
    print(tabulate(rows, heads, tablefmt="github", intfmt=","))


if __name__ == "__main__":
    main()
