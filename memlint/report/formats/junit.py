"""JUnit XML: a suite for each workload, and one for the findings of source rules."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from memlint.report.finding_workloads import belonging
from memlint.report.formats.entries import NOT_ANALYSED, OVER_LIMIT, entry_of, exceeded, failed, target_file
from memlint.report.formats.visible import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlint.report.formats.entries import Entry
    from memlint.report.model import Report, Skipped, Workload

_SOURCE = "source rules"


def render_junit(report: Report) -> str:
    """XML in ASCII. Findings above a note and exceeded limits fail, what could not be analysed is an error."""
    root = ET.Element("testsuites", name="memlint")
    found = belonging(report)
    for workload, findings in zip(report.workloads, found.of_workloads, strict=True):
        suite = ET.SubElement(root, "testsuite", name=one_line(workload.name))
        _step(suite, workload)
        file = target_file(workload)
        _findings(suite, (entry_of(finding, file) for finding in findings))
    suite = ET.SubElement(root, "testsuite", name=_SOURCE)
    _findings(suite, (entry_of(finding, "") for finding in found.of_source))
    for skipped in report.skipped:
        _skip(suite, skipped)
    if not len(suite):
        _case(suite, "", "no findings")  # some readers take a suite without cases for a mistake
    for suite in root:
        _count(suite)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii") + "\n"


def _step(suite: ET.Element, workload: Workload) -> None:
    """A case for the estimate of a Workload, and one for each limit."""
    place = target_file(workload)
    estimate = _case(suite, place, "estimate")
    if workload.error is not None:
        _complain(estimate, failed(workload, workload.error))
    for verdict in (workload.verdict, workload.budget):
        if verdict is not None:
            case = _case(suite, place, verdict.limit_name)
            if verdict.outcome == "does not fit":
                _complain(case, exceeded(workload, verdict))


def _findings(suite: ET.Element, found: Iterable[Entry]) -> None:
    for entry in found:
        line = f":{entry.line}" if entry.line is not None else ""
        _complain(_case(suite, entry.path, f"{entry.code} {entry.path}{line}"), entry)


def _case(suite: ET.Element, file: str, name: str) -> ET.Element:
    """A case of a file, or without one of the source rules."""
    place = {"classname": visible(file), "file": visible(file)} if file else {"classname": _SOURCE}
    return ET.SubElement(suite, "testcase", {"name": one_line(name), **place})


def _complain(case: ET.Element, entry: Entry) -> None:
    told = ("info", "note") if entry.code != OVER_LIMIT else ("warning",)
    if entry.severity in told:  # and fails nothing
        ET.SubElement(case, "system-out").text = "\n".join(entry.lines)
        return
    tag = "error" if entry.code == NOT_ANALYSED else "failure"
    complaint = ET.SubElement(case, tag, message=entry.message, type=entry.code)
    complaint.text = "\n".join((*entry.traceback, *entry.lines))


def _skip(suite: ET.Element, skipped: Skipped) -> None:
    case = _case(suite, skipped.path or "", skipped.name or skipped.path or "not analysed")
    ET.SubElement(case, "skipped", message=one_line(skipped.reason))


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
