"""Tensors alive at the peak as nested rectangles whose areas are bytes.

Positions are percentages of the surrounding rectangle, and become rules of the page's style sheet: the page's policy
allows no style attributes. The layout is the squarified one of Bruls, Huizing and van Wijk (2000), which keeps
rectangles close to squares.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from memlint.base.units import format_nbytes
from memlint.memory.records import Category
from memlint.report.model import Estimate, LineBytes
from memlint.report.phrases import line_detail, spaced

_WIDTH, _HEIGHT = 1100.0, 400.0
"""Pixels that a map has on a wide screen; the layout is chosen for this size."""
_TITLE = 18.0
"""Height in pixels of a group's title."""
_SMALLEST_GROUP = (80.0, 66.0)
"""Pixels below which a group is drawn as one tile."""
_DEPTH = 8
"""Number of levels of modules; deeper ones would be too small to see."""


@dataclass(frozen=True, slots=True)
class Item:
    """Bytes to draw, and their title."""

    title: str
    detail: str
    nbytes: int
    target: str
    """Id of the table row with details, or of the table."""
    categories: Mapping[Category, int] = field(default_factory=dict)
    items: "tuple[Item, ...]" = ()
    """The parts that it consists of."""


@dataclass(frozen=True, slots=True)
class Tile:
    """An Item and its rectangle, in percent of the surrounding one."""

    id: str
    item: Item
    left: float
    top: float
    width: float
    height: float
    tiles: "tuple[Tile, ...]" = ()


@dataclass(frozen=True, slots=True)
class Treemap:
    """All tensors alive at a peak, grouped in one way."""

    id: str
    by: str
    tiles: tuple[Tile, ...]


def by_line(estimate: Estimate, name: str) -> Treemap:
    """Make a tile for each source line."""
    items = [
        Item(
            title=_title(line) or line.why or "no line",
            detail=line_detail(line),
            nbytes=line.nbytes,
            target=f"{name}-{number}",
            categories=line.categories,
        )
        for number, line in enumerate(estimate.by_line)
    ]
    return _treemap(name, "line", items, estimate)


def _title(line: LineBytes) -> str:
    """Return the file and line, as briefly as a tile needs it."""
    path, number = (line.library.path, line.library.line) if line.library else (line.path, line.line)
    return f"{PurePosixPath(path).name}:{number}" if path else ""


def by_module(estimate: Estimate, name: str) -> Treemap:
    """Make tiles nested like the modules."""
    root = _Module()
    for number, row in enumerate(estimate.by_module):
        module = root
        for part in row.module.split(".", _DEPTH) if row.module else ():
            module = module.parts.setdefault(part, _Module())
        module.own.append(
            Item(
                title=row.module.rpartition(".")[2] or row.type or "outside of the model",
                detail=row.type if row.module else "",
                nbytes=row.nbytes,
                target=f"{name}-{number}",
                categories=row.categories,
            )
        )
    items = [*root.own, *(_item(part, module) for part, module in root.parts.items())]
    return _treemap(name, "module", items, estimate)


def rules(treemap: Treemap) -> str:
    """Return the style rules that position the tiles."""
    return "\n".join(
        f"#{tile.id}{{left:{tile.left:.3f}%;top:{tile.top:.3f}%;width:{tile.width:.3f}%;height:{tile.height:.3f}%}}"
        for tile in _every(treemap.tiles)
    )


def spoken(item: Item) -> str:
    """Return an Item in words, for screen readers."""
    most = sorted(item.categories.items(), key=lambda pair: -pair[1])
    held = ", ".join(f"{spaced(category)} {format_nbytes(nbytes)}" for category, nbytes in most if nbytes)
    # The text begins with the visible text of the tile, for users of voice control.
    shown = " ".join(part for part in (item.title, format_nbytes(item.nbytes), item.detail) if part)
    return f"{shown}: {held}" if held else shown


@dataclass(slots=True)
class _Module:
    own: list[Item] = field(default_factory=list)
    parts: "dict[str, _Module]" = field(default_factory=dict)


def _item(title: str, module: _Module) -> Item:
    """Make the Item of a module with all its parts; modules with a single part are merged with it."""
    if not module.parts and len(module.own) == 1:
        return replace(module.own[0], title=title)
    if not module.own and len(module.parts) == 1:
        ((part, inner),) = module.parts.items()
        return _item(f"{title}.{part}", inner)
    own = [replace(item, title="itself") for item in module.own]
    items = [*own, *(_item(part, inner) for part, inner in module.parts.items())]
    categories: Counter[Category] = Counter()
    for item in items:
        categories.update(item.categories)
    return Item(
        title=title,
        detail=module.own[0].detail if module.own else "",
        nbytes=sum(item.nbytes for item in items),
        target=items[0].target,
        categories=categories,
        items=tuple(items),
    )


def _treemap(name: str, by: str, items: list[Item], estimate: Estimate) -> Treemap:
    rest = sum(estimate.categories.values()) - sum(item.nbytes for item in items)
    if rest > 0 and items:
        left = Counter(estimate.categories)
        for item in items:
            left.subtract(item.categories)
        known = +left if (+left).total() == rest else {}
        items = [*items, Item(f"listed by no {by}", ", ".join(map(spaced, known)), rest, name, known)]
    return Treemap(name, by, _tiles(name, items, _WIDTH, _HEIGHT))


def _tiles(name: str, items: Sequence[Item], width: float, height: float) -> tuple[Tile, ...]:
    shown = sorted((item for item in items if item.nbytes > 0), key=lambda item: -item.nbytes)
    tiles = []
    places = zip(shown, _rectangles(shown, width, height), strict=True)
    for number, (item, (left, top, wide, high)) in enumerate(places):
        own = f"{name}-t{number}"
        nested = bool(item.items) and wide >= _SMALLEST_GROUP[0] and high >= _SMALLEST_GROUP[1]
        inner = _tiles(own, item.items, wide, high - _TITLE) if nested else ()
        across, down = 100 / width, 100 / height
        tiles.append(Tile(own, item, left * across, top * down, wide * across, high * down, inner))
    return tuple(tiles)


def _rectangles(items: Sequence[Item], width: float, height: float) -> Iterator[tuple[float, float, float, float]]:
    """Yield left, top, width and height for each Item, largest first: rows along the shorter side of the rest."""
    scale = width * height / (sum(item.nbytes for item in items) or 1)
    areas = [item.nbytes * scale for item in items]
    left = top = 0.0
    while areas:
        side = min(width, height)
        row = [areas[0]]
        for area in areas[1:]:
            if _longest([*row, area], side) > _longest(row, side):
                break
            row.append(area)
        # Rounding may leave a sliver, and this would exceed it.
        depth = min(sum(row) / side, max(width, height)) if side > 0 else 0.0
        position = 0.0
        for area in row:
            length = side * area / sum(row) if sum(row) > 0 else 0.0
            if width >= height:
                yield left, top + position, depth, length
            else:
                yield left + position, top, length, depth
            position += length
        if width >= height:
            left, width = left + depth, max(width - depth, 0.0)
        else:
            top, height = top + depth, max(height - depth, 0.0)
        areas = areas[len(row) :]


def _longest(row: Sequence[float], side: float) -> float:
    """Return the worst aspect ratio of the rectangles that `row` makes along `side`."""
    total = sum(row)
    return max(side * side * max(row) / (total * total), total * total / (side * side * min(row))) if side > 0 else 0.0


def _every(tiles: Sequence[Tile]) -> Iterator[Tile]:
    for tile in tiles:
        yield tile
        yield from _every(tile.tiles)
