"""SARIF as the standard and GitHub want it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest

from memlint.lint.registry import load_rules
from memlint.lint.severity import Confidence
from memlint.report.formats.sarif import render_sarif
from memlint.report.model import Report
from tests.report.formats.samples import HOSTILE, Sample, hostile
from tests.report.sample import REPORT

SCHEMA = "MEMLINT_SARIF_SCHEMA"


def run_of(report: Report, rules=()) -> dict:
    return json.loads(render_sarif(report, rules))["runs"][0]


@pytest.mark.skipif(SCHEMA not in os.environ, reason=f"{SCHEMA} does not name a copy of sarif-schema-2.1.0.json")
@pytest.mark.parametrize("report", [REPORT, hostile(), hostile(""), Report(tool="memlint 0")])
def test_the_schema_of_the_standard_is_kept_to(report):
    schema = json.loads(Path(os.environ[SCHEMA]).read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(schema).validate(json.loads(render_sarif(report, [Sample()])))


@pytest.mark.parametrize("report", [REPORT, hostile()], ids=["sample", "hostile"])
def test_everything_that_github_requires_is_there(report):
    run = run_of(report, [Sample()])
    rules = run["tool"]["driver"]["rules"]
    for rule in rules:
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
        assert rule["properties"]["precision"] in ("very-high", "high", "medium", "low")
        assert rule["properties"]["problem.severity"] in ("error", "warning", "recommendation")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert result["message"]["text"]


def test_a_rule_is_explained_by_its_page():
    rule = next(rule for rule in run_of(REPORT, [Sample()])["tool"]["driver"]["rules"] if rule["id"] == "MEM107")
    assert rule["name"] == "sample"
    assert rule["shortDescription"]["text"] == "Weights are kept."
    assert rule["fullDescription"]["text"] == "Looks for weights that are kept."
    assert rule["help"]["markdown"].startswith("# MEM107: sample\n")
    assert rule["helpUri"] == "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management"
    assert rule["defaultConfiguration"] == {"level": "warning"}


def test_every_installed_rule_can_be_explained():
    rules = load_rules().rules
    findings = [REPORT.findings[0].model_copy(update={"code": rule.code}) for rule in rules]
    explained = run_of(Report(tool="memlint 0", findings=findings), rules)["tool"]["driver"]["rules"]
    assert [rule["name"] for rule in explained] == [rule.name for rule in rules]
    assert all(urlsplit(rule["helpUri"]).scheme == "https" for rule in explained if "helpUri" in rule)
    assert all(rule["fullDescription"]["text"] for rule in explained)


def test_the_least_sure_finding_decides_the_precision_of_its_rule():
    findings = [
        REPORT.findings[0].model_copy(update={"confidence": name})
        for name in (Confidence.EXACT_RETRACE, Confidence.HEURISTIC)
    ]
    (rule,) = run_of(Report(tool="memlint 0", findings=findings))["tool"]["driver"]["rules"]
    assert rule["properties"]["precision"] == "medium"


def test_savings_are_properties_of_results():
    result = next(result for result in run_of(REPORT)["results"] if result["ruleId"] == "MEM107")
    assert result["properties"] == {
        "confidence": "exact-retrace",
        "nbytes": 1152 * 2**20,
        "peakChange": -1024 * 2**20,
        "workload": "GPT2",
    }


def test_what_could_not_be_analysed_is_notified_and_no_result():
    run = run_of(REPORT)
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [each["level"] for each in invocation["toolExecutionNotifications"]] == ["error", "note", "note", "note"]
    assert {result["ruleId"] for result in run["results"]} == {"over-limit", "MEM107", "MEM402"}
    clean = REPORT.model_copy(update={"workloads": REPORT.workloads[:1]})
    assert run_of(clean)["invocations"][0]["executionSuccessful"] is True


@pytest.mark.parametrize(
    "path", ["a b/c.py", "100%.py", "::error::x.py", "http://x", HOSTILE, "../up.py", "mod\u00e8le.py"]
)
def test_a_path_is_a_relative_address_that_reads_back(path):
    finding = REPORT.findings[1].model_copy(update={"path": path})
    (result,) = run_of(Report(tool="memlint 0", findings=[finding]))["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    parts = urlsplit(artifact["uri"])
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("", "", "", "")
    assert unquote(artifact["uri"]) == path
    assert artifact["uriBaseId"] == "%SRCROOT%"


def test_a_path_outside_of_the_directory_is_an_absolute_address():
    finding = REPORT.findings[1].model_copy(update={"path": "/srv/a b.py"})
    (result,) = run_of(Report(tool="memlint 0", findings=[finding]))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///srv/a%20b.py"}


def test_no_message_makes_a_link():
    texts = [result["message"]["text"] for result in run_of(hostile())["results"]]
    texts += [each["message"]["text"] for each in run_of(hostile())["invocations"][0]["toolExecutionNotifications"]]
    assert all("](" not in text and "http://x" in text for text in texts)


def test_its_address_is_that_of_the_project_in_the_readme():
    home = json.loads(render_sarif(REPORT))["runs"][0]["tool"]["driver"]["informationUri"]
    assert f"git clone {home} " in (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
