"""The validator without a device: finding Subjects, and estimating them."""

from dataclasses import replace
from pathlib import Path

from memlint.base.errors import MemlintError
from memlint.capture.looks import estimate_of
from memlint.memory.records import Category, Phase
from memlint.memory.timeline import Timeline, by_category, live, without
from memlint.session.process_setup import ProcessSetup
from memlint.session.real.real_run import under
from memlint.session.target import Target, Traced
from memlint.validate.comparison import COMPARED, Prediction
from memlint.validate.jobs import FoundSubjects, NotFound, Predictions, PredictOrder
from memlint.validate.measurement import Allocation, Subject, plain_table
from memlint.workloads.construction.construct import complete


def find(target: Target, *, is_on_host: bool) -> FoundSubjects:
    """The Workloads of a target as Subjects, their inputs inferred where nobody gave them; none is no error."""
    one = is_on_host and target.request.settings.batch is None
    subjects, failed = [], []
    for workload in target.workloads:
        try:
            # A step on the host takes real time: where nobody said a batch, one item is enough to compare.
            is_one = one and workload.origin in ("discovered", "target")
            completed, _ = complete(replace(workload, batch=1) if is_one else workload, target.root)
            table = plain_table(completed, target.root)
            name = table.pop("name")
            subjects.append(Subject.model_validate({"name": name, "table": table}))
        except MemlintError as error:
            failed.append(NotFound(name=workload.name, message=error.message, hint=error.hint))
    return FoundSubjects(subjects=subjects, failed=failed)


def predict(target: Target, order: PredictOrder) -> Predictions:
    """Predictions for the Subjects of `order`; what goes wrong with one stands in its Prediction."""
    ProcessSetup.of_predictions(target.request, order.gpu).arm()
    context = target.request.settings.context
    return Predictions(predictions=[_predicted(subject, target.root, order, context) for subject in order.subjects])


def _predicted(subject: Subject, root: Path, order: PredictOrder, context: int | None) -> Prediction:
    try:
        with under(subject.conditions):
            workload = subject.workload(root, order.gpu)
            there = replace(workload, context=context or workload.context, torch=order.torch or workload.torch)
            capture = Traced.of(there, root).capture
            timeline, peak = Timeline.of(capture.trace), estimate_of(capture)
    except MemlintError as error:
        return Prediction(name=subject.name, error=error.message)
    return Prediction(
        name=subject.name,
        peaks={name: getattr(peak, name) for name in COMPARED},
        phase_peaks=dict(peak.phase_peaks),
        categories=dict(_category_peaks(timeline)),
        peak_phase=peak.phase,
        peak_op=peak.op,
        allocations=_allocations(timeline) if order.allocations else [],
    )


def _allocations(timeline: Timeline) -> list[Allocation]:
    born = (timeline.buffers[event] for event in timeline.events if event >= 0)
    return [Allocation(b.nbytes, b.op, b.phase if b.step >= 0 else Phase.OTHER) for b in born if b.nbytes]


def _category_peaks(timeline: Timeline) -> dict[Category, int]:
    """The most bytes of each category alive at once."""
    peaks = {}
    for category in by_category(timeline.buffers):
        others = [buffer.id for buffer in timeline.buffers if buffer.category is not category]
        peaks[category] = max(live(without(timeline, others)), default=0)
    return peaks
