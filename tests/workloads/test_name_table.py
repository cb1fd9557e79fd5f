"""The table of what names of parameters say."""

import re

import pytest

from memlint.targets.workload import BATCH, CONSTANT, InputSpec
from memlint.workloads.name_table import (
    BESIDE_LATENT,
    DIFFUSERS,
    FORWARD,
    HEADS,
    IMAGES_AND_SERIES,
    TRANSFORMERS,
    WITH_VIDEO,
    Row,
    as_input,
    first_input,
)

TABLES = (IMAGES_AND_SERIES, FORWARD, TRANSFORMERS, BESIDE_LATENT, WITH_VIDEO, DIFFUSERS, *HEADS)


def known(**sizes):
    return sizes.get


def test_a_name_is_found_as_it_is_and_by_how_it_begins_or_ends():
    table = (Row("ids"), Row("max_*", ("a",)), Row("*_mask", (BATCH, 1)), Row("*mark*", (BATCH, 2)))
    shapes = {name: first_input(table, name, known(a=5)) for name in ("ids", "id", "max_len", "my_mask", "x_mark_enc")}
    assert {name: spec and spec.shape for name, spec in shapes.items()} == {
        "ids": (), "id": None, "max_len": (5,), "my_mask": (BATCH, 1), "x_mark_enc": (BATCH, 2),
    }  # fmt: skip


def test_a_row_whose_facts_do_not_hold_is_passed_over():
    table = (Row("x", (1,), when="text"), Row("x", (2,), when="!graph"), Row("x", (3,)))
    assert [first_input(table, "x", known(), facts).shape for facts in ({"text"}, {"graph"}, ())] == [(1,), (3,), (2,)]


def test_the_first_size_that_is_known_counts_and_a_row_with_none_says_nothing():
    row = Row("x", (BATCH, "width|dim|32", "*@picture"), "int64", high="vocabulary")
    lookup = {"dim": 8, "vocabulary": 100, "@picture": (3, 4, 4)}
    assert as_input(row, "x", lookup.get) == InputSpec("x", (BATCH, 8, 3, 4, 4), "int64", high=100)
    assert as_input(row, "x", {**lookup, "width": 16}.get).shape[1] == 16
    assert as_input(row, "x", {"vocabulary": 100, "@picture": (3,)}.get).shape == (BATCH, 32, 3)
    assert as_input(row, "x", {"dim": 8, "vocabulary": 100}.get) is None
    assert as_input(row, "x", {"dim": 8, "@picture": (3,)}.get) is None


def test_a_constant_is_a_value_of_python():
    assert as_input(Row("x", (), CONSTANT, low="@n"), "x", {"@n": 7}.get) == InputSpec.constant("x", 7)


@pytest.mark.parametrize("table", [TRANSFORMERS, BESIDE_LATENT], ids=["transformers", "beside_latent"])
def test_no_name_has_two_rows_where_the_first_would_hide_the_second(table):
    names = [name for row in table for name in row.names.split()]
    assert len(names) == len(set(names))


def test_columns_have_words_that_the_page_of_the_table_describes():
    words = [each for table in TABLES for row in table for each in (*row.shape, row.low, row.high)]
    texts = [word for word in words if isinstance(word, str) and BATCH not in word]
    assert all(re.fullmatch(r"(\*?@)?\w+(\|\w+)*", word) for word in texts), texts
