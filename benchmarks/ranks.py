"""Processor seconds and host memory of one rank of many.

    python benchmarks/ranks.py
    python benchmarks/ranks.py --repeats 1 --only llama-8b-8 --only llama-8b-1024

Two steps of Llama 3.1 as torchtitan trains it (tests/distributed/torchtitan.py) are traced on a simulated H100, and
what it reserves is estimated. Everything in a run is counted: the start of Python and of PyTorch, the wrappers, the
trace and the replay of the allocator. What is held against the limits are the processor seconds of all its threads
together, which other work on the machine disturbs least: on an idle one no run takes longer than these.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import click
from tabulate import tabulate

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from benchmarks.claims import verdict
from benchmarks.processes import Measured, measure

SECONDS_405B, SECONDS_8B, LIMIT_NBYTES, GROWTH = 90, 20, 2 * 2**30, 1.1


class Job(NamedTuple):
    """A job of several ranks."""

    title: str
    sizes: str
    """Name in tests.distributed.torchtitan."""
    ranks: int
    tensor: int = 1
    checkpointing: str = "selective"


JOBS = {
    "llama-405b-512": Job("405B on 512 ranks, TP 8 x FSDP 64, full checkpointing", "LLAMA_405B", 512, 8, "full"),
    "llama-8b-8": Job("8B on 8 ranks, FSDP2, checkpointing by op", "LLAMA_8B", 8),
    "llama-8b-1024": Job("8B on 1,024 ranks, FSDP2, checkpointing by op", "LLAMA_8B", 1024),
}


def trace(job: Job) -> float:
    """What one rank reserves, in GiB."""
    from memlint.distributed.group import become
    from memlint.distributed.rank import Rank
    from memlint.memory.devices import device_named
    from memlint.memory.estimate import estimate
    from memlint.memory.timeline import Timeline
    from memlint.tracing.recorder import trace_program
    from tests.distributed import torchtitan

    class OfRank(torchtitan.Torchtitan):
        def setup(self) -> None:
            become(Rank(job.ranks))
            super().setup()

    program = OfRank(getattr(torchtitan, job.sizes), 2, tensor=job.tensor, checkpointing=job.checkpointing)
    h100 = device_named("h100-80gb")
    traced = trace_program(program, h100).trace
    return estimate(Timeline.of(traced), h100, traced.nodes).reserved.estimate / 2**30


@click.command()
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each.")
@click.option("--only", type=click.Choice(tuple(JOBS)), multiple=True, help="Jobs to trace.")
@click.option("--here", is_flag=True, hidden=True, help="Trace one in this process and print what it reserves.")
def main(repeats: int, only: tuple[str, ...], here: bool) -> None:
    """Print the least time and the most memory."""
    if here:
        print(f"{trace(JOBS[only[0]]):.2f} GiB")
        return
    measured: dict[str, list[Measured]] = {name: [] for name in only or JOBS}
    for _ in range(repeats):
        for name, runs in measured.items():
            runs.append(measure([sys.executable, __file__, "--here", "--only", name]))
            print(f"{name}: {runs[-1].processor_seconds:.1f} s, {runs[-1].output.strip()}", file=sys.stderr)
    rows = {
        name: (
            JOBS[name].title,
            min(run.processor_seconds for run in runs),
            max(run.resident for run in runs) / 2**20,
            runs[0].output.strip() or f"exit {runs[0].status}",
        )
        for name, runs in measured.items()
    }
    print(f"The least of {repeats} runs in turn.\n")
    heads = ["train step of", "least processor seconds", "peak resident MiB", "reserved"]
    print(tabulate(rows.values(), heads, tablefmt="github", floatfmt=".1f"))
    for name, limit in (("llama-405b-512", SECONDS_405B), ("llama-8b-8", SECONDS_8B)):
        if name in rows:
            title, seconds, mebibytes, reserved = rows[name]
            verdict(
                f"{title} takes less than {limit} s of the processors and {LIMIT_NBYTES >> 30} GiB",
                f"{seconds:.1f} s, {mebibytes:.0f} MiB, {reserved} reserved",
                held=seconds < limit and mebibytes * 2**20 < LIMIT_NBYTES and reserved.endswith("GiB"),
            )
    if {"llama-8b-8", "llama-8b-1024"} <= rows.keys():
        few, many = (rows[name][1] for name in ("llama-8b-8", "llama-8b-1024"))
        verdict(
            f"1,024 ranks take at most {GROWTH:.2f} times as long as 8",
            f"{many / few:.2f} times",
            held=many <= GROWTH * few,
        )


if __name__ == "__main__":
    main()
