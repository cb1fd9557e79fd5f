"""Modules of one class that repeat side by side, such as the blocks of a transformer."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from memlint.base.grouping import grouped

MIN_BLOCKS = 3
CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})


def repeated(modules: Sequence[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of each class that repeats among siblings and has children, without those nested in another."""
    children = children_of(modules)
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for path, kind in modules:
        is_block = path and kind not in CONTAINERS and children[path]
        if is_block and not any(is_inside(path, outer) for outer in groups[kind]):
            groups[kind].append(path)
    for paths in groups.values():
        siblings = Counter(path.rpartition(".")[0] for path in paths)
        if len(paths) >= MIN_BLOCKS and max(siblings.values()) >= 2:
            yield tuple(paths)


def children_of(modules: Sequence[tuple[str, str]]) -> defaultdict[str, list[str]]:
    """Return the paths of the children of each module, by its path."""
    return grouped((path.rpartition(".")[0], path) for path, _kind in modules if path)


def is_inside(path: str, outer: str) -> bool:
    """Return True if a module is another or a part of it."""
    return path == outer or path.startswith(f"{outer}.")
