"""Documents for forges and review tools: GitLab, reviewdog, JUnit."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from memlint.report.escaping import one_line, visible
from memlint.report.formats.gitlab import render_gitlab
from memlint.report.formats.junit import render_junit
from memlint.report.formats.rdjson import render_rdjson
from memlint.report.formats.sarif import render_sarif
from memlint.report.model import Report
from tests.report.formats.samples import HOSTILE, hostile
from tests.report.sample import REPORT


def report_of(*findings) -> Report:
    return Report(tool="memlint 0", findings=list(findings))


def gitlab_fingerprints(report: Report) -> list[str]:
    return [issue["fingerprint"] for issue in json.loads(render_gitlab(report))]


def sarif_fingerprints(report: Report) -> list[str]:
    return [
        result["partialFingerprints"]["memlint/v1"] for result in json.loads(render_sarif(report))["runs"][0]["results"]
    ]


@pytest.mark.parametrize("report", [REPORT, hostile()], ids=["sample", "hostile"])
def test_gitlab_issues_have_the_documented_keys(report):
    issues = json.loads(render_gitlab(report))
    assert len(issues) == 4
    for issue in issues:
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert isinstance(issue["location"]["lines"]["begin"], int)
        assert not issue["location"]["path"].startswith("./")
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)


@pytest.mark.parametrize("fingerprints", [gitlab_fingerprints, sarif_fingerprints])
class TestFingerprints:
    finding = REPORT.findings[0].model_copy(update={"message": "12 layers keep 1.12 GiB of weights"})

    def test_they_stay_when_lines_move_and_sizes_change(self, fingerprints):
        update = {"line": 99, "column": 1, "message": "24 layers keep 980.5 MiB of weights", "peak_change": -1}
        assert fingerprints(report_of(self.finding)) == fingerprints(report_of(self.finding.model_copy(update=update)))

    @pytest.mark.parametrize("update", [{"code": "MEM108"}, {"path": "b.py"}, {"message": "x"}, {"workload": "B"}])
    def test_they_differ_for_another_complaint(self, fingerprints, update):
        assert fingerprints(report_of(self.finding)) != fingerprints(report_of(self.finding.model_copy(update=update)))

    def test_a_second_one_of_the_same_is_told_apart_and_leaves_the_first_alone(self, fingerprints):
        both = fingerprints(report_of(self.finding, self.finding.model_copy(update={"line": 99})))
        assert len(set(both)) == 2
        assert both[:1] == fingerprints(report_of(self.finding))


def test_reviewdog_gets_place_severity_and_code():
    result = json.loads(render_rdjson(REPORT))
    assert result["source"] == {"name": "memlint"}
    assert [each["severity"] for each in result["diagnostics"]] == ["ERROR", "ERROR", "WARNING", "INFO"]
    finding = result["diagnostics"][2]
    assert finding["code"] == {"value": "MEM107"}
    assert finding["location"] == {"path": "models/gpt2.py", "range": {"start": {"line": 61, "column": 15}}}
    assert "range" not in result["diagnostics"][1]["location"]


def test_reviewdog_gets_hostile_strings_as_strings():
    finding = json.loads(render_rdjson(hostile()))["diagnostics"][2]
    assert finding["location"]["path"] == HOSTILE
    assert "\0" not in finding["message"]


def suites(report: Report) -> dict[str, ET.Element]:
    return {suite.get("name"): suite for suite in ET.fromstring(render_junit(report))}


def test_junit_has_a_suite_for_each_workload_and_one_for_the_source():
    found = suites(REPORT)
    assert list(found) == ["GPT2", "models/unet.py", "source rules"]
    assert [case.get("name") for case in found["GPT2"]] == [
        "estimate",
        "NVIDIA A100 80GB",
        "budget",
        "MEM107 models/gpt2.py:61",
    ]
    assert [len(case) for case in found["GPT2"]] == [0, 0, 1, 1]
    assert found["models/unet.py"].find("testcase/error").get("type") == "not-analysed"
    assert [case[0].tag for case in found["source rules"]] == ["system-out", "skipped", "skipped", "skipped"]


def test_junit_counts_what_is_there():
    for suite in suites(REPORT).values():
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(attribute)) == len(suite.findall(f"testcase/{tag}"))
        assert int(suite.get("tests")) == len(suite.findall("testcase"))


def test_a_limit_at_level_warning_fails_no_case():
    budget = REPORT.workloads[0].budget.model_copy(update={"level": "warning"})
    workload = REPORT.workloads[0].model_copy(update={"budget": budget})
    case = suites(Report(tool="memlint 0", workloads=[workload]))["GPT2"][2]
    assert [each.tag for each in case] == ["system-out"]


def test_workloads_of_one_name_share_no_complaint():
    again = REPORT.workloads[0].model_copy(update={"target": "other.py::GPT2", "budget": None})
    report = REPORT.model_copy(update={"workloads": [REPORT.workloads[0], again]})
    assert render_junit(report).count("<failure") == 2


def test_nothing_to_say_is_one_case_that_passed():
    (suite,) = suites(Report(tool="memlint 0")).values()
    assert [len(case) for case in suite] == [0]


def test_junit_shows_every_string_on_one_line_and_as_an_escape_what_xml_cannot_write():
    root = ET.fromstring(render_junit(hostile()))
    assert [suite.get("name") for suite in root][:2] == [one_line(HOSTILE)] * 2
    files = {visible(path) for path in (HOSTILE, HOSTILE.partition("::")[0])}
    assert {case.get("file") for case in root.iter("testcase")} == files
    texts = [value for element in root.iter() for value in element.attrib.values()]
    assert all(text.isprintable() for text in texts)
    assert "\\x1b[31m" in root.find(".//skipped").get("message")
    assert "<script>alert(1)</script>" in root.find(".//failure").get("message")
