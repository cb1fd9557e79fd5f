"""`memlint fit`: what of each Workload fits into a GPU, as it is and changed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from memlint import __version__
from memlint.scaling.command import gpus_of
from memlint.scaling.gather import gather
from memlint.scaling.records import Fit, Fits
from memlint.worker.answer import Limits
from memlint.worker.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memlint.scaling.gather import Failure
    from memlint.worker.protocol import Request

_FIT = "memlint.scaling.fit:fit"
_PATIENCE = 10
"""Many programs are traced: it may take this many times the time limit of one analysis."""


class Result(NamedTuple):
    """What there is to say, and what went wrong."""

    fits: Fits
    failures: tuple[Failure, ...]
    interrupted: bool = False

    @property
    def status(self) -> int:
        """0: all is there; 2: something could not be analysed; 130: interrupted."""
        if self.interrupted:
            return 130
        return 2 if self.failures or any(each.error for each in self.fits.fits) else 0


def fit(
    targets: Sequence[str],
    gpus: str | None,
    options: dict[str, object],
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
) -> Result:
    """Say what fits into each of `gpus`, named by comma, or into that of the Workload.

    `options` are those of Settings. Raises MemlintError for arguments and configuration that make no sense.
    """
    found = gather(targets, options, functools.partial(_tasks, gpus_of(gpus)), "fits", on_wait)
    fits = tuple(Fit.model_validate(each) for each in found.told)
    return Result(Fits(tool=f"memlint {__version__}", torch=found.torch, fits=fits), found.failures, found.interrupted)


def _tasks(gpus: Sequence[str], request: Request) -> Iterator[Task]:
    limits = Limits(seconds=request.settings.timeout * _PATIENCE, nbytes=request.settings.memory_limit)
    for gpu in gpus or (None,):
        yield Task(request.model_copy(update={"detail": {"gpu": gpu}}), limits, _FIT)
