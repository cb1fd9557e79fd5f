"""`memlint fit`: what of each Workload fits into a GPU, as it is and changed."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

from memlint.base.grouping import grouped
from memlint.commands.sweep.gather import Gathered, asked, gather
from memlint.commands.sweep.sweep import gpus_of
from memlint.report.tables import Fit, FitOrder, Fits, Spread
from memlint.worker.jobs import FitsSoFar, FitWorkloads
from memlint.worker.protocol import Request
from memlint.worker.session import Session
from memlint.worker.task import Task

_PATIENCE = 10
"""Many programs are traced: it may take this many times the time limit of one analysis."""


def fit(
    targets: Sequence[str],
    gpus: str | None,
    spread: Spread,
    options: dict[str, object],
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
) -> Gathered[Fits]:
    """Say what fits into each of `gpus`, named by comma, or into that of the Workload, with each way to spread it.

    `options` are those of Settings. Raises MemlintError for arguments and configuration that make no sense.
    """

    def name(fit: Fit) -> str:
        return f"{fit.target}, {fit.gpu}"

    tasks = functools.partial(_tasks, gpus_of(gpus), spread)
    return gather(targets, options, tasks, Fits, "fits", name, on_wait=on_wait)


def _tasks(gpus: Sequence[str], spread: Spread, request: Request) -> Iterator[Task]:
    """One for each strategy on each GPU: what is known on one number of ranks serves for the next."""
    world_sizes = grouped(spread)
    for gpu, strategy in itertools.product(gpus or (None,), world_sizes):
        sizes = [size for size in world_sizes[strategy] if size is not None]
        order = FitOrder(gpu=gpu, strategy=strategy, world_sizes=tuple(sizes))
        yield Task(request, request.limits(_PATIENCE * max(1, len(sizes))), functools.partial(_ask, order=order))


def _ask(session: Session, order: FitOrder) -> FitsSoFar:
    return asked(session, FitWorkloads(order), FitsSoFar)
