"""Predictions beside measurements, and what many of them come to."""

from __future__ import annotations

import pytest

from memlint.commands.validate.measuring import Outcome
from memlint.commands.validate.validate import Validation
from memlint.report.text_style import TextStyle
from memlint.validate.comparison import Cap, Comparison, Prediction
from memlint.validate.measurement import catalogue_name
from memlint.validate.scoreboard import scoreboard, worse
from memlint.validate.validation_text import render_accuracy, render_comparison, render_scoreboard
from tests.validate.samples import comparison, measurement, prediction


def test_errors_are_shares_of_what_was_measured() -> None:
    (row,) = comparison(1000, 990).peaks()
    assert (row.name, row.difference, row.error) == ("requested", -10, -0.01)


def test_a_gpu_is_compared_by_every_peak_both_have() -> None:
    rows = comparison(1000, 1000, gpu=True).peaks()
    assert [row.name for row in rows] == ["requested", "allocated", "reserved"]


@pytest.mark.parametrize(("predicted", "low"), [(990, False), (989, True), (2000, False)])
def test_an_estimate_is_too_low_below_99_percent(predicted: int, low: bool) -> None:
    assert comparison(1000, predicted).is_too_low is low


def test_only_phases_and_categories_both_know_are_compared() -> None:
    compared = comparison(1000, 1000)
    assert [row.name for row in compared.phases()] == ["forward", "backward"]
    assert [row.name for row in compared.categories()] == ["parameter"]


def test_the_reason_names_the_widest_phase_and_both_operators() -> None:
    other = Comparison(measurement=measurement(), prediction=prediction(requested=2000, peak_op="aten.add.Tensor"))
    assert other.reason() == "backward +1000 B; measured peak at aten::mm, predicted at aten.add.Tensor"
    assert comparison(1000, 1000).reason() == "peak at aten.mm.default"


def test_the_text_says_each_number_and_its_error() -> None:
    text = render_comparison(comparison(2**20, 2**20 + 2**18), TextStyle())
    assert "net (net.py::Net)" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["requested", "1.25", "MiB", "1.00", "MiB", "+25.00%"] in rows
    assert ["parameter", "100", "B", "100", "B", "exact"] in rows
    capped = comparison(100, 100).model_copy(update={"cap": Cap(limit=2**21, held=False)})
    assert "out of memory" in render_comparison(capped, TextStyle())


def status(outcomes: list[Outcome]) -> int:
    compared = [outcome.comparison for outcome in outcomes if outcome.comparison is not None]
    return Validation(compared, outcomes).status


def test_the_status_says_the_worst_that_happened() -> None:
    good, low = comparison(1000, 1000), comparison(1000, 900)
    capped = good.model_copy(update={"cap": Cap(limit=1, held=False)})
    assert status([Outcome("a", comparison=good), Outcome("b", skipped="too big")]) == 0
    assert status([Outcome("a", comparison=low)]) == 1
    assert status([Outcome("a", comparison=capped)]) == 1
    assert status([Outcome("a", comparison=low), Outcome("b", error=ValueError())]) == 2  # type: ignore[arg-type]


def many() -> list[Comparison]:
    errors = [0, 0, 0, 0, 0, 0, 5, 10, -15, 100]
    found = [
        comparison(1000, 1000 + error, f"net-{index}", family="mlp" if index % 2 else "cnn", holdout=index < 5)
        for index, error in enumerate(errors)
    ]
    return [*found, comparison(1000, 1001, "on-gpu", gpu=True)]


def test_a_scoreboard_sums_up_by_gpu_half_and_family() -> None:
    cpu, gpu = scoreboard(many()).scores
    lines = {line.family: line for line in cpu.lines}
    assert list(lines) == ["all", "may be fitted", "held out", "cnn", "mlp"]
    assert lines["all"].count == 10
    assert lines["all"].spreads["requested"].median == 0
    assert lines["all"].spreads["requested"].p95 == 0.1
    assert lines["all"].too_low == 0.1
    assert lines["all"].exact == 0.6
    assert [bad.name for bad in cpu.worst] == ["net-9", "net-8", "net-7", "net-6"]
    assert set(gpu.lines[0].spreads) == {"requested", "allocated", "reserved"}


def test_what_could_not_be_estimated_is_named_and_counts_for_nothing() -> None:
    broken = Comparison(measurement=measurement("bad"), prediction=Prediction(name="bad", error="no shape inference"))
    (score,) = scoreboard([broken, comparison(1000, 1000)]).scores
    assert score.failed == {"bad": "no shape inference"}
    assert score.lines[0].count == 1
    assert "no shape inference" in render_scoreboard(scoreboard([broken]), TextStyle())


def test_a_scoreboard_is_worse_when_errors_grow_or_workloads_are_lost() -> None:
    before = scoreboard(many())
    assert worse(before, before) == []
    now = scoreboard([*many()[:-2], comparison(1000, 1200, "net-9", family="mlp"), many()[-1]])
    assert "cpu, torch 2.13.0, all: p95 error of requested 20.00%, was 10.00%" in worse(now, before)
    fewer = scoreboard(many()[1:])
    assert any("9 workloads, were 10" in text for text in worse(fewer, before))
    low = scoreboard([comparison(1000, 900, "net-0", family="cnn", holdout=True), *many()[1:]])
    assert any("too low 20.0%, were 10.0%" in text for text in worse(low, before))


def test_gpus_that_were_not_compared_are_no_loss() -> None:
    before = scoreboard(many())
    assert worse(scoreboard(many()[:-1]), before) == []


def test_the_page_names_what_is_held_out() -> None:
    page = render_accuracy(scoreboard(many()), ["net-1", "net-0"])
    assert "## cpu, torch 2.13.0" in page
    assert "`net-0`, `net-1`." in page
    assert "No GPU has been recorded" not in page
    assert "No GPU has been recorded" in render_accuracy(scoreboard(many()[:-1]), [])


@pytest.mark.parametrize(
    ("title", "total_gib", "capability", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", 79.25, (8, 0), "a100-80gb"),
        ("NVIDIA A100-PCIE-40GB", 39.39, (8, 0), "a100-40gb"),
        ("NVIDIA H200", 139.8, (9, 0), "h200"),
        ("NVIDIA H100 80GB HBM3", 79.19, (9, 0), "h100-80gb"),
        ("Tesla T4", 14.74, (7, 5), "t4"),
        ("NVIDIA GeForce RTX 4090", 23.5, (8, 9), "rtx4090"),
        ("NVIDIA L4", 22.03, (8, 9), "l4"),
        ("NVIDIA RTX 6000 Ada Generation", 47.4, (8, 9), "nvidia-rtx-6000-ada-generation"),
    ],
)
def test_a_gpu_is_found_in_the_catalogue_by_what_pytorch_says_of_it(
    title: str, total_gib: float, capability: tuple[int, int], name: str
) -> None:
    assert catalogue_name(title, int(total_gib * 2**30), capability) == name
