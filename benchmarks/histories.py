"""memlint against allocation histories recorded on GPUs: is the allocator exact, and what was predicted of the program.

    python benchmarks/histories.py
    python benchmarks/histories.py --only lm

The allocator is exact where replaying a history gives every address, every segment and every release as recorded.
Where the program is known, it is traced with the settings it was recorded with; the peaks are predicted from the start
of the program on, with made-up addresses of segments. Bytes are recorded figures and how far the prediction is off,
with its interval where it has one. Workspaces of convolutions are counted apart from other allocations: of the calls
that may take one, how many took what lies in the interval, and how many what was predicted.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tabulate import tabulate

if not __package__:  # run as a command
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its trace.py is not Python's

from tests.cuda.test_allocator_histories import CAPACITY, WITHOUT_ADDRESSES, History, Replay, blocks_at_end, blocks_of
from tests.oracles.comparison import differences, num_in_order, paired_workspaces
from tests.oracles.recordings import NAMES, RECORDINGS, Run, predicted_run, recorded_run

if TYPE_CHECKING:
    from memlint.memory.estimate import Interval

PEAKS = ("requested", "allocated", "reserved")
HEADERS = ("history", "replay", *PEAKS, "allocations in order", "workspaces", "seconds")


def replay(name: str) -> str:
    """Run the history through the allocator."""
    if name == WITHOUT_ADDRESSES:
        return "no addresses"
    run = Replay(History.read(name), CAPACITY.get(name)).run()
    exact = not run.mismatches and blocks_of(run.allocator) == blocks_at_end(run.history)
    return "exact" if exact else f"{len(run.mismatches)} differ"


def prediction(name: str) -> list[str]:
    """Trace the program and compare."""
    recorded, predicted = recorded_run(name), predicted_run(RECORDINGS[name])
    in_order = num_in_order(recorded, differences(recorded, predicted))
    return [
        *(_off(getattr(predicted, peak), getattr(recorded, peak)) for peak in PEAKS),
        f"{in_order:,} of {len(recorded.allocations):,} (predicted {len(predicted.allocations):,})",
        _workspaces(recorded, predicted),
    ]


def _off(predicted: Interval, recorded: Interval) -> str:
    difference = predicted.estimate - recorded.estimate
    off = f"{difference:+,} ({difference / recorded.estimate:+.3%})" if difference else "equal"
    interval = "" if predicted.low == predicted.high else f" of {predicted.low:,} to {predicted.high:,}"
    return f"{recorded.estimate:,} {off}{interval}"


def _workspaces(recorded: Run, predicted: Run) -> str:
    pairs = paired_workspaces(recorded, predicted)
    within = sum(pair.predicted.low <= pair.recorded <= pair.predicted.high for pair in pairs)
    equal = sum(pair.predicted.estimate == pair.recorded for pair in pairs)
    return f"{within} of {len(pairs)} within, {equal} equal" if pairs else ""


@click.command()
@click.option("--only", default="", help="Only histories whose name contains this.")
def main(only: str) -> None:
    """Print one row for every history."""
    rows = []
    for name in (name for name in NAMES if only in name):
        start = time.perf_counter()
        cells = prediction(name) if name in RECORDINGS else ["no program", "", "", "", ""]
        rows.append([name, replay(name), *cells, f"{time.perf_counter() - start:.1f}"])
        print(f"{name}: done", file=sys.stderr)
    print(tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
