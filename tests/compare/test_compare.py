from __future__ import annotations

import pytest

from memlint.compare.changes import compare
from memlint.compare.comparison import Comparison
from memlint.compare.headline import headline
from memlint.report.model import Budget, Interval, Settings
from memlint.report.workloads import merged
from tests.compare.samples import GIB, MIB, exactly, failed, finding, lost, report, sweep, workload


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


def test_workloads_of_one_name_keep_the_budgets_of_their_projects():
    a = workload("lin", 8 * GIB, target="a/m.py::lin", allowed=Budget(max=GIB))
    b = workload("lin", 8 * GIB, target="b/m.py::lin", allowed=Budget(max=9 * GIB))
    told = compare(report(a, b), report(a, b))
    assert [change.budget[0].outcome for change in told.workloads] == ["exceeded", "kept"]
    assert told.status == 1
    (first, second) = compare(report(b), merged([report(b), report(a, torch="2.12.0")])).workloads
    assert [change.budget[0].outcome for change in (first, second)] == ["kept", "exceeded"]


def test_a_budget_that_only_base_has_is_no_more():
    assert only(workload(allowed=Budget(max=GIB)), workload()).budget == []


def test_the_host_is_held_against_what_tensors_ask_for():
    change = only(workload(gpu="cpu"), workload(gpu="cpu", device=9 * GIB))
    assert change.measure == "requested"


def test_head_that_cannot_be_analysed_is_a_failure_and_base_is_none():
    assert compare(report(workload()), report(failed())).status == 2
    assert compare(report(failed()), report(workload())).status == 0


def test_a_target_lost_in_base_is_why_its_workloads_are_not_there():
    told = compare(report(lost("gpt.py"), workload("unet")), report(workload("gpt"), workload("mlp"), workload("unet")))
    states = {change.name: change.state for change in told.workloads}
    assert states == {"gpt": "recovered", "mlp": "new", "unet": "unchanged"}
    assert told.workloads[0].base.error == "cannot be imported: ImportError: no kernels"
    assert told.status == 0


@pytest.mark.parametrize("target", ["net.py", "net.py::Net"])
def test_a_target_lost_in_head_is_a_failure_of_each_workload_that_was_in_it(target):
    a, b = workload("a", target="net.py::Net"), workload("b", target="net.py::Net", gpu="cpu")
    told = compare(report(a, b), report(lost(target)))
    assert [(each.name, each.target, each.state, each.measure) for each in told.workloads] == [
        ("a", "net.py::Net", "failed", "device"),
        ("b", "net.py::Net", "failed", "requested"),
    ]
    assert {each.head.error for each in told.workloads} == {"cannot be imported: ImportError: no kernels"}
    assert told.status == 2


def test_a_lost_target_without_known_workloads_is_told_by_itself():
    assert [(each.name, each.state) for each in compare(report(), report(lost())).workloads] == [("gpt.py", "failed")]
    assert [(each.name, each.state) for each in compare(report(lost()), report()).workloads] == [("gpt.py", "removed")]
    assert [(each.name, each.state) for each in compare(report(lost()), report(lost())).workloads] == [
        ("gpt.py", "failed")
    ]


def test_a_file_that_is_no_python_in_head_is_a_failure_of_its_workloads():
    """A directory is searched for workloads without it: its finding is all that says so."""
    no_python = finding("The file is not valid Python: invalid syntax.", path="gpt.py", code="MEM001")
    told = compare(report(workload("gpt")), report(findings=[no_python]))
    assert [(each.name, each.state, each.head.error) for each in told.workloads] == [
        ("gpt", "failed", "The file is not valid Python: invalid syntax.")
    ]
    assert told.findings_new == [no_python]
    assert told.status == 2


@pytest.mark.parametrize("gone", [failed(), lost()])
def test_what_one_side_could_not_analyse_has_no_findings_that_are_new_or_fixed(gone):
    known = report(
        workload("gpt"),
        findings=[finding("scores in memory", workload="gpt"), finding("a loop", path="gpt.py", code="MEM404")],
    )
    same = [finding("a loop", path="gpt.py", code="MEM404")] if gone.name != gone.target else []
    for told in (compare(known, report(gone, findings=same)), compare(report(gone, findings=same), known)):
        assert not told.findings_new
        assert not told.findings_fixed
        assert not told.workloads[0].findings_new
        assert not told.workloads[0].findings_fixed


def test_findings_of_a_file_that_fails_on_both_sides_are_compared():
    told = compare(report(lost()), report(lost(), findings=[finding("a loop", path="gpt.py", code="MEM404")]))
    assert [each.code for each in told.findings_new] == ["MEM404"]


def test_that_nothing_was_run_is_said_and_not_that_nothing_is_declared():
    quiet = report().model_copy(update={"settings": Settings(no_exec=True)})
    assert compare(quiet, quiet).notes == ["no workload of base or head was run, because of --no-exec"]
    assert compare(quiet, report(workload())).notes == ["no workload of base was run, because of --no-exec"]
    assert compare(report(), report()).notes == [
        "neither side has a workload: declare one, or name a file with models in it"
    ]


def test_a_comparison_survives_json():
    told = compare(
        report(workload(sweeps=[sweep({8: GIB}, 69)], categories={"activation": GIB})),
        report(
            workload(device=BETWEEN, categories={"activation": 2 * GIB}), gpt=Budget(max=GIB, max_increase_percent=1)
        ),
    )
    assert Comparison.model_validate_json(told.model_dump_json()) == told


NOT_IN_BASE = "1 workload not analysed in base"
UNCHANGED = "{}, peak memory unchanged in 1 workload"


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
        ([failed("a")], [workload("a")], "1 workload not analysed in base"),
        ([workload("a"), workload("b")], [lost("a.py"), workload("b")], UNCHANGED.format("1 workload not analysed")),
        ([lost("a.py"), workload("b")], [workload("a"), workload("b")], UNCHANGED.format(NOT_IN_BASE)),
        ([], [], "no workloads to compare"),
        ([workload("a")], [], "1 workload removed"),
        ([], [workload("a"), workload("b")], "2 new workloads"),
        ([workload("a")], [workload("b")], "1 new workload, 1 workload removed"),
        (
            [workload("a"), workload("b")],
            [workload("a", 9 * GIB), workload("c")],
            "peak GPU memory +1.00 GiB in 1 of 2 workloads, 1 new workload, 1 workload removed",
        ),
    ],
)
def test_the_headline_has_the_numbers(base, head, said):
    assert headline(compare(report(*base), report(*head))) == said


def test_the_headline_begins_with_the_budget():
    told = compare(report(workload()), report(workload(device=9 * GIB), gpt=Budget(max_increase=MIB)))
    assert headline(told) == "budget exceeded in 1 of 1 workload, peak GPU memory +1.00 GiB in 1 of 1 workload"
    assert headline(compare(None, report(workload()))) == "1 workload, nothing to compare with"
