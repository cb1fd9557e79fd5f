"""`memlint validate`: chooses the Subjects, the device, and what to compare the estimates with."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from memlint.base.errors import MemlintError, UsageError
from memlint.commands.validate.measuring import Outcome, Session, find_subjects, require_torch
from memlint.commands.validate.recorded import keep, machine_of, measurement_of, read_run
from memlint.config import Settings, find_settings, override
from memlint.memory.allocator.settings import VARIABLES
from memlint.report.text_style import TextStyle
from memlint.validate.comparison import Comparison
from memlint.validate.measurement import DeviceKind, Subject
from memlint.validate.scoreboard import scoreboard
from memlint.validate.store import Store, read_measurements
from memlint.validate.suite import read_suite
from memlint.validate.validation_text import render_accuracy, render_comparison, render_measurement, render_scoreboard

TRACED_STEPS = 2


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line other than Settings."""

    suite: Path | None = None
    device: DeviceKind = "cuda"
    steps: int = 2
    record: Path | None = None
    history: bool = False
    no_compare: bool = False
    against: Path | None = None
    cap: bool = False
    events: bool = False
    only: tuple[str, ...] = ()
    of: str | None = None
    """The program of a recording, which is then the only target."""
    gpu: str | None = None
    driver: str = ""
    torch: str | None = None
    """GPU, driver and PyTorch of a recording, which does not name them."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The outcomes of a validation."""

    comparisons: list[Comparison]
    outcomes: list[Outcome] = field(default_factory=list)
    """One for each Subject that was measured."""
    summed_up: bool = False
    """True if so many were compared that a scoreboard says more than each of them."""

    @property
    def status(self) -> int:
        """0: all is well; 1: an estimate is too low, or did not hold as a limit; 2: something went wrong."""
        if self.errors or any(comparison.prediction.error is not None for comparison in self.comparisons):
            return 2
        return int(any(c.is_too_low or (c.cap is not None and not c.cap.held) for c in self.comparisons))

    @property
    def errors(self) -> list[tuple[str, MemlintError]]:
        """Names, and what went wrong."""
        return [(outcome.name, outcome.error) for outcome in self.outcomes if outcome.error is not None]

    def rendered(self, output_format: str, paint: TextStyle) -> str:
        """Render the comparisons as text, JSON or Markdown that ends with a newline."""
        board = scoreboard(self.comparisons)
        if output_format == "markdown":
            subjects = (comparison.measurement.subject for comparison in self.comparisons)
            return render_accuracy(board, (subject.name for subject in subjects if subject.holdout))
        if output_format == "json":
            return board.model_dump_json(indent=1) + "\n"
        if self.summed_up:
            return render_scoreboard(board, paint) if self.comparisons else ""
        blocks = [render_comparison(comparison, paint) for comparison in self.comparisons]
        only_measured = [outcome.measurement for outcome in self.outcomes if outcome.comparison is None]
        blocks += [render_measurement(measurement, paint) + "\n" for measurement in only_measured if measurement]
        return "\n".join(blocks)


class _Task(NamedTuple):
    subject: Subject
    root: Path
    settings: Settings
    history: bool


def validate(
    targets: Sequence[str],
    options: Options,
    typed: Mapping[str, object] = MappingProxyType({}),
    *,
    on_wait: Callable[[str, float], None] = lambda _name, _seconds: None,
    tell: Callable[[str], None] = lambda _text: None,
) -> Validation:
    """Measure and compare what `options` say, with the keys of Settings that were `typed`.

    `tell` is called with each line of progress. Raises MemlintError for options that make no sense; what goes wrong
    with a single Subject stands in its Outcome.
    """
    require_torch()
    _check(targets, options)
    if options.of is not None:
        return _recorded(Path(targets[0]), options.of, options, typed, on_wait)
    if options.against is not None:
        settings, root = _project(options.against, typed)
        session = Session(root, settings, "cpu", on_wait=on_wait)
        measurements = [m for m in read_measurements(options.against) if _is_chosen(m.subject, options)]
        return Validation(list(session.comparisons(measurements)), summed_up=not options.only)
    subjects, outcomes = find_subjects(targets, typed, options.device, on_wait)
    tasks = [_Task(subject, Path(request.root), request.settings, options.history) for request, subject in subjects]
    tasks += _of_suite(options.suite, options, typed) if options.suite is not None else []
    tasks = [task for task in tasks if _is_chosen(task.subject, options)]
    sessions = _sessions(tasks, options, on_wait)
    for number, task in enumerate(tasks, start=1):
        outcome = sessions[task.root].measure(task.subject, history=task.history)
        outcomes.append(outcome)
        if options.suite is not None or options.record is not None:
            tell(f"[{number}/{len(tasks)}] {outcome.name}: {_progress(outcome)}")
        elif outcome.skipped:
            tell(f"{outcome.name}: {_progress(outcome)}")
    if not options.no_compare:
        for root, session in sessions.items():
            names = {task.subject.name for task in tasks if task.root == root}
            session.compare([outcome for outcome in outcomes if outcome.name in names], cap=options.cap)
    comparisons = [outcome.comparison for outcome in outcomes if outcome.comparison is not None]
    return Validation(comparisons, outcomes, summed_up=options.suite is not None and not options.only)


def _recorded(
    file: Path, target: str, options: Options, typed: Mapping[str, object], on_wait: Callable[[str, float], None]
) -> Validation:
    """Take a recorded run of `target` for its Measurement, keep it with --record, and compare it."""
    machine = machine_of(options.gpu, options.driver, options.torch)
    evidence = read_run(file)
    subjects, failed = find_subjects([target], typed, options.device, on_wait)
    if failed and failed[0].error is not None:
        raise failed[0].error
    if len(subjects) != 1:
        raise UsageError(f"{target} has {len(subjects)} workloads", "Name one: --of model.py::Net.")
    (request, subject) = subjects[0]
    measurement = measurement_of(evidence, subject, machine)
    if options.record is not None:
        measurement = keep(evidence, measurement, options.record)
    outcome = Outcome(subject.name, measurement)
    if not options.no_compare:
        Session(Path(request.root), request.settings, options.device, on_wait=on_wait).compare([outcome])
    return Validation([outcome.comparison] if outcome.comparison is not None else [], [outcome])


def _check(targets: Sequence[str], options: Options) -> None:
    """Raise UsageError for options that do not go together."""
    if options.of is not None:
        _check_recorded(targets, options)
        return
    if options.gpu is not None or options.driver or options.torch is not None:
        raise UsageError("the device says what it is", "Leave out --gpu, --driver and --torch, or add --of TARGET.")
    has_targets = bool(targets) or options.suite is not None
    if options.against is not None and (has_targets or options.record is not None or options.cap):
        raise UsageError("--against runs nothing", "Leave out targets, --suite, --record and --cap.")
    if options.against is None and not has_targets:
        raise UsageError("nothing to validate", "Give a file, --suite FILE, or --against DIR.")
    if options.device == "cpu" and (options.cap or options.history):
        raise UsageError("the host has no caching allocator", "Leave out --cap and --history, or give --device cuda.")
    if options.history and options.record is None:
        raise UsageError("--history needs a place to keep it", "Give --record DIR.")
    if (options.cap or options.events) and options.no_compare:
        raise UsageError("--cap and --events need the estimate", "Leave out --no-compare.")
    if options.events and (options.record is not None or options.against is not None or options.steps != TRACED_STEPS):
        raise UsageError("--events compares two steps that run now", "Leave out --record, --against and --steps.")


def _check_recorded(targets: Sequence[str], options: Options) -> None:
    """Raise UsageError for options that do not go together with `--of`."""
    if len(targets) != 1 or not options.history:
        raise UsageError(
            "--of names the program of one recording",
            "Write memlint validate --history snapshot.pickle --of model.py::Net --gpu h100-80gb --record DIR.",
        )
    if options.suite is not None or options.against is not None or options.cap or options.events:
        raise UsageError("--of runs nothing", "Leave out --suite, --against, --cap and --events.")


def _is_chosen(subject: Subject, options: Options) -> bool:
    """Return True if its name contains one of the texts of `--only`."""
    return not options.only or any(text in subject.name for text in options.only)


def _project(place: Path, typed: Mapping[str, object]) -> tuple[Settings, Path]:
    """Settings and root of the project around `place`, with the limits that were typed."""
    settings, root = find_settings(place)
    return override(settings, **{name: typed.get(name) for name in ("timeout", "memory_limit")}), root


def _of_suite(suite: Path, options: Options, typed: Mapping[str, object]) -> list[_Task]:
    variable = next((name for name in VARIABLES if os.environ.get(name)), None)
    if variable is not None:
        raise UsageError(f"{variable} is set, and would change what the suite measures", f"Run: unset {variable}")
    settings, root = _project(suite.parent, typed)
    return [
        _Task(entry.subject, root, settings, options.history and entry.history)
        for entry in read_suite(suite, root)
        if entry.cpu == (options.device == "cpu")
    ]


def _sessions(tasks: Sequence[_Task], options: Options, on_wait: Callable[[str, float], None]) -> dict[Path, Session]:
    """One for each project, with a store where measurements are to be kept."""
    sessions = {}
    for task in tasks:
        if task.root not in sessions:
            session = Session(task.root, task.settings, options.device, options.steps, on_wait)
            session.allocations = options.events
            if options.record is not None:
                session.store = Store(options.record, session.machine)
            sessions[task.root] = session
    return sessions


def _progress(outcome: Outcome) -> str:
    if outcome.error is not None:
        return f"failed: {outcome.error.message}"
    if outcome.skipped:
        return f"skipped: {outcome.skipped}"
    return "recorded before" if outcome.is_old else "measured"
