"""docs/libraries.md: each table is of one library."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def cells(row: str) -> int:
    return re.sub(r"`[^`]*`|\\\|", "", row).count("|") - 1


@pytest.mark.parametrize("page", ["libraries.md", "library-plugins.md"])
def test_rows_of_a_table_have_the_columns_of_its_head(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert tables
    for table in tables:
        head, *rows = table.splitlines()
        assert [row for row in rows if cells(row) != cells(head)] == []
