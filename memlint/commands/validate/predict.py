"""What happens in the child process of the validator that has no device: finding Subjects, and estimating them."""

from dataclasses import replace
from pathlib import Path

import torch

from memlint.accelerator import lazy_imports
from memlint.base.errors import MemlintError
from memlint.commands.analyse.analysis import Analysis
from memlint.commands.analyse.child import find_requested
from memlint.libraries import installation
from memlint.memory.records import Category, Phase
from memlint.memory.timeline import Timeline, by_category, live, without
from memlint.validate.comparison import COMPARED, Prediction
from memlint.validate.measurement import Allocation, Subject, plain_table
from memlint.validate.real_run import under
from memlint.worker.protocol import Request, Result
from memlint.workloads.discover import complete


def find(request: Request) -> Result:
    """The Workloads of a target as Subjects, their inputs inferred where nobody gave them; none is no error."""
    root = Path(request.root)
    one = request.detail.get("device") == "cpu" and request.settings.batch is None
    subjects, failed = [], []
    for workload in find_requested(request).workloads:
        try:
            # A step on the host takes real time: where nobody said a batch, one item is enough to compare.
            is_one = one and workload.origin in ("discovered", "target")
            completed, _ = complete(replace(workload, batch=1) if is_one else workload, root)
            table = plain_table(completed, root)
            name = table.pop("name")
            subjects.append(Subject.model_validate({"name": name, "table": table}).model_dump(mode="json"))
        except MemlintError as error:
            failed.append({"name": workload.name, "message": error.message, "hint": error.hint})
    return Result.model_validate({"detail": {"subjects": subjects, "failed": failed}})


def predict(request: Request) -> Result:
    """Predictions for the Subjects in `request.detail`, in order; what goes wrong with one stands in its Prediction."""
    lazy_imports.run_eagerly()
    installation.install()
    root, gpu = Path(request.root), str(request.detail["gpu"])
    subjects = [Subject.model_validate(value) for value in request.detail["subjects"]]  # type: ignore[union-attr]
    listed = bool(request.detail.get("allocations", False))
    predictions = [
        _predicted(subject, root, gpu, request.settings.context, listed=listed).model_dump(mode="json")
        for subject in subjects
    ]
    return Result.model_validate({"torch": torch.__version__, "detail": {"predictions": predictions}})


def _predicted(subject: Subject, root: Path, gpu: str, context: int | None, *, listed: bool) -> Prediction:
    try:
        with under(subject.conditions):
            workload = subject.workload(root, gpu)
            analysis = Analysis.of(replace(workload, context=context or workload.context), root)
    except MemlintError as error:
        return Prediction(name=subject.name, error=error.message)
    peak = analysis.estimate
    return Prediction(
        name=subject.name,
        peaks={name: getattr(peak, name) for name in COMPARED},
        phase_peaks={phase.value: nbytes for phase, nbytes in peak.phase_peaks.items()},
        categories={category.value: nbytes for category, nbytes in _category_peaks(analysis.timeline).items()},
        peak_phase=peak.phase.value,
        peak_op=peak.op,
        allocations=_allocations(analysis.timeline) if listed else [],
    )


def _allocations(timeline: Timeline) -> list[Allocation]:
    born = (timeline.buffers[event] for event in timeline.events if event >= 0)
    return [Allocation(b.nbytes, b.op, b.phase.value if b.step >= 0 else Phase.OTHER.value) for b in born if b.nbytes]


def _category_peaks(timeline: Timeline) -> dict[Category, int]:
    """The most bytes of each category alive at once."""
    peaks = {}
    for category in by_category(timeline.buffers):
        others = [buffer.id for buffer in timeline.buffers if buffer.category is not category]
        peaks[category] = max(live(without(timeline, others)), default=0)
    return peaks
