"""The picture of docs/architecture.md is that of the import graph."""

from __future__ import annotations

import pytest

from tests.integration.architecture import ROOT, drawing, import_graph, redrawn

PAGE = ROOT / "docs" / "architecture.md"


def test_the_picture_is_that_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    advice = "python -m tests.integration.architecture docs/architecture.md draws it again"
    assert text == redrawn(text, import_graph()), advice


@pytest.mark.parametrize("arrow", [("source", "config"), ("cli", "base")])
def test_one_more_import_and_one_import_less_are_another_picture(arrow):
    more, less = import_graph(), import_graph()
    more.add_edge(*arrow)
    less.remove_edges_from([arrow])
    assert drawing(more) != drawing(less)


@pytest.mark.parametrize("fact", ["imports_torch", "is_below_line"])
def test_a_package_that_begins_to_import_torch_or_crosses_the_line_is_another_picture(fact):
    graph = import_graph()
    before = drawing(graph)
    assert not graph.nodes["memory"][fact]
    graph.nodes["memory"][fact] = True
    assert drawing(graph) != before


def test_a_page_without_a_place_for_the_picture_is_an_error():
    with pytest.raises(AssertionError, match="no single place"):
        redrawn("# Architecture\n", import_graph())


def test_an_arrow_that_a_longer_way_implies_stands_in_the_table_alone():
    graph = import_graph()
    assert graph.has_edge("cli", "base")
    assert "cli --> base" not in drawing(graph)
    assert "cli --> language_server" in drawing(graph)
