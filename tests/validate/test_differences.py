"""Where predicted and measured allocations part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memlint.report.text_style import TextStyle
from memlint.validate.comparison import Difference, differences
from memlint.validate.measurement import Allocation
from memlint.validate.validation_text import render_comparison
from tests.validate.samples import comparison


def allocations(*sizes: int, op: str = "aten.mm.default") -> list[Allocation]:
    return [Allocation(nbytes, op, "forward") for nbytes in sizes]


def test_the_same_sizes_in_the_same_phases_do_not_differ_whatever_the_operators_are_called() -> None:
    assert differences(allocations(1, 2, 3), allocations(1, 2, 3, op="aten::empty")) == []


def test_what_only_one_side_has_stands_alone() -> None:
    (found,) = differences(allocations(1, 2, 3), allocations(1, 2, 9, 3))
    assert found == (Difference((), tuple(allocations(9))), 1)
    assert found[0].nbytes == 9


def test_another_phase_is_a_difference() -> None:
    backward = [Allocation(2, "aten.mm.default", "backward")]
    ((difference, count),) = differences(allocations(2), backward)
    assert (difference, count) == (Difference(tuple(allocations(2)), tuple(backward)), 1)


def test_the_same_difference_is_counted() -> None:
    found = differences(allocations(1, 2, 3, 2, 4), allocations(1, 2, 7, 3, 2, 7, 4))
    assert found == [(Difference((), tuple(allocations(7))), 2)]


@given(st.lists(st.integers(1, 4), max_size=30), st.lists(st.integers(1, 4), max_size=30))
def test_the_differences_account_for_all_bytes(predicted: list[int], measured: list[int]) -> None:
    found = differences(allocations(*predicted), allocations(*measured))
    assert sum(difference.nbytes * count for difference, count in found) == sum(measured) - sum(predicted)


def test_the_text_shows_both_sides() -> None:
    compared = comparison(1000, 1000)
    compared = compared.model_copy(
        update={
            "measurement": compared.measurement.model_copy(update={"allocations": allocations(1, 2048, 3)}),
            "prediction": compared.prediction.model_copy(update={"allocations": allocations(1, 3)}),
        }
    )
    text = render_comparison(compared, TextStyle())
    assert "allocations, in order: 2 predicted, 3 measured" in text
    assert "2.00 KiB aten.mm.default (forward)" in text
