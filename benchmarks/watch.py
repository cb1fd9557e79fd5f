"""The cost of `memlint.watch` for a training run: steps with it and without, in turn, and its own calls.

    python benchmarks/watch.py
    python benchmarks/watch.py --repeats 15

Without a GPU nothing is recorded, and the claim is about what is left: entering, leaving and `step`. On a GPU the same
steps run there, with PyTorch's recording on; its share is printed, and no claim is made about it. Seconds are those of
this process's processor on the CPU, and of the clock on a GPU.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a command
    sys.path[0] = str(ROOT)  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict

NUM_STEPS = 10
MOST_MICROSECONDS = 20.0
"""Seconds of a call of `step` without a GPU and without an estimate."""


def main_loop(device: str, watched: bool) -> float:
    """Seconds of the steps of a small transformer's encoder."""
    import torch

    import memlint

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, 32, 64, device=device)
    clock = time.process_time if device == "cpu" else time.perf_counter
    watch = memlint.watch(steps=None)
    start = clock()
    if watched:
        watch.begin()
    for _ in range(NUM_STEPS):
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if watched:
            watch.step()
    if watched:
        watch.end()
    if device != "cpu":
        torch.cuda.synchronize()
    return clock() - start


@click.command()
@click.option("--repeats", default=5, show_default=True)
def main(repeats: int) -> None:
    """Print medians, and whether the claim held."""
    import torch

    import memlint

    logging.disable()
    torch.set_num_threads(1)  # further ones wait at full speed on a busy machine
    device = "cuda" if torch.cuda.is_available() else "cpu"
    main_loop(device, watched=False)
    pairs = [(main_loop(device, watched=False), main_loop(device, watched=True)) for _ in range(repeats)]
    ratio = statistics.median(with_it / without for without, with_it in pairs)
    without = statistics.median(without for without, _ in pairs)
    print(
        f"{NUM_STEPS} steps on {device}: {without * 1e3:.1f} ms without, {ratio:.3f} times as much with memlint.watch"
    )
    calls = 10_000
    with memlint.watch() as watch:
        start = time.process_time()
        for _ in range(calls):
            watch.step()
        microseconds = (time.process_time() - start) / calls * 1e6
    if device == "cpu":
        verdict(
            f"a call of step takes at most {MOST_MICROSECONDS:g} us without a GPU",
            f"{microseconds:.2f} us",
            held=microseconds <= MOST_MICROSECONDS,
        )


if __name__ == "__main__":
    main()
