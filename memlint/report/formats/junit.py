"""JUnit XML: a suite for each workload, and one for the findings of source rules."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from memlint.report.escaping import one_line, visible
from memlint.report.formats.problems import (
    NOT_ANALYSED,
    OVER_LIMIT,
    Problem,
    exceeded,
    failed,
    own_step,
    problem_of,
    target_file,
)
from memlint.report.model import Finding, Report, Workload
from memlint.report.workloads import findings_by_workload

_SOURCE = "source rules"


def render_junit(report: Report) -> str:
    """Return XML in ASCII. Findings above a note and exceeded limits are failures, failed analyses are errors."""
    root = ET.Element("testsuites", name="memlint")
    findings = findings_by_workload(report)
    for workload, own in zip(report.workloads, findings.of_workloads, strict=True):
        suite = ET.SubElement(root, "testsuite", name=one_line(workload.name))
        _add_limits(suite, workload)
        _add_findings(suite, own, target_file(workload))
    suite = ET.SubElement(root, "testsuite", name=_SOURCE)
    _add_findings(suite, findings.of_source, "")
    for skipped in report.skipped:
        case = _case(suite, skipped.path or "", skipped.name or skipped.path or "not analysed")
        ET.SubElement(case, "skipped", message=one_line(skipped.reason))
    if not len(suite):
        _case(suite, "", "no findings")  # some readers reject a suite without cases
    for suite in root:
        suite.set("tests", str(len(suite)))
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii") + "\n"


def _add_limits(suite: ET.Element, workload: Workload) -> None:
    """Add a case for the estimate of a Workload, and one for each limit."""
    place = target_file(workload)
    estimate = _case(suite, place, "estimate")
    if workload.error is not None:
        _complain(estimate, failed(workload, workload.error))
    if workload.script is not None and workload.script.stop is not None:
        _complain(estimate, own_step(workload, workload.script, workload.script.stop))
    for verdict in workload.verdicts:
        case = _case(suite, place, verdict.limit_name)
        if verdict.outcome == "does not fit":
            _complain(case, exceeded(workload, verdict))


def _add_findings(suite: ET.Element, findings: Iterable[Finding], file: str) -> None:
    for problem in (problem_of(finding, file) for finding in findings):
        line = f":{problem.line}" if problem.line is not None else ""
        _complain(_case(suite, problem.path, f"{problem.code} {problem.path}{line}"), problem)


def _case(suite: ET.Element, file: str, name: str) -> ET.Element:
    """Make a case of a file, or of the source rules without one."""
    place = {"classname": visible(file), "file": visible(file)} if file else {"classname": _SOURCE}
    return ET.SubElement(suite, "testcase", {"name": one_line(name), **place})


def _complain(case: ET.Element, problem: Problem) -> None:
    harmless = ("info", "note") if problem.code != OVER_LIMIT else ("warning",)
    if problem.severity in harmless:
        ET.SubElement(case, "system-out").text = "\n".join(problem.lines)
        return
    tag = "error" if problem.code == NOT_ANALYSED else "failure"
    complaint = ET.SubElement(case, tag, message=problem.message, type=problem.code)
    complaint.text = "\n".join((*problem.traceback, *problem.lines))
