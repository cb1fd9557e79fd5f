"""`memlint fit`: what of each Workload fits into a GPU, as it is and changed."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

from memlint.commands.sweep.command import gpus_of
from memlint.commands.sweep.gather import Gathered, gather
from memlint.commands.sweep.tables import Fit, Fits, Spread
from memlint.worker.protocol import Request, Task

_FIT = "memlint.commands.fit.child:fit"
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
    for gpu, (strategy, world_size) in itertools.product(gpus or (None,), spread):
        asked = {"gpu": gpu, "strategy": strategy, "world_size": world_size}
        detail = {key: value for key, value in asked.items() if value is not None}
        yield Task(request.model_copy(update={"detail": detail}), request.limits(_PATIENCE), _FIT)
