"""What single ops take on the CPU, for real and as predicted: every op of OpInfo's database, and chains of ten ops.

    python benchmarks/ops.py
    python benchmarks/ops.py --chains 200 --seed 1 sort linalg.svd

Prints how many samples are right, to 64 bytes or by an interval that holds what is real, then each that is not. Those
that are known, with their causes, are in `tests/oracles/known_differences.toml`.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import click
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.oracles.single_ops import chains, database, difference, name_of, programs


@click.command()
@click.argument("names", nargs=-1)
@click.option("--chains", "num_chains", type=int, default=1000, show_default=True, help="Chains of ten ops.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the choice of chains.")
def main(names: tuple[str, ...], num_chains: int, seed: int) -> None:
    """Run the ops called NAMES, or all."""
    warnings.simplefilter("ignore")
    rows, num_right, num_exact = [], 0, 0
    answers = [
        (name, answer)
        for op in database()
        if not names or name_of(op) in names
        for name, program in programs(op)
        if (answer := difference(program)) is not None
    ]
    for name, answer in answers:
        num_right += answer.is_right
        num_exact += answer.is_exact
        if not answer.is_right:
            rows.append([name, answer.real, *(answer.predicted or (answer.error, "", ""))])
    print(tabulate(rows, ["sample", "real", "low", "estimate", "high"], tablefmt="github"))
    print(f"{num_right} of {len(answers)} samples right ({num_exact} to 64 bytes)")
    if names:
        return
    run = [(chain, answer) for chain in chains(num_chains, seed) if (answer := difference(chain)) is not None]
    under = [(chain, answer) for chain, answer in run if answer.is_under(0.01)]
    for chain, answer in under:
        print("under-estimated:", answer.real, answer.predicted, ", ".join(chain.names))
    right = sum(answer.is_right for _, answer in run)
    print(f"{right} of {len(run)} chains right, {len(under)} under-estimated by more than 1 %")


if __name__ == "__main__":
    main()
