"""What every rank of real processes takes on the host, by the profiler: `python real_processes.py WORLD NAME...`.

Prints one JSON object: by strategy, for each rank, the peaks of three steps in bytes.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

NUM_STEPS = 3


def settled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, after which gloo's threads have the time to let go of tensors: what these free, no profiler sees."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        time.sleep(0.01)
        return result

    return call


def run_rank(rank: int, world: int, port: int, names: list[str], results: Any) -> None:
    """Measure one strategy after the other as one rank of a group with gloo."""
    warnings.filterwarnings("ignore")
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional_collectives

    from memlint.session.real.cpu import measure_cpu_step
    from tests.distributed.strategies import STRATEGIES

    torch.set_num_threads(1)
    dist.Work.wait = settled(dist.Work.wait)
    dist.all_reduce = settled(dist.all_reduce)
    functional_collectives._maybe_wrap_tensor = settled(functional_collectives._maybe_wrap_tensor)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1")
    for number, name in enumerate(names):
        os.environ["MASTER_PORT"] = str(port + number)
        dist.init_process_group("gloo")
        measured = measure_cpu_step(STRATEGIES[name](), num_steps=NUM_STEPS)
        peaks = measured.step_peaks()
        results.put((name, rank, peaks))
        dist.barrier()
        dist.destroy_process_group()


def measure(world: int, names: list[str], port: int = 29600) -> dict[str, list[list[int]]]:
    """Peaks of the steps of every rank, in bytes."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    context = get_context("spawn")
    results: Any = context.Queue()
    ranks = [context.Process(target=run_rank, args=(rank, world, port, names, results)) for rank in range(world)]
    for process in ranks:
        process.start()
    peaks: dict[str, list[list[int]]] = {name: [[] for _ in ranks] for name in names}
    for _ in range(world * len(names)):
        name, rank, each = results.get(timeout=240)
        peaks[name][rank] = each
    for process in ranks:
        process.join()
    return peaks


def least(world: int, names: list[str], attempts: int = 3) -> dict[str, list[list[int]]]:
    """The least of several measurements: what gloo's threads free makes them too large, and nothing too small."""
    runs = [measure(world, names, 29600 + 100 * attempt) for attempt in range(attempts)]
    return {
        name: [[min(steps) for steps in zip(*(run[name][rank] for run in runs), strict=True)] for rank in range(world)]
        for name in names
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(least(int(sys.argv[1]), sys.argv[2:]), indent=1))
