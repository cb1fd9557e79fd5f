"""`memlint.check`: a target as on the command line, with its findings, or a model that is at hand."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

from memlint.api.result import Result
from memlint.base.errors import UsageError
from memlint.commands.check.check import check as check_command
from memlint.commands.check.targets import CheckOptions
from memlint.report.model import Report

_OPTIONS = CheckOptions(timeline=True)


def check(target: Any, sample_input: Any, optimizer: Any, loss: Any, options: Mapping[str, Any]) -> Result:
    """Check it; the rest is as in `memlint.check`."""
    if not isinstance(target, str | PathLike):
        from memlint.api.estimate import estimate  # noqa: PLC0415 -- it imports torch

        return estimate(target, sample_input, optimizer, loss, options)
    if sample_input is not None or loss is not None or not (optimizer is None or isinstance(optimizer, str)):
        raise UsageError(f"{target} says itself what its inputs are", "Declare them there, or give the model itself.")
    given = {key: value for key, value in {**options, "optimizer": optimizer}.items() if value is not None}

    def analysed(gpu: str | None) -> Report:
        report = check_command([str(target)], given if gpu is None else {**given, "gpu": gpu}, _OPTIONS).report
        if len(report.workloads) != 1:
            names = ", ".join(each.target for each in report.workloads)
            raise UsageError(
                f"{target} has {len(report.workloads) or 'no'} workloads, and memlint.check takes one",
                f"Name one of {names}." if names else "Name a class or function in it, as in model.py::build.",
            )
        return report

    return Result(analysed(None), analysed)
