"""How time and host memory of `memlint check` grow with the layers of a model, and that they do not with its width.

    python benchmarks/growth.py
    python benchmarks/growth.py --layers 2,64 --widths 1024,16384 --repeats 1

The model is Llama-3.1-405B from its config, in which the number of layers is changed, or the width of 8 layers: hidden
size, heads and MLP together. A straight line is laid through the medians over the number of layers by least squares:
of the host memory, and of the seconds of all processors, which other work on the machine disturbs less than those of
the clock. How far the farthest point is from it is named. Nothing is cached, and no other batch sizes are looked at
beside the one asked for. What rules have simulated is part of it: at 16 layers three of them trace a changed program,
from 32 on none does.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click
from tabulate import tabulate

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from benchmarks.processes import CHECK, ROOT, Measured, answer, measure

CONFIG = ROOT / "fixtures" / "scale" / "llama-3.1-405b" / "config.json"
LAYERS, WIDTHS = "2,16,32,64,128,256", "1024,2048,4096,8192,16384"
NUM_LAYERS_OF_WIDTHS = 8
OPTIONS = ["--dtype", "bfloat16", "--optimizer", "adamw", "--batch", "1", "--no-sweep"]
HEAD_SIZE = 128
FARTHEST, WIDEST = 0.2, 1.1
"""How far from the line a point may be, as a share of it; how much more memory the widest model may take."""


class Config(NamedTuple):
    """A Llama of another size, and what was measured of it."""

    changed: dict[str, int]
    runs: list[Measured]

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(run.seconds for run in self.runs)

    @property
    def processor_seconds(self) -> float:
        """The median."""
        return statistics.median(run.processor_seconds for run in self.runs)

    @property
    def row(self) -> tuple[float, float, float, str]:
        """What is printed of it."""
        return self.seconds, self.processor_seconds, self.mebibytes, answer(self.runs[0])

    @property
    def mebibytes(self) -> float:
        """The median of the peak resident size."""
        return statistics.median(run.resident for run in self.runs) / 2**20


def of_width(width: int) -> dict[str, int]:
    """The width of the model and of its parts, in the proportions of the original."""
    original = json.loads(CONFIG.read_text())
    return {
        "num_hidden_layers": NUM_LAYERS_OF_WIDTHS,
        "hidden_size": width,
        "intermediate_size": original["intermediate_size"] * width // original["hidden_size"],
        "num_attention_heads": width // HEAD_SIZE,
    }


def check(config: Config, folder: Path) -> None:
    """Measure one more run."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(CONFIG.read_text()), **config.changed}))
    found = measure([*CHECK, str(file), *OPTIONS])
    assert answer(found).startswith("needs"), answer(found)
    config.runs.append(found)
    print(f"{config.changed}: {found.processor_seconds:.1f} s, {found.resident >> 20} MiB", file=sys.stderr)


def line(layers: list[int], values: list[float]) -> tuple[float, float, float]:
    """Slope and start of the line, and the largest distance of a point from it as a share of the line's value."""
    slope, start = statistics.linear_regression(layers, values)
    off = [value / (start + slope * number) - 1 for number, value in zip(layers, values, strict=True)]
    return slope, start, max(off, key=abs)


def numbers(_context: click.Context, _parameter: click.Parameter, text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


@click.command()
@click.option("--layers", default=LAYERS, show_default=True, callback=numbers, help="Numbers of layers.")
@click.option("--widths", default=WIDTHS, show_default=True, callback=numbers, help="Multiples of 1024.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each.")
def main(layers: list[int], widths: list[int], repeats: int) -> None:
    """Print medians, the line through them, and the worst distance from it."""
    if len(layers) < 2 or len(widths) < 2:
        raise click.UsageError("growth needs two numbers of layers and two widths at least")
    deep = {number: Config({"num_hidden_layers": number}, []) for number in layers}
    wide = {width: Config(of_width(width), []) for width in widths}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            for config in (*deep.values(), *wide.values()):
                check(config, Path(folder))
    heads = ["seconds", "processor seconds", "peak resident MiB", "result"]
    print(f"Medians of {repeats} runs in turn, on two CPUs at most.\n")
    rows = [(number, *each.row) for number, each in deep.items()]
    print(tabulate(rows, ["layers", *heads], tablefmt="github", floatfmt=".1f"), end="\n\n")
    rows = [(width, *each.row) for width, each in wide.items()]
    print(tabulate(rows, [f"width of {NUM_LAYERS_OF_WIDTHS} layers", *heads], tablefmt="github", floatfmt=".1f"))

    slope, start, farthest = line(layers, [each.processor_seconds for each in deep.values()])
    verdict(
        f"Time grows linearly from {min(layers)} to {max(layers)} layers: no point is more than {FARTHEST:.0%} off the "
        "line",
        f"{start:.1f} s and {1000 * slope:.0f} ms for each layer, at most {farthest:+.0%} off",
        held=abs(farthest) <= FARTHEST,
    )
    slope, start, farthest = line(layers, [each.mebibytes for each in deep.values()])
    verdict(
        f"Host memory grows linearly from {min(layers)} to {max(layers)} layers, within {FARTHEST:.0%}",
        f"{start:.0f} MiB and {slope:.2f} MiB for each layer, at most {farthest:+.0%} off",
        held=abs(farthest) <= FARTHEST,
    )
    sizes = [each.mebibytes for each in wide.values()]
    verdict(
        f"Host memory does not grow with width: the most is at most {WIDEST} times the least",
        f"{max(sizes) / min(sizes):.2f} times, from {min(widths):,} to {max(widths):,} wide",
        held=max(sizes) <= WIDEST * min(sizes),
    )


if __name__ == "__main__":
    main()
