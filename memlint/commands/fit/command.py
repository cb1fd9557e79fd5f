"""`memlint fit`: what of each Workload fits into a GPU, as it is and changed."""

import functools
from collections.abc import Callable, Iterator, Sequence

from memlint.commands.sweep.command import gpus_of
from memlint.commands.sweep.gather import Gathered, gather
from memlint.commands.sweep.tables import Fit, Fits
from memlint.worker.protocol import Request, Task

_FIT = "memlint.commands.fit.child:fit"
_PATIENCE = 10
"""Many programs are traced: it may take this many times the time limit of one analysis."""


def fit(
    targets: Sequence[str],
    gpus: str | None,
    options: dict[str, object],
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
) -> Gathered[Fits]:
    """Say what fits into each of `gpus`, named by comma, or into that of the Workload.

    `options` are those of Settings. Raises MemlintError for arguments and configuration that make no sense.
    """

    def name(fit: Fit) -> str:
        return f"{fit.target}, {fit.gpu}"

    return gather(targets, options, functools.partial(_tasks, gpus_of(gpus)), Fits, "fits", name, on_wait=on_wait)


def _tasks(gpus: Sequence[str], request: Request) -> Iterator[Task]:
    for gpu in gpus or (None,):
        yield Task(request.model_copy(update={"detail": {"gpu": gpu}}), request.limits(_PATIENCE), _FIT)
