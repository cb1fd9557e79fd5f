from __future__ import annotations

import pytest

from memlint.compare.changes import compare
from memlint.compare.terminal import render_text
from memlint.report.model import Budget
from memlint.report.text_style import TextStyle
from tests.compare.samples import GIB, MIB, buffer, failed, finding, line, lost, report, sweep, workload


def text(base, head) -> str:
    return render_text(compare(base, head), TextStyle(verbosity=1))


GPT = workload("gpt", 8 * GIB, sweeps=[sweep({8: GIB}, 69)])
REASON = "cannot be imported: ImportError: no kernels\nand more of it"


@pytest.mark.parametrize("gone", [failed("gpt", REASON), lost("gpt.py", REASON)])
def test_what_base_could_not_analyse_says_why_and_is_not_new(gone):
    head = report(GPT, findings=[finding("scores", workload="gpt")], gpt=Budget(max_increase=MIB))
    assert text(report(gone), head).splitlines() == [
        "base -> head: 1 workload not analysed in base",
        "",
        "gpt (gpt.py::build)  not analysed in base, 8.00 GiB",
        "  train step, batch 8, bf16-amp, adamw, a100-80gb",
        "  error in base: cannot be imported: ImportError: no kernels and more of it",
        "  budget: max-increase 1.00 MiB is unknown without a peak in base",
        "",
        "  Largest batch that fits",
        "  bf16-amp  NVIDIA A100 80 GB  69 (head)",
    ]


@pytest.mark.parametrize("gone", [failed("gpt", "no kernels"), lost("gpt.py", "no kernels")])
def test_what_head_could_not_analyse_is_not_removed_and_nothing_of_it_is_fixed(gone):
    base = report(GPT, findings=[finding("scores", workload="gpt")])
    assert text(base, report(gone)).splitlines() == [
        "base -> head: 1 workload not analysed",
        "",
        "gpt (gpt.py::build)  not analysed, 8.00 GiB in base",
        "  train step, batch 8, bf16-amp, adamw, a100-80gb",
        "  error: no kernels",
        "",
        "  Largest batch that fits",
        "  bf16-amp  NVIDIA A100 80 GB  69 (base)",
    ]


def test_no_string_of_a_report_is_a_command_in_a_log():
    """`::` at the beginning of a line, and `##[` anywhere, are commands for the runner of GitHub's workflows."""
    hostile = "x\n::error::no\n##[error]no\x1b[31m"
    head = report(failed(hostile, hostile), findings=[finding(hostile, workload=hostile)])
    lines = text(report(workload("a")), head).splitlines()
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line or "\x1b" in line]
    assert r"\x1b[31m" in "".join(lines)


def test_a_target_of_which_nothing_is_known_has_no_empty_line_for_its_step():
    assert text(report(), report(lost(message="no kernels"))).splitlines()[2:] == [
        "gpt.py  not analysed",
        "  error: no kernels",
    ]


def test_what_is_new_or_removed_fits_nothing_worse_or_better_than_before():
    told = text(report(workload("a", sweeps=[sweep({8: GIB}, 69)])), report(workload("b", sweeps=[sweep({}, 36)])))
    assert "  bf16-amp  NVIDIA A100 80 GB  36 (new)" in told
    assert "  bf16-amp  NVIDIA A100 80 GB  69 (removed)" in told


def test_where_no_batch_fits_any_more_both_sides_are_told():
    told = text(report(workload(sweeps=[sweep({8: GIB}, 69)])), report(workload(sweeps=[sweep({8: GIB}, None)])))
    assert "  bf16-amp  NVIDIA A100 80 GB  69 -> none known" in told


def test_bytes_of_no_line_say_so():
    nowhere = {"path": None, "line": None}
    before = workload(
        lines=[line(GIB, 1, "").model_copy(update=nowhere)],
        buffers=[buffer(GIB, 1, "up").model_copy(update=nowhere)],
    )
    told = text(report(before), report(workload())).splitlines()
    assert "  -1.00 GiB  no line in base    h.*" in told
    assert "  -1.00 GiB  1 -> 0 x  float32[268435456]  activation  no line  aten.mm.default" in told


@pytest.mark.parametrize(
    ("nbytes", "facts", "title"),
    [
        (4 * GIB, {}, "Fixed: 1 finding"),
        (24 * GIB, {}, "No longer reported, maybe because the peak changed: 1 finding"),
        (4 * GIB, {"batch": 2}, "No longer reported, maybe because the peak changed: 1 finding"),
    ],
    ids=["the peak fell", "the peak tripled", "another batch"],
)
def test_a_finding_that_a_higher_peak_hides_is_not_fixed(nbytes, facts, title):
    base = report(GPT, findings=[finding("scores", workload="gpt")])
    lines = text(base, report(workload("gpt", nbytes, **facts))).splitlines()
    assert [line.strip() for line in lines if "1 finding" in line] == [title]
