"""The answer of `memlint.check`, `memlint.estimate` and `memlint.run`."""

from collections.abc import Callable

from memlint.base.errors import MemlintError, WorkloadError
from memlint.memory.devices import device_named
from memlint.report.model import Report, Workload


class Result:
    """The memory of a step: its peak, whether it fits, and the whole report, which a notebook shows as a page."""

    def __init__(self, record: Report, again: Callable[[str], Report]) -> None:
        """`again` analyses the same on another GPU."""
        self.record = record
        """The report as a record of `memlint.report.model`."""
        self._again = again

    @property
    def workload(self) -> Workload:
        """The record of the step: sizes, peaks with their bounds, what holds them. Raises MemlintError without one."""
        return _only(self.record)

    @property
    def peak(self) -> int:
        """The peak in bytes, as nvidia-smi shows it; with `gpu="cpu"` what tensors ask for. Raises MemlintError."""
        workload = self.workload
        assert workload.estimate is not None
        return workload.estimate.peak[workload.measure].estimate

    def fits(self, gpu: str | None = None) -> bool:
        """Say whether the step surely fits into a GPU: the whole interval of its estimate lies below the GPU's memory.

        Another `gpu` than the step was estimated for has other kernels, so the step is estimated again. Raises
        UsageError for a GPU that memlint does not know.
        """
        record = self.record
        if gpu is not None and device_named(gpu).name != self.workload.gpu:
            record = self._again(device_named(gpu).name)
        verdict = _only(record).verdict
        return verdict is None or verdict.outcome == "fits"

    def report(self) -> str:
        """Give the report as text."""
        from memlint.report.terminal import render_text  # noqa: PLC0415
        from memlint.report.text_style import TextStyle  # noqa: PLC0415

        return render_text(self.record, TextStyle())

    def __repr__(self) -> str:
        from memlint.base.units import format_nbytes  # noqa: PLC0415
        from memlint.report.phrases import outcome_text  # noqa: PLC0415

        try:
            workload = self.workload
        except MemlintError as error:
            return f"<memlint: {error.message}>"
        verdict, script = workload.verdict, workload.script
        outcome = f", {outcome_text(workload, verdict.outcome)} {verdict.limit_name}" if verdict else ""
        own = f", by a step of memlint's own: {script.stop.message}" if script and script.stop else ""
        return f"<memlint: {workload.name} takes {format_nbytes(self.peak)}{outcome}{own}>"

    def _repr_html_(self) -> str:
        from memlint.api.frame import framed  # noqa: PLC0415

        return framed(self.record)


def _only(record: Report) -> Workload:
    """Give the workload. Raises MemlintError where it could not be analysed."""
    (workload,) = record.workloads
    if workload.estimate is None:
        error = workload.error
        message = error.message if error else "nothing of it took memory on the GPU"
        raise WorkloadError(message, error.hint if error else "See report().")
    return workload
