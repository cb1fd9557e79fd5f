"""Compares what small random training programs take on the CPU with what is predicted.

    python benchmarks/programs.py
    python benchmarks/programs.py --first 5000 --count 100

A seed chooses layers, what they are wrapped in (checkpoints, hooks, parametrizations, autocast, torch.func), the loss,
the optimizer and the way a step is taken. Prints how many programs are right, to 64 bytes or by an interval that holds
what is real, after each that is not. Those that are known, with their causes, are in
`tests/oracles/known_random_programs.toml`.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import click
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.oracles.random_programs import answer


@click.command()
@click.option("--first", type=int, default=0, show_default=True, help="The first seed.")
@click.option("--count", type=int, default=250, show_default=True, help="How many seeds.")
def main(first: int, count: int) -> None:
    """Run the programs of some seeds."""
    warnings.simplefilter("ignore")
    answers = [ran for seed in range(first, first + count) if (ran := answer(seed)) is not None]
    wrong = [ran for ran in answers if not ran.difference.is_right]
    rows = [
        [seed, difference.real, *(difference.predicted or (difference.error, "", "")), ", ".join(choices)]
        for seed, choices, difference in wrong
    ]
    print(tabulate(rows, ["seed", "real", "low", "estimate", "high", "program"], tablefmt="github"))
    exact = sum(ran.difference.is_exact for ran in answers)
    under = sum(ran.difference.is_under(0.01) for ran in wrong)
    print(f"{len(answers) - len(wrong)} of {len(answers)} programs right ({exact} to 64 bytes)")
    print(f"{under} under-estimated by more than 1 %, or not traced")


if __name__ == "__main__":
    main()
