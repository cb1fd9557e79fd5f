"""`memlint validate`: Subjects measured one after the other, each in a process of its own, and estimated."""

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from memlint.base.errors import MemlintError, UsageError, WorkerError
from memlint.base.version import install_command
from memlint.commands.targets import distinct, resolve
from memlint.config import Settings
from memlint.memory.allocator.settings import VARIABLES
from memlint.report.model import Record
from memlint.validate.comparison import Cap, Comparison, Prediction
from memlint.validate.jobs import (
    DescribeMachine,
    FindSubjects,
    FoundSubjects,
    Measured,
    MeasureSubject,
    Predictions,
    PredictOrder,
    PredictSubjects,
)
from memlint.validate.measurement import DeviceKind, Machine, Measurement, MeasureRequest, Subject, known_gpu
from memlint.validate.store import Store
from memlint.worker.jobs import Job
from memlint.worker.protocol import Answer, Limits, Request
from memlint.worker.supervise import carry_out
from memlint.worker.task import Task

_Model = TypeVar("_Model", bound=Record)

NUM_STEPS = 2
_TOGETHER = 8  # Subjects estimated by one process
_SECONDS = 600.0  # for measuring one Subject, unless the user allows more
_UNLIMITED = 2**46  # CUDA maps more than any limit on private memory would let it
_CUDA_ENVIRONMENT: Mapping[str, str | None] = {
    "CUDA_VISIBLE_DEVICES": None,
    "OMP_NUM_THREADS": None,
    "MKL_NUM_THREADS": None,
    "OPENBLAS_NUM_THREADS": None,
    "TORCH_SYMBOLIZE_MODE": "dladdr",  # of the histories' stacks; the default starts addr2line for each library
}


@dataclass(slots=True)
class Outcome:
    """The outcome for one Subject: a Measurement, why it was left out, or what went wrong."""

    name: str
    measurement: Measurement | None = None
    is_old: bool = False
    """True if it was recorded earlier."""
    skipped: str = ""
    error: MemlintError | None = None
    comparison: Comparison | None = None


@dataclass(slots=True)
class Session:
    """One device, on which Subjects of one project are measured.

    `on_wait` is called about ten times a second with what is being done and the seconds it has taken.
    """

    root: Path
    settings: Settings
    device: DeviceKind
    num_steps: int = NUM_STEPS
    on_wait: Callable[[str, float], None] = lambda _name, _seconds: None
    store: Store | None = None
    allocations: bool = False
    """True to list every allocation on both sides."""
    _machine: Machine | None = field(default=None, init=False)

    @property
    def machine(self) -> Machine:
        """The machine it is measured on. Raises UsageError if there is no such device."""
        if self._machine is None:
            answer = self._ask(DescribeMachine(self.device), Machine, self.device)
            self._machine = _result(answer, Machine)
        return self._machine

    def measure(self, subject: Subject, *, limit: int | None = None, history: bool = False) -> Outcome:
        """The Outcome of `subject`, from the store where it is there already; what is new is put there at once.

        `limit` are the most bytes the allocator may reserve: with it nothing is taken from the store or put there.
        `history` asks for the allocator's, which only a store can hold.
        """
        kept = self.store if limit is None else None
        known = kept.find(subject, self.num_steps, history=history) if kept else None
        if known is not None:
            return Outcome(subject.name, known, is_old=True)
        request = MeasureRequest(
            subject=subject,
            device=self.device,
            num_steps=self.num_steps,
            # The CPU's figures are complete from the first step on; lists are of as many steps as a Trace has.
            num_warmup=int(self.device == "cuda" and not self.allocations),
            history=str(kept.history_file(subject.name)) if kept and history else None,
            limit=limit,
            allocations=self.allocations,
        )
        answer = self._ask(MeasureSubject(request), Measured, subject.name, subject.allocator)
        if answer.out_of_memory:
            return Outcome(subject.name, skipped="too big for the host's memory")
        if answer.error is not None:
            return Outcome(subject.name, error=answer.error)
        measured = _result(answer, Measured)
        measurement = measured.measurement
        if measurement is None:
            return Outcome(subject.name, skipped=measured.skipped)
        if kept is not None:
            kept.put(measurement)
        return Outcome(subject.name, measurement)

    def cap(self, comparison: Comparison) -> Cap:
        """Run it again with the reserved bytes of its estimate as a limit. Raises what went wrong otherwise."""
        limit = comparison.prediction.peaks["reserved"].estimate
        outcome = self.measure(comparison.measurement.subject, limit=limit)
        if outcome.error is not None:
            raise outcome.error
        retries = outcome.measurement.num_retries if outcome.measurement else 0
        return Cap(limit=limit, held=outcome.measurement is not None, num_retries=retries)

    def compare(self, outcomes: Sequence[Outcome], *, cap: bool = False) -> None:
        """Give each Outcome with a Measurement its comparison; a Prediction or a run that failed is an error."""
        measured = [(outcome, outcome.measurement) for outcome in outcomes if outcome.measurement is not None]
        compared = self.comparisons([measurement for _, measurement in measured])
        for (outcome, _), comparison in zip(measured, compared, strict=True):
            error = comparison.prediction.error
            if error is not None:
                outcome.error = WorkerError(f"no estimate: {error}", "See it with `memlint check`.")
                continue
            outcome.comparison = comparison
            try:
                if cap:
                    outcome.comparison = comparison.model_copy(update={"cap": self.cap(comparison)})
            except MemlintError as failure:
                outcome.error = failure

    def comparisons(self, measurements: Sequence[Measurement]) -> Iterator[Comparison]:
        """Each Measurement with what memlint says of it, in order."""
        by_machine: dict[tuple[str, str], dict[str, Subject]] = {}
        for measurement in measurements:
            by_machine.setdefault(measurement.group, {})[_key(measurement.subject)] = measurement.subject
        predictions = {
            (*machine, key): prediction
            for machine, subjects in by_machine.items()
            for key, prediction in zip(subjects, self._predictions([*subjects.values()], *machine), strict=True)
        }
        for measurement in measurements:
            prediction = predictions[*measurement.group, _key(measurement.subject)]
            yield Comparison(measurement=measurement, prediction=prediction)

    def _predictions(self, subjects: Sequence[Subject], gpu: str, torch: str) -> Iterator[Prediction]:
        if known_gpu(gpu):
            of_gpu = ".".join(torch.split(".")[:2]) if gpu != "cpu" else ""  # the host's kernels are the installed ones
            for start in range(0, len(subjects), _TOGETHER):
                yield from self._predicted(subjects[start : start + _TOGETHER], gpu, of_gpu)
        else:
            reason = f"the GPU {gpu} is not in memlint's catalogue"
            yield from (Prediction(name=subject.name, error=reason) for subject in subjects)

    def _predicted(self, subjects: Sequence[Subject], gpu: str, torch: str) -> list[Prediction]:
        """Made by one process, or by one each where that dies: it takes nobody else's Prediction with it."""
        order = PredictOrder(subjects=list(subjects), gpu=gpu, torch=torch, allocations=self.allocations)
        name = f"the estimate of {subjects[0].name}" + (f" and {len(subjects) - 1} more" if len(subjects) > 1 else "")
        answer = self._ask(PredictSubjects(order), Predictions, name, times=len(subjects))
        if answer.error is None:
            return _result(answer, Predictions).predictions
        if len(subjects) > 1:
            return [prediction for subject in subjects for prediction in self._predicted([subject], gpu, torch)]
        return [Prediction(name=subjects[0].name, error="the process that made it died")]

    def _ask(self, job: Job, model: type[Record], name: str, allocator: str = "", times: int = 1) -> Answer:
        measures = isinstance(job, MeasureSubject)
        on_gpu = self.device == "cuda" and (measures or isinstance(job, DescribeMachine))
        environment: dict[str, str | None] = dict(_CUDA_ENVIRONMENT) if on_gpu else {}
        if on_gpu and allocator:
            environment |= dict.fromkeys(VARIABLES, allocator)
        limits = Limits(
            seconds=times * max(self.settings.timeout, _SECONDS if measures else 0.0),
            nbytes=_UNLIMITED if on_gpu else self.settings.memory_limit,
        )
        request = Request(target=name, path=None, root=str(self.root), settings=self.settings)
        return carry_out(
            Task(request, limits, lambda session: session.ask(job).as_(model)),
            environment=environment,
            on_wait=lambda seconds: self.on_wait(name, seconds),
        )


def require_torch() -> None:
    """Raise UsageError where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "PyTorch is not installed, so nothing can be run", f"Install it with: {install_command('torch')}"
        )


def find_subjects(
    arguments: Sequence[str],
    options: Mapping[str, object],
    device: DeviceKind,
    on_wait: Callable[[str, float], None] = lambda _name, _seconds: None,
) -> tuple[list[tuple[Request, Subject]], list[Outcome]]:
    """The Subjects of what was typed, for `device`, with the Request each was found by, and what could not be read.

    Raises MemlintError for arguments and configuration that make no sense.
    """
    subjects, outcomes = [], []
    allocator = next((text for name in VARIABLES if (text := os.environ.get(name))), "")
    for targets in distinct([resolve(argument, options) for argument in arguments]):
        outcomes += [Outcome(name, error=error) for name, error in targets.lost]
        for request in targets.requests:
            job = FindSubjects(is_on_host=device == "cpu")
            answer = carry_out(
                Task(request, request.limits(), lambda session, job=job: session.ask(job).as_(FoundSubjects)),  # type: ignore[misc]
                on_wait=lambda seconds, name=request.target: on_wait(name, seconds),  # type: ignore[misc]
            )
            if answer.error is not None:
                outcomes.append(Outcome(request.target, error=answer.error))
                continue
            found = _result(answer, FoundSubjects)
            for subject in found.subjects:
                if allocator and not subject.allocator:
                    table = {**subject.table, "allocator": allocator}
                    subjects.append((request, subject.model_copy(update={"table": table})))
                else:
                    subjects.append((request, subject))
            outcomes += [Outcome(each.name, error=WorkerError(each.message, each.hint)) for each in found.failed]
            if request.named and not found.subjects and not found.failed:
                hint = "Name the class or function that gives the model, as in model.py::build."
                outcomes.append(Outcome(request.target, error=UsageError("no model found in it", hint)))
    return subjects, outcomes


def _result(answer: Answer, model: type[_Model]) -> _Model:
    """Return the child's answer, or raise its error."""
    if answer.error is not None:
        raise answer.error
    assert isinstance(answer.result, model)
    return answer.result


def _key(subject: Subject) -> str:
    return subject.model_dump_json()
