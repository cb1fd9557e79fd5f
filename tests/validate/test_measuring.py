"""Subjects measured one after the other: what is kept, left out, tried again and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memlint.base.errors import MemlintError, TargetError, UsageError, WorkerError
from memlint.commands.validate import measuring as session
from memlint.commands.validate import validate as command
from memlint.commands.validate.measuring import Session
from memlint.commands.validate.validate import Options
from memlint.config import Settings
from memlint.validate.jobs import DescribeMachine, Measured, MeasureSubject, Predictions, PredictSubjects
from memlint.validate.measurement import Measurement
from memlint.validate.store import Store, read_measurements
from memlint.worker.protocol import Answer, Limits
from memlint.worker.session import Answered, JobError
from tests.validate.samples import GPU, MACHINE, measurement, prediction, subject

if TYPE_CHECKING:
    from memlint.report.model import Record
    from memlint.worker.jobs import Job
    from memlint.worker.task import Task

pytestmark = pytest.mark.usefixtures("copied_pythons")


class FakeWorker:
    """Stands for the Session of a child process: answers jobs by their kind and Subject."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.environments: list[dict[str, str | None]] = []
        self.limits: list[Limits] = []
        self.answers: dict[str, Any] = {}
        """By Subject: what `measure` answers instead; an exception is the child's, None its death."""
        self.deadly: set[str] = set()
        """Subjects whose estimate kills the process."""
        self.gpu = False

    def __call__(
        self, task: Task, *, environment: Mapping[str, str | None], on_wait: Callable[[float], None]
    ) -> Answer:
        self.environments.append(dict(environment))
        self.limits.append(task.limits)
        try:
            return Answer(task.ask(self))  # type: ignore[arg-type]
        except JobError as failed:
            return self.error(failed.error, out_of_memory=isinstance(failed, _OutOfMemory))

    def ask(self, job: Job) -> Answered:
        answered = self.answer(job)
        return Answered(answered.model_dump(mode="json"), None)

    def answer(self, job: Job) -> Record:
        match job:
            case DescribeMachine():
                return GPU if self.gpu else MACHINE
            case MeasureSubject(order):
                name = order.subject.name
                self.asked.append(("measure", name, order.limit))
                answer = self.answers.get(name, measurement(name, gpu=self.gpu))
                if isinstance(answer, Measurement):
                    return Measured(measurement=answer)
                if isinstance(answer, Answer):
                    assert answer.error is not None
                    raise (_OutOfMemory if answer.out_of_memory else JobError)(answer.error, ())
                return Measured(skipped=answer)
            case PredictSubjects(order):
                names = [subject.name for subject in order.subjects]
                self.asked.append(("predict", names, order.gpu))
                if self.deadly.intersection(names):
                    raise JobError(WorkerError("the code crashed with a segmentation fault"), ())
                return Predictions(predictions=[prediction(name) for name in names])
        raise AssertionError(f"nobody asks for {job!r}")

    @staticmethod
    def error(error: MemlintError, *, out_of_memory: bool = False) -> Answer:
        return Answer(None, error, (), "", "", out_of_memory)


class _OutOfMemory(JobError):
    """The memory of the host did not suffice."""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    fake = FakeWorker()
    monkeypatch.setattr(session, "carry_out", fake)
    return fake


def cpu_session(folder: Path) -> Session:
    made = Session(folder, Settings(), "cpu")
    made.store = Store(folder / "measurements", made.machine)
    return made


def test_a_measurement_is_written_at_once_and_read_back_the_same(worker: FakeWorker, tmp_path: Path) -> None:
    outcome = cpu_session(tmp_path).measure(subject())
    file = tmp_path / "measurements" / "cpu" / "2.13.0" / "net.json"
    assert Measurement.read(file) == outcome.measurement
    assert read_measurements(tmp_path / "measurements") == [outcome.measurement]
    assert list(file.parent.iterdir()) == [file]


def test_what_is_recorded_is_not_measured_again(worker: FakeWorker, tmp_path: Path) -> None:
    made = cpu_session(tmp_path)
    made.measure(subject())
    assert made.measure(subject()).is_old
    assert len(worker.asked) == 1


@pytest.mark.parametrize("change", [{"table": {"target": "net.py::Net", "batch": 9}}, {"holdout": True}])
def test_a_subject_that_changed_is_measured_again(worker: FakeWorker, tmp_path: Path, change: dict[str, Any]) -> None:
    made = cpu_session(tmp_path)
    made.measure(subject())
    assert not made.measure(subject(**change)).is_old


def test_other_steps_and_broken_files_are_measured_again(worker: FakeWorker, tmp_path: Path) -> None:
    made = cpu_session(tmp_path)
    made.measure(subject())
    made.num_steps = 3
    assert not made.measure(subject()).is_old
    made.num_steps = 2
    assert made.store is not None
    made.store.file("net").write_text("{")
    assert not made.measure(subject()).is_old


def test_what_cannot_run_is_named_and_the_rest_goes_on(worker: FakeWorker, tmp_path: Path) -> None:
    worker.answers = {
        "big": "too big for this GPU",
        "huge": worker.error(WorkerError("the code took more than 8 GiB of host memory"), out_of_memory=True),
        "broken": worker.error(WorkerError("the step failed: ValueError")),
    }
    made = cpu_session(tmp_path)
    outcomes = [made.measure(subject(name)) for name in ("big", "huge", "broken", "net")]
    assert [outcome.skipped for outcome in outcomes] == [
        "too big for this GPU",
        "too big for the host's memory",
        "",
        "",
    ]
    assert outcomes[2].error is not None
    assert outcomes[3].measurement is not None
    assert [m.subject.name for m in read_measurements(tmp_path / "measurements")] == ["net"]


def test_the_estimate_that_kills_its_process_takes_no_other_with_it(worker: FakeWorker, tmp_path: Path) -> None:
    worker.deadly = {"b"}
    made = Session(tmp_path, Settings(), "cpu")
    outcomes = [made.measure(subject(name)) for name in "abc"]
    made.compare(outcomes)
    assert [outcome.comparison is not None for outcome in outcomes] == [True, False, True]
    assert outcomes[1].error is not None
    assert "died" in outcomes[1].error.message


def test_many_are_estimated_by_few_processes(worker: FakeWorker, tmp_path: Path) -> None:
    made = Session(tmp_path, Settings(), "cpu")
    assert len(list(made.comparisons([measurement(f"net-{i}") for i in range(20)]))) == 20
    assert [len(names) for _, names, _ in worker.asked] == [8, 8, 4]


def test_a_gpu_that_is_not_in_the_catalogue_is_said(worker: FakeWorker, tmp_path: Path) -> None:
    machine = GPU.model_copy(update={"gpu": "nvidia-z9"})
    (compared,) = Session(tmp_path, Settings(), "cpu").comparisons([measurement(machine=machine)])
    assert compared.prediction.error == "the GPU nvidia-z9 is not in memlint's catalogue"
    assert worker.asked == []


def test_the_gpu_is_visible_to_what_is_measured_on_it_and_to_nothing_else(worker: FakeWorker, tmp_path: Path) -> None:
    worker.gpu = True
    made = Session(tmp_path, Settings(), "cuda")
    outcome = made.measure(subject(table={**subject().table, "allocator": "max_split_size_mb:64"}))
    made.compare([outcome])
    measuring, estimating = worker.environments
    assert measuring["CUDA_VISIBLE_DEVICES"] is None
    assert measuring["PYTORCH_ALLOC_CONF"] == measuring["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:64"
    assert estimating == {}
    assert worker.limits[0].nbytes > 2**40 > worker.limits[1].nbytes


def test_the_estimate_is_the_limit_of_the_second_run(worker: FakeWorker, tmp_path: Path) -> None:
    worker.gpu = True
    made = Session(tmp_path, Settings(), "cuda")
    outcome = made.measure(subject())
    made.compare([outcome], cap=True)
    assert worker.asked[-1] == ("measure", "net", prediction().peaks["reserved"].estimate)
    assert outcome.comparison is not None
    assert outcome.comparison.cap is not None
    assert outcome.comparison.cap.held
    worker.answers["net"] = "too big for this GPU"
    made.compare([outcome], cap=True)
    assert not outcome.comparison.cap.held
    worker.answers["net"] = worker.error(WorkerError("the code crashed"))
    made.compare([outcome], cap=True)
    assert outcome.error is not None


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        ((), {}, "nothing to validate"),
        (("net.py",), {"against": Path()}, "--against runs nothing"),
        (("net.py",), {"device": "cpu", "cap": True}, "no caching allocator"),
        (("net.py",), {"history": True}, "--history needs a place"),
        (("net.py",), {"cap": True, "no_compare": True}, "need the estimate"),
        (("net.py",), {"events": True, "record": Path()}, "--events compares two steps"),
    ],
)
def test_options_that_do_not_go_together_are_errors(
    targets: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        command.validate(targets, Options(**options))


def test_allocator_settings_of_the_shell_are_kept_out_of_a_suite(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    with pytest.raises(UsageError, match="PYTORCH_CUDA_ALLOC_CONF is set"):
        command.validate((), Options(suite=tmp_path / "suite.toml"))


def test_a_folder_without_measurements_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(TargetError, match="has no measurements"):
        read_measurements(tmp_path)
