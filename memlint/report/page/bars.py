"""Bars cut into categories, as parts of an SVG whose widths are percentages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.report.page.picture import CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlint.report.model import CategoryName


def bar(categories: Mapping[CategoryName, int], nbytes: int, longest: int) -> list[tuple[str, float, float]]:
    """Category, left end and width of each part, in percent of what `longest` bytes take.

    Without categories there is one part of `nbytes`, of category `unknown`.
    """
    parts: list[tuple[str, float, float]] = []
    left = 0.0
    known = (
        [(category, categories.get(category, 0)) for category in CATEGORIES] if categories else [("unknown", nbytes)]
    )
    for category, amount in known:
        width = 100 * amount / longest if longest > 0 else 0.0
        if width > 0:
            parts.append((category, round(left, 2), round(width, 2)))
            left += width
    return parts
