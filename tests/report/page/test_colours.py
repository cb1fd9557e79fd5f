"""Colours held against the formulas of WCAG 2.2, of Machado et al. (2009) and of Oklab (Ottosson 2020)."""

from __future__ import annotations

import re
from importlib import resources
from itertools import combinations

import pytest

from memlint.report.page.timeline import CATEGORIES

Color = tuple[float, float, float]
STYLE = resources.files("memlint.report.page").joinpath("assets", "page.css").read_text("utf-8")
THEMES = ("light", "dark")
# What red, green and blue become for those who lack one kind of cone entirely.
VISIONS: dict[str, tuple[Color, Color, Color]] = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def color(name: str, theme: str) -> Color:
    """A colour of the style as linear light."""
    both = re.search(rf"--{name}: light-dark\(#(\w{{6}}), #(\w{{6}})\);", STYLE)
    assert both
    text = both[1 + THEMES.index(theme)]
    red, green, blue = (linear(int(text[at : at + 2], 16) / 255) for at in (0, 2, 4))
    return red, green, blue


def linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def dot(one: Color, other: Color) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def contrast(one: Color, other: Color) -> float:
    dark, light = sorted(dot(each, (0.2126, 0.7152, 0.0722)) for each in (one, other))
    return (light + 0.05) / (dark + 0.05)


def mixed(one: Color, other: Color, share: float) -> Color:
    """As `color-mix(in srgb, ...)` does."""

    def gamma(value: float) -> float:
        return 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055

    red, green, blue = (linear(gamma(a) * share + gamma(b) * (1 - share)) for a, b in zip(one, other, strict=True))
    return red, green, blue


def oklab(seen: Color) -> Color:
    cones = (
        max(dot(seen, row), 0) ** (1 / 3)
        for row in (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        )
    )
    root = tuple(cones)
    return (
        0.2104542553 * root[0] + 0.7936177850 * root[1] - 0.0040720468 * root[2],
        1.9779984951 * root[0] - 2.4285922050 * root[1] + 0.4505937099 * root[2],
        0.0259040371 * root[0] + 0.7827717662 * root[1] - 0.8086757660 * root[2],
    )


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("back", ["surface", "panel"])
def test_text_is_readable(theme: str, back: str) -> None:
    for name in ("text", "muted", "link", "good", "bad", "unsure"):
        assert contrast(color(name, theme), color(back, theme)) >= 4.5, name


@pytest.mark.parametrize("theme", THEMES)
def test_text_on_a_tile_or_on_the_heat_map_is_readable(theme: str) -> None:
    text, surface = color("text", theme), color("surface", theme)
    for category in CATEGORIES:
        assert contrast(text, mixed(color(category, theme), surface, 0.2)) >= 4.5, category
    shades = re.findall(r"\.shade-\d+ \{ background-color: color-mix\(in srgb, var\(--heat\) (\d+)%", STYLE)
    assert len(shades) == 10
    for percent in shades:
        assert contrast(text, mixed(color("heat", theme), surface, int(percent) / 100)) >= 4.5, percent


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("back", ["surface", "panel"])
def test_bands_stand_out_from_the_page(theme: str, back: str) -> None:
    for name in (*CATEGORIES, "heat"):
        assert contrast(color(name, theme), color(back, theme)) >= 3, name


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_categories_are_told_apart_with_any_two_kinds_of_cones(theme: str, vision: str) -> None:
    """0.02 is a difference one just notices with the colours side by side."""
    red, green, blue = VISIONS[vision]
    seen = {
        name: oklab((dot(red, color(name, theme)), dot(green, color(name, theme)), dot(blue, color(name, theme))))
        for name in CATEGORIES
    }
    for one, other in combinations(CATEGORIES, 2):
        difference = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert difference >= 0.07, (one, other)
