from __future__ import annotations

import pytest

from memlint.compare.compare import compare
from memlint.compare.model import Comparison
from memlint.compare.wording import headline
from memlint.report.model import Budget, Interval
from tests.compare.samples import GIB, MIB, exactly, failed, finding, report, sweep, workload


def only(base, head, **kinds):
    (change,) = compare(base and report(base), report(head, **kinds)).workloads
    return change


@pytest.mark.parametrize(
    ("base", "head", "state"),
    [
        (workload(), workload(), "unchanged"),
        (workload(device=8 * GIB), workload(device=9 * GIB), "grown"),
        (workload(device=8 * GIB), workload(device=7 * GIB), "shrunk"),
        (workload(categories={"activation": 2}), workload(categories={"parameter": 2}), "changed"),
        (workload(sweeps=[sweep({8: GIB}, 69)]), workload(sweeps=[sweep({8: GIB}, 68)]), "changed"),
        (workload(dtype="float32"), workload(dtype="bfloat16"), "changed"),
        (None, workload(), "new"),
        (workload(), failed(), "failed"),
        (failed(), failed(), "failed"),
        (failed(), workload(), "recovered"),
    ],
)
def test_a_workload_is_in_one_state(base, head, state):
    assert only(base, head).state == state


def test_a_workload_that_is_gone_is_told_last():
    told = compare(report(workload("a"), workload("b")), report(workload("c"), workload("a"))).workloads
    assert [(change.name, change.state) for change in told] == [("c", "new"), ("a", "unchanged"), ("b", "removed")]


def test_workloads_of_one_name_are_told_apart_by_what_they_are():
    base = report(workload(batch=8, device=GIB), workload(batch=16, device=2 * GIB))
    head = report(workload(batch=16, device=2 * GIB), workload(batch=8, device=3 * GIB))
    assert [(change.head.batch, change.change) for change in compare(base, head).workloads] == [(16, 0), (8, 2 * GIB)]


def test_another_batch_size_is_said_because_the_peaks_are_of_different_steps():
    change = only(workload(batch=8), workload(batch=16, device=9 * GIB))
    assert change.notes == ["batch 8 in base, 16 in head"]


def test_another_torch_is_said():
    told = compare(report(workload(), torch="2.12.0"), report(workload(), torch="2.13.0"))
    assert any("2.12.0" in note and "2.13.0" in note for note in told.notes)


def test_findings_that_moved_or_whose_numbers_changed_are_neither_new_nor_fixed():
    base = report(workload(), findings=[finding("12 blocks keep 2.55 GiB", 10, workload="gpt"), finding("a loop")])
    head = report(workload(), findings=[finding("13 blocks keep 2.75 GiB", 90, workload="gpt"), finding("a loop", 77)])
    told = compare(base, head)
    assert not told.findings_new
    assert not told.findings_fixed
    assert told.workloads[0].state == "unchanged"


def test_findings_are_new_or_fixed_where_they_belong():
    base = report(workload(), findings=[finding("old", workload="gpt"), finding("loop", code="MEM404")])
    head = report(workload(), findings=[finding("scores in memory", workload="gpt"), finding("sum", code="MEM402")])
    told = compare(base, head)
    (change,) = told.workloads
    assert [each.message for each in change.findings_new] == ["scores in memory"]
    assert [each.message for each in change.findings_fixed] == ["old"]
    assert [each.code for each in told.findings_new] == ["MEM402"]
    assert [each.code for each in told.findings_fixed] == ["MEM404"]
    assert change.state == "changed"


def test_one_finding_more_of_a_kind_is_new():
    base = report(findings=[finding("a loop", 10)])
    head = report(findings=[finding("a loop", 10), finding("a loop", 50)])
    assert [each.line for each in compare(base, head).findings_new] == [50]


def test_the_largest_batches_and_the_peaks_by_batch_stand_side_by_side():
    before = workload(sweeps=[sweep({8: GIB, 16: 2 * GIB}, 69), sweep({8: GIB}, 99, "bfloat16")])
    after = workload(sweeps=[sweep({16: 4 * GIB, 32: 8 * GIB}, 36), sweep({8: GIB}, None, "bfloat16")])
    change = only(before, after)
    assert [(each.dtype, each.base, each.head) for each in change.largest] == [
        ("bf16-amp", 69, 36),
        ("bfloat16", 99, None),
    ]
    told = [(each.batch, each.base, each.head) for each in change.batches]
    assert told == [(8, GIB, None), (16, 2 * GIB, 4 * GIB), (32, None, 8 * GIB)]


BETWEEN = Interval(low=10 * GIB, estimate=11 * GIB, high=12 * GIB)


@pytest.mark.parametrize(
    ("budget", "base", "head", "outcome", "status"),
    [
        (Budget(max=12 * GIB), None, BETWEEN, "kept", 0),
        (Budget(max=12 * GIB - 1), None, BETWEEN, "uncertain", 0),
        (Budget(max=10 * GIB), None, BETWEEN, "uncertain", 0),
        (Budget(max=10 * GIB - 1), None, BETWEEN, "exceeded", 1),
        (Budget(max=10 * GIB - 1, level="warning"), None, BETWEEN, "exceeded", 0),
        (Budget(max_increase=MIB), exactly(GIB), exactly(GIB + MIB), "kept", 0),
        (Budget(max_increase=MIB), exactly(GIB), exactly(GIB + MIB + 1), "exceeded", 1),
        (Budget(max_increase=MIB), exactly(GIB), exactly(MIB), "kept", 0),
        (Budget(max_increase=MIB), None, exactly(GIB), "unknown", 0),
        (Budget(max_increase_percent=5), exactly(100 * MIB), exactly(105 * MIB), "kept", 0),
        (Budget(max_increase_percent=5), exactly(100 * MIB), exactly(105 * MIB + 1), "exceeded", 1),
        (Budget(max_increase_percent=0), exactly(100 * MIB), exactly(100 * MIB), "kept", 0),
        (Budget(max_increase_percent=5), exactly(0), exactly(GIB), "exceeded", 1),
    ],
)
def test_a_budget_decides_the_exit_status(budget, base, head, outcome, status):
    before = None if base is None else report(workload(device=base))
    told = compare(before, report(workload(device=head), gpt=budget))
    assert [check.outcome for check in told.workloads[0].budget] == [outcome]
    assert told.status == status


def test_a_budget_of_its_own_goes_before_that_for_all():
    told = compare(None, report(workload("a"), workload("b"), any=Budget(max=GIB), b=Budget(max=80 * GIB)))
    assert [change.budget[0].outcome for change in told.workloads] == ["exceeded", "kept"]


def test_the_host_is_held_against_what_tensors_ask_for():
    change = only(workload(gpu="cpu"), workload(gpu="cpu", device=9 * GIB))
    assert change.measure == "requested"


def test_head_that_cannot_be_analysed_is_a_failure_and_base_is_none():
    assert compare(report(workload()), report(failed())).status == 2
    assert compare(report(failed()), report(workload())).status == 0


def test_a_comparison_survives_json():
    told = compare(
        report(workload(sweeps=[sweep({8: GIB}, 69)], categories={"activation": GIB})),
        report(
            workload(device=BETWEEN, categories={"activation": 2 * GIB}), gpt=Budget(max=GIB, max_increase_percent=1)
        ),
    )
    assert Comparison.model_validate_json(told.model_dump_json()) == told


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        (
            [workload("a"), workload("b")],
            [workload("a", 9 * GIB), workload("b")],
            "peak GPU memory +1.00 GiB in 1 of 2 workloads",
        ),
        (
            [workload("a"), workload("b")],
            [workload("a", 7 * GIB), workload("b", 8 * GIB + MIB)],
            "peak GPU memory up to -1.00 GiB in 2 of 2 workloads",
        ),
        ([workload("a")], [workload("a")], "peak memory unchanged in 1 workload"),
        ([workload("a")], [failed("a")], "1 workload not analysed"),
        ([], [], "no workloads"),
        ([workload("a")], [], "no workloads"),
    ],
)
def test_the_headline_has_the_numbers(base, head, said):
    assert headline(compare(report(*base), report(*head))) == said


def test_the_headline_begins_with_the_budget():
    told = compare(report(workload()), report(workload(device=9 * GIB), gpt=Budget(max_increase=MIB)))
    assert headline(told) == "budget exceeded in 1 of 1 workload, peak GPU memory +1.00 GiB in 1 of 1 workload"
    assert headline(compare(None, report(workload()))) == "1 workload, nothing to compare with"
