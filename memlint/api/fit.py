"""`memlint.fit`: the largest batch that fits into a GPU."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from memlint.api.handed_over import builder
from memlint.base.errors import UsageError, WorkloadError
from memlint.base.patching import patched
from memlint.base.version import __version__
from memlint.commands.fit.fit import fit as fit_targets
from memlint.commands.sweep.tables_text import render_fits
from memlint.config import Settings, override
from memlint.memory.devices import device_named
from memlint.report.tables import Fit, FitOrder, Fits
from memlint.report.text_style import TextStyle
from memlint.session.fits import fit as fit_workloads
from memlint.session.handed_over import importable, workload_of
from memlint.session.target import Target
from memlint.targets.declare import Declaration
from memlint.worker.protocol import Request
from memlint.workloads.candidates import Discovery


class FitResult:
    """The largest batch that fits, as the model is and with changes that keep what is trained."""

    def __init__(self, record: Fits) -> None:
        self.record = record
        """All of it, as a record of `memlint.report.tables`."""

    @property
    def batch(self) -> int | None:
        """The largest batch that surely fits without any change; None where none does."""
        way = next((way for way in self._fit.ways if not way.changes), None)
        return way.largest.batch if way is not None and way.largest is not None else None

    @property
    def _fit(self) -> Fit:
        (fit,) = self.record.fits
        return fit

    def report(self) -> str:
        """Give the ways to make more fit, as text."""
        return render_fits(self.record, "text", TextStyle())

    def __repr__(self) -> str:
        return f"<memlint: batch {self.batch} of {self._fit.name} fits {self._fit.gpu_title}>"


def fit(target: Any, sample_input: Any, optimizer: Any, loss: Any, options: Mapping[str, Any]) -> FitResult:
    """Look for it; the rest is as in `memlint.fit`."""
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(optimizer, str):
        given["optimizer"] = optimizer
    if isinstance(target, str | PathLike):
        if sample_input is not None or loss is not None or not (optimizer is None or isinstance(optimizer, str)):
            raise UsageError(
                f"{target} says itself what its inputs are", "Declare them there, or give the model itself."
            )
        gathered = fit_targets([str(target)], given.pop("gpu", None), ((None, None),), given)
        if gathered.missing:
            raise WorkloadError(gathered.missing[0].message, gathered.missing[0].hint)
        fits = gathered.document.fits
    else:
        fits = _handed_over(target, sample_input, optimizer, loss, given)
    if len(fits) != 1:
        names = ", ".join(each.target for each in fits)
        raise UsageError(f"{target} has {len(fits)} workloads, and memlint.fit takes one", f"Name one of {names}.")
    if fits[0].error is not None:
        raise WorkloadError(fits[0].error, fits[0].hint)
    return FitResult(Fits(tool=f"memlint {__version__}", torch=torch.__version__, fits=fits))


def _handed_over(target: Any, sample_input: Any, optimizer: Any, loss: Any, given: dict[str, Any]) -> tuple[Fit, ...]:
    checked = override(Settings(), **given)
    given = {key: getattr(checked, key) for key in given}
    if "gpu" in given:
        given["gpu"] = device_named(given["gpu"]).name
    built = target if isinstance(target, Declaration) else builder(target, sample_input, optimizer, loss)
    with importable(built), patched([(torch, "compile", torch.compile)]):
        workload = workload_of(built, given)
        request = Request(target=workload.name, path=None, root=str(Path.cwd()), settings=Settings())
        found = fit_workloads(Target(request, Discovery((workload,))), FitOrder())
    return tuple(found.fits)
