from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlint.report.model import Estimate, LineBytes, ModuleBytes
from memlint.report.page.treemap import by_line, by_module, rules
from tests.report.sample import ESTIMATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlint.report.page.treemap import Tile


def estimate(modules: dict[str, int], lines: Sequence[int] = (), total: int | None = None) -> Estimate:
    return ESTIMATE.model_copy(
        update={
            "by_module": [ModuleBytes(module=name, nbytes=nbytes, num_buffers=1) for name, nbytes in modules.items()],
            "by_line": [
                LineBytes(path="a.py", line=number, nbytes=nbytes, num_buffers=1)
                for number, nbytes in enumerate(lines, 1)
            ],
            "categories": {"other": sum(modules.values()) if total is None else total},
        }
    )


def overlap(one: Tile, other: Tile) -> float:
    width = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
    height = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
    return max(width, 0) * max(height, 0)


def check(tiles: Sequence[Tile]) -> None:
    """Tiles fill the rectangle around them, in proportion to their bytes as far as can be seen, and share none of it."""
    total = sum(tile.item.nbytes for tile in tiles)
    for tile in tiles:
        assert tile.width * tile.height == pytest.approx(10_000 * tile.item.nbytes / total, rel=1e-6, abs=1e-6)
        assert tile.left >= -1e-6
        assert tile.top >= -1e-6
        assert tile.left + tile.width <= 100 + 1e-6
        assert tile.top + tile.height <= 100 + 1e-6
        if tile.tiles:
            check(tile.tiles)
    assert all(overlap(one, other) < 1e-4 for one, other in combinations(tiles, 2))


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=30))
@example([2, 2_370_437_221])
def test_areas_are_bytes_and_do_not_overlap(sizes: list[int]) -> None:
    check(by_line(estimate({}, sizes, sum(sizes)), "lines").tiles)


def test_modules_are_nested_and_names_with_one_part_are_joined() -> None:
    names = {"": 100, "body.layers.0.up": 400, "body.layers.0.down": 300, "body.layers.1": 500, "head": 200}
    treemap = by_module(estimate(names), "modules")

    check(treemap.tiles)
    tiles = {tile.item.title: tile for tile in treemap.tiles}
    assert set(tiles) == {"body.layers", "head", "outside of the model"}
    assert tiles["body.layers"].item.nbytes == 1200
    inner = {tile.item.title: tile for tile in tiles["body.layers"].tiles}
    assert set(inner) == {"0", "1"}
    assert {tile.item.title for tile in inner["0"].tiles} == {"up", "down"}
    assert inner["1"].item.target == "modules-3"


def test_what_a_module_with_parts_holds_itself_is_a_tile_of_its_own() -> None:
    (tile,) = by_module(estimate({"a": 5, "a.b": 3}), "modules").tiles

    assert tile.item.nbytes == 8
    assert {(inner.item.title, inner.item.nbytes) for inner in tile.tiles} == {("itself", 5), ("b", 3)}


def test_what_the_report_does_not_list_is_a_tile() -> None:
    treemap = by_line(estimate({}, [60], total=100), "lines")

    assert {(tile.item.title, tile.item.nbytes) for tile in treemap.tiles} == {
        ("a.py:1", 60),
        ("listed by no line", 40),
    }


def test_what_is_not_listed_has_the_categories_that_are_left() -> None:
    line = LineBytes(path="a.py", line=1, nbytes=60, num_buffers=1, categories={"activation": 60})
    given = ESTIMATE.model_copy(
        update={"by_line": [line], "categories": {"activation": 70, "parameter": 30, "input": 0}}
    )
    rest = by_line(given, "lines").tiles[1].item

    assert (rest.nbytes, dict(rest.categories)) == (40, {"activation": 10, "parameter": 30})
    assert rest.detail == "activation, parameter"


def test_modules_nested_without_end_and_items_without_bytes_are_no_trouble() -> None:
    deep = ".".join("a" * 5000)
    treemap = by_module(estimate({deep: 10, deep + ".b": 5, "zero": 0, "x": 10**30}), "modules")

    check(treemap.tiles)
    assert by_module(estimate({"zero": 0}), "modules").tiles == ()


def test_each_tile_has_one_rule() -> None:
    treemap = by_module(estimate({"a.b": 10, "a.c": 5, "d": 3}), "w0-modules")

    assert sorted(rule.split("{")[0] for rule in rules(treemap).splitlines()) == [
        "#w0-modules-t0",
        "#w0-modules-t0-t0",
        "#w0-modules-t0-t1",
        "#w0-modules-t1",
    ]
