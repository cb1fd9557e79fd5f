from __future__ import annotations

from memlint.report.workloads import findings_by_workload, merged, of_workload
from tests.compare.samples import finding, report, workload


def at(position: int | None, message: str, name: str = "gpt"):
    return finding(message, workload=name).model_copy(update={"workload_position": position})


def told(found):
    return [[each.message for each in findings] for findings in (*found.of_workloads, found.of_source)]


def test_findings_belong_to_the_workload_at_their_position_though_another_has_its_name():
    both = report(workload("gpt"), workload("gpt"), findings=[at(1, "b"), at(0, "a"), finding("source")])
    assert told(findings_by_workload(both)) == [["a"], ["b"], ["source"]]


def test_without_a_position_or_with_a_wrong_one_the_name_decides():
    findings = [at(None, "a"), at(7, "b"), at(0, "c", "unet"), at(None, "d", "gone")]
    assert told(findings_by_workload(report(workload("gpt"), workload("unet"), findings=findings))) == [
        ["a", "b"],
        ["c"],
        ["d"],
    ]


def test_merged_reports_keep_apart_what_is_said_of_workloads_of_one_name():
    reports = [report(workload("gpt", dtype=name), findings=[at(0, name), finding("loop")]) for name in ("a", "b")]
    assert told(findings_by_workload(merged(reports))) == [["a"], ["b"], ["loop"]]


def test_one_workload_of_several_keeps_its_findings():
    several = report(
        workload("a"), workload("gpt"), workload("c"), workload("gpt"),
        findings=[at(0, "of a", "a"), at(1, "first"), at(3, "second"), finding("loop")],
    )  # fmt: skip
    assert told(findings_by_workload(of_workload(several, "gpt"))) == [["first"], ["second"], ["loop"]]
