"""From a Session to a Result: every Workload of a target is captured, described and shown to the rules."""

import shlex
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from memlint.base.errors import MemlintError, TargetError, UsageError, WorkerError
from memlint.capture.capture import Capture
from memlint.capture.codec import workload_of
from memlint.capture.files import open_file
from memlint.commands.analyse.analysis import Analysis
from memlint.commands.analyse.description import described, fitting_of, identity, plan
from memlint.commands.analyse.look import Look
from memlint.commands.parts import OnPart, Phase, nobody
from memlint.config import Budget, Settings
from memlint.lint.own_rules import kept_in_bounds
from memlint.lint.registry import project_rules
from memlint.lint.rule import Finding, Rule, Severity
from memlint.lint.runner import trace_findings
from memlint.report import model as report
from memlint.report.from_rules import error_of, finding_of
from memlint.report.from_trace import graph_of, timeline_of, what_ifs_of
from memlint.targets.launchers import fields_of, launch_of
from memlint.targets.script import Script, Started
from memlint.targets.shell_scripts import launch_in, shell_script
from memlint.targets.workload import Workload
from memlint.worker import endings
from memlint.worker.jobs import (
    Declare,
    DeclareByHand,
    EstimateAround,
    FindWorkloads,
    Found,
    LeftOut,
    Sweeps,
    Text,
    TraceWorkload,
)
from memlint.worker.protocol import Request, Result
from memlint.worker.session import AnySession, EndedError, FileSession, JobError, Session

OVER_BUDGET = "MEM010"


def analyse(session: Session, look: Look, on_part: OnPart = nobody) -> Result:
    """Say all of the target's Workloads, and each part of it to `on_part` as soon as it is known.

    Raises JobError where the target cannot be loaded, EndedError where its child ends.
    """
    conversation = _Conversation(session, look, on_part)
    return conversation.script(session) if session.is_script else conversation.target()


def look_at_file(request: Request, look: Look) -> Result:
    """Say all of a Capture or a recording in a file, of which nothing more can be asked. Raises MemlintError."""
    capture = open_file(request.path or "", request.settings.gpu)
    return look_at_capture(replace(capture, workload=replace(capture.workload, target=request.target)), request, look)


def look_at_capture(capture: Capture, request: Request, look: Look) -> Result:
    """Say all of a Capture of which nothing more can be asked."""
    return _Conversation(FileSession(request), look).file(capture)


class _Conversation:
    """The messages about one target so far."""

    def __init__(self, session: AnySession, look: Look, on_part: OnPart = nobody) -> None:
        self._session = session
        self._look = look
        self._on_part = on_part
        self._phase = ""
        session.tell_compiling(self._compiling)
        self._is_only_one = True
        self._request: Request = session.request
        self._settings: Settings = session.request.settings
        self._done = Result()
        self._lines: defaultdict[str, set[int]] = defaultdict(set)

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        """The rules, loaded when the first Workload is there."""
        return project_rules(self._settings, Path(self._request.root)).chosen(self._settings)

    def target(self) -> Result:
        """Ask for one Workload after the other."""
        session, request = self._session, self._request
        self._begin("looking for models")
        found = session.ask(FindWorkloads()).as_(Found)
        self._is_only_one = len(found.workloads) == 1
        workloads = [workload_of(each) for each in found.workloads]
        skipped = [_skipped(each, request) for each in found.left_out]
        self._done = Result(torch=found.torch, skipped=skipped)
        for number, workload in enumerate(workloads):
            later = [each for each in workloads[number + 1 :] if each.origin == "discovered"]
            if len(workloads) > 1:
                self._keep_begun([each for each in workloads[number:] if each not in later], later)
            self._begin(f"tracing {workload.name}")
            if self._has_tables:
                session.begin(EstimateAround(number))
            try:
                capture = session.ask(TraceWorkload(number)).capture
            except JobError as failed:
                budget = self._settings.budget_of(workload.name)
                failure = error_of(failed.error, failed.traceback)
                self._add(report.Workload(**identity(workload, budget), error=failure))
                self._declare_by_hand(workload.name, failed.error)
                continue
            assert capture is not None
            self._look_at(capture, number, [each.qualname for each in later])
            if self._look.init:
                self._declare(session.ask(Declare(number)).as_(Text))
        if not workloads:
            for each in found.left_out:
                self._declare_by_hand(each.name, each.reason)
        return self._done

    def script(self, session: Session) -> Result:
        """Ask for what a script did; where that was little, ask once more with what it lacked.

        That is fake data, or a change for a package that is another version than the script was written for.
        """
        try:
            capture = session.ask(TraceWorkload()).capture
            starter: Capture | None = None
            while capture is not None and (script := _next_script(session, capture)) is not None:
                starter = capture if script.is_started and starter is None else starter
                session.begin_again(session.request.model_copy(update={"script": script}))
                capture = session.ask(TraceWorkload()).capture
            if starter is not None and (capture is None or _only_ended(capture)):
                capture = _without_variables(starter)
        except EndedError:
            seen = self._session.last_capture()
            if seen is not None:
                analysis = self._analysis(seen, 0, thorough=False)
                self._add(described(analysis, self._budget(analysis)))
                self._session.keep(self._done)
            raise
        assert capture is not None
        self._done = Result(torch=capture.trace.torch)
        self._look_at(capture, 0, [])
        return self._done

    def file(self, capture: Capture) -> Result:
        """Say all of a Capture that is there."""
        self._done = Result(torch=capture.trace.torch)
        self._look_at(capture, 0, [])
        return self._done

    def _look_at(self, capture: Capture, number: int, later: list[str]) -> None:
        """Describe a Workload, run the rules over it, and what else is to be said; keep everything on the way."""
        analysis = self._analysis(capture, number, thorough=self._look.thorough)
        budget = self._budget(analysis)
        position = len(self._done.workloads)
        before = self._done
        details = self._details(analysis)
        record = described(analysis, budget).model_copy(update=details)
        if record.verdict is not None:
            record = record.model_copy(update={"fitting": fitting_of(analysis, self._settings.gpu_prices)})
        self._add(record)
        self._on_part(capture)
        self._on_part(record)
        if self._look.quick:
            return
        reason = f"{analysis.workload.name}: its rules were not finished when it was stopped: findings are missing"
        hint = "Allow more with --timeout SECONDS, or choose fewer rules with --select."
        unfinished = report.Skipped(name=analysis.workload.name, reason=reason, hint=hint)
        self._session.rules_begin()
        findings: list[report.Finding] = []
        codes: list[str] = []
        try:
            for each in self._findings(analysis, codes):
                findings.append(finding_of(each, analysis.workload.name, position))
                if self._is_only_one:
                    self._on_part(findings[-1])
            added = {
                "what_ifs": what_ifs_of(analysis.simulation.answers, analysis.trace),  # what the rules have simulated
                "plan": plan(analysis, dynamics=self._look.allow_dynamics) if self._look.plan else None,
            }
        except BaseException as error:
            self._done = self._done.model_copy(update={"findings": [*self._done.findings, *findings]})
            if capture.script is None:
                update = {"skipped": [*self._done.skipped, unfinished], "left": later}
                self._session.keep(self._done.model_copy(update=update))
                raise
            if not isinstance(error, EndedError):
                self._session.keep(self._done)
                raise
            missing = endings.rules_missing(error.reason, codes)
            self._done = self._done.model_copy(update={"skipped": [*self._done.skipped, missing]})
            return
        self._done = before.model_copy(update={"findings": [*before.findings, *findings]})
        self._add(record.model_copy(update=added))
        self._note_lines(analysis)
        if self._has_tables:
            self._add_sweep(number)

    @property
    def _has_tables(self) -> bool:
        return self._look.sweep and self._settings.sweep and self._session.has_tables

    def _analysis(self, capture: Capture, number: int, *, thorough: bool) -> Analysis:
        if self._look.alloc_conf:
            capture = capture.with_allocator(self._look.alloc_conf)
        budget = self._settings.budget_of(capture.workload.name)
        most = budget.max if budget else None
        return Analysis.of(capture, self._session, number, most, thorough=thorough)

    def _findings(self, analysis: Analysis, left: list[str]) -> Iterator[Finding]:
        """Everything that rules of traced steps find; `left` is given the codes of those that are not through.

        A budget that is a warning fails nothing when it is exceeded.
        """
        budget = self._budget(analysis)
        lenient = budget is not None and budget.level == "warning"
        has_own = bool(self._settings.rule_paths)
        rules = self._rules  # to load them has bounds of its own
        try:
            with kept_in_bounds(self._session.seconds_left) if has_own else nullcontext():
                for finding in trace_findings(analysis, rules, left, self._begins):
                    is_allowed = lenient and finding.code == OVER_BUDGET
                    yield replace(finding, severity=Severity.INFO) if is_allowed else finding
        except WorkerError as error:  # of a rule that does not end
            raise EndedError(error) from error

    def _begins(self, code: str) -> None:
        self._begin(f"rule {code}")

    def _begin(self, phase: str) -> None:
        self._phase = phase
        self._on_part(Phase(phase))

    def _compiling(self, doing: str) -> None:
        self._on_part(Phase(", ".join(filter(None, (self._phase, doing)))))

    def _add_sweep(self, number: int) -> None:
        """Add the tables around the batch size, or as much of them as there is when the time is up."""
        session = self._session
        self._begin("batch sizes")
        session.keep(self._done)
        session.renew_time()
        sweeps: Sweeps | None = None
        try:
            sweeps = session.ask(EstimateAround(number)).as_(Sweeps)
        except JobError:
            return
        except EndedError:
            sweeps = session.last_record(Sweeps)
            if sweeps is not None:
                self._add_to_last(sweeps)
                session.keep(self._done)
            raise
        self._add_to_last(sweeps)

    def _add_to_last(self, sweeps: Sweeps) -> None:
        *others, last = self._done.workloads
        self._done = self._done.model_copy(
            update={"workloads": [*others, last.model_copy(update={"sweep": sweeps.sweeps})]}
        )

    def _note_lines(self, analysis: Analysis) -> None:
        trace = analysis.trace
        for frame in filter(None, {*(node.frame for node in trace.nodes), *(b.frame for b in trace.buffers)}):
            self._lines[frame.of_project.path].add(frame.of_project.line)
        lines = {path: sorted(numbers) for path, numbers in self._lines.items()}
        self._done = self._done.model_copy(update={"traced_lines": lines})

    def _budget(self, analysis: Analysis) -> Budget | None:
        return self._settings.budget_of(analysis.workload.name)

    def _details(self, analysis: Analysis) -> dict[str, object]:
        """The parts of a Workload that say what happened when, if they are wanted."""
        look = self._look
        return {
            "timeline": timeline_of(analysis.timeline, analysis.trace.nodes) if look.timeline else None,
            "graph": graph_of(analysis.trace) if look.graph else None,
        }

    def _add(self, workload: report.Workload) -> None:
        self._done = self._done.model_copy(update={"workloads": [*self._done.workloads, workload]})

    def _keep_begun(self, begun: list[Workload], later: list[Workload]) -> None:
        """Keep what there is, with the Workload that is analysed now; those later on can be asked for by name."""
        known = [report.Workload(**identity(each, self._settings.budget_of(each.name))) for each in begun]
        update = {"workloads": [*self._done.workloads, *known], "left": [each.qualname for each in later]}
        self._session.keep(self._done.model_copy(update=update))

    def _declare(self, text: Text) -> None:
        if text.text:
            self._done = self._done.model_copy(update={"declarations": [*self._done.declarations, text.text]})

    def _declare_by_hand(self, name: str, error: MemlintError | str) -> None:
        """With `init`: a declaration to be filled in of what cannot be analysed."""
        if self._look.init:
            known = ("WorkloadError", error, "") if isinstance(error, str) else _texts(error)
            self._declare(self._session.ask(DeclareByHand(name, *known)).as_(Text))


def _next_script(session: Session, capture: Capture) -> Script | None:
    """Return the script as it is to be run once more; None if nothing is known with which it may come further."""
    script, facts = session.request.script, capture.script
    if script is None or facts is None:
        return None
    if facts.amendment is not None:
        return script.amended(facts.amendment)
    if facts.started is not None:
        return _of_started(script, facts.started)
    return script.model_copy(update={"fake_data": True}) if facts.lacks_data else None


def _of_started(script: Script, started: Started) -> Script | None:
    """Return the program that a script has started as one that was typed."""
    folder = Path(started.folder or script.folder or Path.cwd())
    try:
        inner = shell_script(started.words, folder)
        launch = launch_of(started.words) if inner is None else launch_in(folder / inner[0], inner[1:])
    except (UsageError, TargetError):
        return None
    path = folder / launch.folder / launch.path
    if launch.path and not path.is_file():
        return None
    variables = (*script.variables, *started.variables, *launch.variables.items())
    update = {
        **fields_of(launch),
        "ranks": launch.ranks or script.ranks,  # whose variables the program inherits
        "name": script.name,
        "path": launch.path and str(path),
        "folder": str(folder / launch.folder),
        "variables": variables,
        "typed": tuple(shlex.split(script.command)),
        "is_started": True,
    }
    return script.model_copy(update=update)


def _without_variables(capture: Capture) -> Capture:
    """Leave out the program that a script started: its variables may hold secrets, and a Capture may be passed on."""
    assert capture.script is not None, "it has started a program"
    return replace(capture, script=replace(capture.script, started=None))


def _only_ended(capture: Capture) -> bool:
    """Return True for a script that did nothing, and that nothing has kept from it."""
    script = capture.script
    return script is not None and script.happened == "nothing" and not (script.error and script.error[2])


def _texts(error: MemlintError) -> tuple[str, str, str]:
    return type(error).__name__, error.message, error.hint or ""


def _skipped(left_out: LeftOut, request: Request) -> report.Skipped:
    command = f"Type memlint check '{request.target}::{left_out.call}', which runs, with the sizes that you have."
    hint = command if left_out.call else left_out.hint
    return report.Skipped(path=request.path, name=left_out.name, reason=left_out.reason, hint=hint)
