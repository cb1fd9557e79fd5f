"""Running rules over files and over a traced Workload."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from memlint.lint.diagnostics import DIAGNOSTICS
from memlint.lint.processes import check_paths
from memlint.lint.rule import Confidence, Finding, Severity, SourceRule, TraceRule
from memlint.lint.runner import check_source, trace_findings
from memlint.lint.suppression import unsuppressed
from memlint.source.files import python_files
from memlint.source.text import Source

if TYPE_CHECKING:
    from memlint.lint.rule import Context


def found(path, line, code="ABC100"):
    return Finding(
        code=code,
        path=path,
        line=line,
        message="m",
        severity=Severity.WARNING,
        confidence=Confidence.HEURISTIC,
        nbytes=None,
        peak_change=None,
        fix="f",
    )


class EveryLine(SourceRule):
    code, name, summary, severity = "ABC100", "every-line", "Every line.", Severity.WARNING
    words = ()

    def check(self, source: Source):
        for line in range(len(source.lines), 0, -1):
            yield found(source.path, line)


class Failing(SourceRule):
    code, name, summary, severity = "ABC200", "failing", "Fails.", Severity.WARNING
    words = ()

    def check(self, source: Source):
        yield found(source.path, 1, "ABC200")
        raise KeyError("lost")


class Endless(SourceRule):
    code, name, summary, severity = "ABC300", "endless", "Recurses.", Severity.WARNING
    words = ()

    def check(self, source: Source):
        return self.check(source)


def test_findings_come_by_line():
    findings = check_source(Source.from_text("a = 1\nb = 2", "a.py"), [EveryLine()])
    assert [finding.line for finding in findings] == [1, 2]


def test_suppressed_findings_are_left_out():
    text = "a = 1\nb = 2  # memlint: ignore[ABC100] known"
    assert [f.line for f in check_source(Source.from_text(text, "a.py"), [EveryLine()])] == [1]


@pytest.mark.parametrize("broken", [Failing(), Endless()])
def test_a_rule_that_raises_is_one_finding_and_the_others_run(broken):
    findings = check_source(Source.from_text("a = 1", "a.py"), [broken, EveryLine()])
    (failure,) = [finding for finding in findings if finding.code == "MEM003"]
    assert broken.code in failure.message
    assert "KeyError: 'lost'" in failure.message or "RecursionError" in failure.message
    assert ("nested very deeply" in failure.fix) == ("RecursionError" in failure.message)
    assert [finding.line for finding in findings if finding.code == "ABC100"] == [1]


def test_what_a_rule_found_before_it_raised_is_kept():
    findings = check_source(Source.from_text("a = 1", "a.py"), [Failing()])
    assert sorted(finding.code for finding in findings) == ["ABC200", "MEM003"]


def test_an_unreadable_file_is_a_finding_and_the_others_are_checked(tmp_path):
    (tmp_path / "a.py").write_text("def f(:\n")
    (tmp_path / "b.py").write_text("x = 1")
    findings = check_paths([tmp_path], [*DIAGNOSTICS, EveryLine()])
    assert [(finding.code, finding.path[-4:]) for finding in findings] == [("MEM001", "a.py"), ("ABC100", "b.py")]


def test_a_file_that_does_not_exist_is_a_finding(tmp_path):
    (finding,) = check_paths([tmp_path / "gone.py"], DIAGNOSTICS)
    assert "No such file" in finding.message


def test_malformed_and_unknown_suppressions_are_findings():
    text = "a = 1  # memlint: ignore MEM107\nb = 2  # memlint: ignore[MEM170] x\nc = 3  # noqa: E501, MEM999\n"
    findings = check_source(Source.from_text(text, "a.py"), DIAGNOSTICS)
    assert [(finding.code, finding.line) for finding in findings] == [("MEM002", 1), ("MEM002", 2)]
    assert "MEM107" in findings[1].fix


def test_a_suppression_of_a_rule_that_was_not_selected_is_no_finding():
    source = Source.from_text("a = 1  # memlint: ignore[MEM107] known\n", "a.py")
    assert check_source(source, [*DIAGNOSTICS, EveryLine()]) == [found("a.py", 1), found("a.py", 2)]


def test_a_folder_that_nobody_may_read_is_passed_over(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "net.py").touch()
    closed.chmod(0)
    try:
        assert list(python_files([tmp_path])) == [tmp_path / "net.py"]
    finally:
        closed.chmod(0o700)


def test_directories_are_searched_without_hidden_and_installed_ones(tmp_path):
    for name in ("b.py", "a.py", "c.txt", ".git/d.py", "env/e.py", "pkg/f.pyi", "pkg/__pycache__/g.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    files = [str(file.relative_to(tmp_path)) for file in python_files([tmp_path, tmp_path / "a.py"])]
    assert files == ["a.py", "b.py", "pkg/f.pyi"]


class OfTrace(TraceRule):
    code, name, summary, severity = "ABC400", "of-trace", "Sees a Trace.", Severity.WARNING

    def check(self, context: Context):
        assert context.trace == "the trace"
        yield found(context.path, 1, "ABC400")
        yield found(context.path, 2, "ABC400")


class OfEstimate(TraceRule):
    code, name, summary, severity = "ABC500", "of-estimate", "Sees an Estimate.", Severity.WARNING

    def check(self, context: Context):
        assert context.estimate == "the estimate"
        raise ValueError("no bytes")


class OfTimeline(TraceRule):
    code, name, summary, severity = "ABC600", "of-timeline", "Sees a Timeline.", Severity.WARNING

    def check(self, context: Context):
        assert context.timeline == "the timeline"
        yield found("", 1, "ABC600")


def test_rules_of_traces_get_the_context_and_source_rules_are_left_out(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("a = 1  # memlint: ignore[ABC400] known\nb = 2\n")
    context = SimpleNamespace(
        trace="the trace",
        timeline="the timeline",
        estimate="the estimate",
        path=str(file),
        workload=SimpleNamespace(path=str(file)),
    )
    findings = unsuppressed(trace_findings(context, [OfTimeline(), OfEstimate(), OfTrace(), EveryLine(), *DIAGNOSTICS]))
    assert [(finding.code, finding.line) for finding in findings] == [("ABC400", 2), ("MEM003", 1), ("ABC600", 1)]
    assert "ABC500" in findings[1].message


class Remedy(TraceRule):
    code, name, summary, severity, rests_on = "ABC700", "remedy", "Knows one.", Severity.WARNING, "optimizer"
    peak_change = -20

    def check(self, context: Context):
        yield replace(found("", 1, self.code), peak_change=self.peak_change)


class BetterRemedy(Remedy):
    code, name, peak_change = "ABC800", "better-remedy", -30


@pytest.mark.parametrize(
    ("assumed", "expected"),
    [
        (frozenset(), [("ABC700", "warning"), ("ABC800", "warning")]),
        (frozenset({"optimizer"}), [("ABC800", "note")]),
    ],
)
def test_of_remedies_for_an_optimizer_that_nobody_named_the_best_is_a_note(assumed, expected):
    context = SimpleNamespace(assumed=assumed, workload=SimpleNamespace(path=""))
    findings = list(trace_findings(context, [Remedy(), BetterRemedy()]))
    assert [(finding.code, finding.severity) for finding in findings] == expected


class Stopped(TraceRule):
    code, name, summary, severity = "ABC750", "stopped", "Is stopped.", Severity.WARNING

    def check(self, context: Context):
        yield found("", 1, self.code)
        raise KeyboardInterrupt


def test_where_a_rule_is_stopped_all_earlier_findings_are_given_and_the_rules_left_are_named():
    context = SimpleNamespace(assumed=frozenset({"optimizer"}), workload=SimpleNamespace(path=""))
    left = []
    findings = trace_findings(context, [Remedy(), Stopped(), BetterRemedy()], left)
    finding = next(findings)
    assert (finding.code, finding.severity) == ("ABC700", "note")
    with pytest.raises(KeyboardInterrupt):
        next(findings)
    assert left == ["ABC750", "ABC800"]
    assert list(trace_findings(context, [Remedy()], left))
    assert left == []
