"""Every example of every installed rule: the bad ones are found, the good ones are not."""

import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from memlint.commands.rule_cases import findings_in_text, request_of, verdict
from memlint.lint.diagnostics import BrokenRule, Diagnostic
from memlint.lint.processes import check_paths
from memlint.lint.registry import load_rules
from memlint.lint.rule import TraceRule

RULES = [rule for rule in load_rules().rules if not isinstance(rule, BrokenRule)]
CASES = [
    pytest.param(rule, kind, number, id=f"{rule.code}-{kind}-{number}")
    for rule in RULES
    for kind, cases in (("bad", rule.bad), ("good", rule.good))
    for number in range(len(cases))
]


def analysed(folder, rule, case):
    from tests.in_process import analyse

    folder.mkdir(exist_ok=True)
    result = analyse(request_of(rule, case, folder), thorough=case.detailed)
    assert [workload.error for workload in result.workloads] == [None]
    return result


@cache
def example(code, kind, number):
    """The result for a case of a rule, analysed once however many tests look at it."""
    (rule,) = [rule for rule in RULES if rule.code == code]
    with tempfile.TemporaryDirectory() as folder:
        return analysed(Path(folder), rule, getattr(rule, kind)[number])


@pytest.mark.parametrize(("rule", "kind", "number"), CASES)
def test_bad_cases_are_found_and_good_cases_are_not(tmp_path, rule, kind, number):
    case = getattr(rule, kind)[number]
    is_traced = isinstance(rule, TraceRule)
    findings = example(rule.code, kind, number).findings if is_traced else findings_in_text(rule, case)
    assert verdict(rule, case, kind, findings) == ""
    codes = {finding.code for finding in findings}
    if isinstance(rule, Diagnostic):  # the check of a file reads it, and chooses which rules it concerns
        file = tmp_path / "case.py"
        file.write_text(case.source)
        codes = {finding.code for finding in check_paths([file], RULES)} & {rule.code}
    assert codes == ({rule.code} if kind == "bad" else set())


@pytest.mark.parametrize(
    "code",
    [
        "MEM101",
        "MEM102",
        "MEM107",
        "MEM110",
        "MEM111",
        "MEM120",
        "MEM121",
        "MEM201",
        "MEM202",
        "MEM204",
        "MEM206",
        "MEM208",
        "MEM209",
        "MEM210",
        "MEM212",
        "MEM301",
        "MEM309",
        "MEM314",
        "MEM412",
        "MEM610",
        "MEM611",
        "MEM612",
        "MEM613",
        "MEM619",
        "MEM620",
        "MEM622",
    ],
)
def test_an_exact_saving_is_what_the_good_twin_takes_less_to_the_byte(code):
    bad, good = example(code, "bad", 0), example(code, "good", 0)
    (finding,) = bad.findings
    assert finding.confidence.startswith("exact")
    assert peak(bad) + finding.peak_change == peak(good)


@pytest.mark.parametrize(
    "code",
    [
        "MEM103",
        "MEM104",
        "MEM105",
        "MEM106",
        "MEM108",
        "MEM109",
        "MEM112",
        "MEM113",
        "MEM115",
        "MEM117",
        "MEM118",
        "MEM122",
        "MEM207",
        "MEM211",
        "MEM302",
        "MEM303",
        "MEM304",
        "MEM305",
        "MEM307",
        "MEM308",
        "MEM315",
    ],
)
def test_a_modelled_saving_is_near_what_the_good_twin_takes_less(code):
    bad, good = example(code, "bad", 0), example(code, "good", 0)
    (finding,) = bad.findings
    assert finding.confidence == "modelled"
    assert -finding.peak_change == pytest.approx(peak(bad) - peak(good), rel=0.1)


@pytest.mark.parametrize("code", ["MEM204", "MEM210"])
def test_of_a_large_trace_a_model_says_what_another_trace_would(monkeypatch, tmp_path, code):
    (rule,) = [rule for rule in RULES if rule.code == code]
    (exact,) = example(code, "bad", 0).findings
    monkeypatch.setattr(sys.modules[type(rule).__module__], "MANY_NODES", 0)
    (modelled,) = analysed(tmp_path, rule, rule.bad[0]).findings
    assert (exact.confidence, modelled.confidence) == ("exact-retrace", "modelled")
    assert modelled.peak_change == pytest.approx(exact.peak_change, rel=0.1)


def peak(result):
    return result.workloads[0].estimate.peak.requested.estimate


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_rule_has_a_bad_and_a_good_case(rule):
    assert rule.bad
    assert rule.good


def test_names_and_codes_are_distinct():
    assert len({rule.name for rule in RULES}) == len({rule.code for rule in RULES}) == len(RULES)
