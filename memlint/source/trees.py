"""Fast walks over syntax trees.

`ast.walk` visits every field of every node. Most nodes of a tree are names and constants, and most fields hold text or
one of the few objects that say `Load` or `Add`; leaving those out makes a walk about four times as fast.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar, overload

_Node = TypeVar("_Node", bound=ast.AST)
_Other = TypeVar("_Other", bound=ast.AST)

_WITHOUT_NODES = frozenset(
    {"arg", "asname", "attr", "conversion", "ctx", "id", "kind", "level", "module", "op", "ops", "simple"}
)
"""Fields that hold text, numbers, contexts or operators. (`keyword` and `arg` have an `arg` that is text.)"""

_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
_HOLDERS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: blocks
    for kind in vars(ast).values()
    if isinstance(kind, type)
    and issubclass(kind, ast.stmt | ast.ExceptHandler | ast.match_case)
    and (blocks := tuple(name for name in _BLOCKS if name in kind._fields))
}
"""Types of nodes that hold statements, and the fields with them."""


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly inside `node`, in the order of its fields, without contexts and operators."""
    nodes: list[ast.AST] = []
    for name in _FIELDS[node.__class__]:
        value = getattr(node, name, None)
        if value.__class__ is list:
            for item in value:
                if isinstance(item, ast.AST):
                    nodes.append(item)  # noqa: PERF401 -- most lists are short
        elif isinstance(value, ast.AST):
            nodes.append(value)
    return nodes


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and everything in it, outer before inner, in the order of `ast.walk`."""
    pending = [node]
    for each in pending:
        yield each
        pending += children(each)


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements, handlers and cases of a file, outer before inner, without looking at expressions."""
    pending: list[ast.AST] = list(tree.body)
    for node in pending:
        yield node
        for name in _HOLDERS.get(node.__class__, ()):
            pending += getattr(node, name)


def parsed_again(tree: ast.Module, before: Sequence[str], lines: Sequence[str]) -> ast.Module | None:
    """Parse the statements of a file with the lines that differ from those `before`, of which `tree` is.

    None if the number of lines differs, or if these statements cannot be parsed alone, such as where a string that is
    opened there reaches into what follows.
    """
    changed = [number for number, (old, new) in enumerate(zip(before, lines, strict=False), 1) if old != new]
    if len(before) != len(lines) or not changed:
        return None
    body = tree.body
    first, last = 0, len(body)
    while first < last and (body[first].end_lineno or 0) < changed[0]:
        first += 1
    while last > first and _start(body[last - 1]) > changed[-1]:
        last -= 1
    while 0 < first < len(body) and body[first - 1].end_lineno == _start(body[first]):
        first -= 1
    while 0 < last < len(body) and body[last - 1].end_lineno == _start(body[last]):
        last += 1
    begin = (body[first - 1].end_lineno or 0) if first else 0
    end = _start(body[last]) - 1 if last < len(body) else len(lines)
    try:
        middle = ast.parse("\n" * begin + "\n".join(lines[begin:end]))
    except (SyntaxError, ValueError):
        return None
    return ast.Module([*body[:first], *middle.body, *body[last:]], [])


def comment_spans(nodes: Iterable[ast.AST]) -> dict[int, tuple[int, int]]:
    """Return first and last line that a comment covers, for every line of the head of one of the statements `nodes`.

    The innermost statement on a line decides.
    """
    begun: dict[int, int] = {}
    spans: dict[int, tuple[int, int]] = {}
    for node in nodes:
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            start, head_end, end = _extent(node)
            for line in range(start, head_end + 1):
                if start >= begun.get(line, 0):
                    begun[line], spans[line] = start, (start, end)
    return spans


def _extent(node: ast.stmt | ast.ExceptHandler) -> tuple[int, int, int]:
    """Return a statement's first line, the last line of its head, and the last line covered by comments in its head."""
    start, end = node.lineno, node.end_lineno or node.lineno
    if isinstance(node, ast.Match):
        end = max(start, node.cases[0].pattern.lineno - 1)
        return start, end, end
    body: list[ast.stmt] = getattr(node, "body", [])
    if not body:
        return start, end, end
    head_end = max(start, _start(body[0]) - 1)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return _start(node), head_end, end
    return start, head_end, head_end


def _start(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


class Index:
    """Every node of a tree, and its parent: from one walk."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes: list[ast.AST] = [tree]
        """Nodes, outer before inner, level by level, and otherwise in the order of the text."""
        self._found: dict[tuple[type[ast.AST], ...], tuple[ast.AST, ...]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self._inside: dict[ast.AST, tuple[int, int]] = {}
        """Range in `nodes` of the nodes directly inside a node."""
        nodes, parents, fields, tree_node = self.nodes, self.parents, _FIELDS, ast.AST
        for node in nodes:
            before = len(nodes)
            for name in fields[node.__class__]:
                value = getattr(node, name, None)
                if value.__class__ is list:
                    for item in value:
                        if isinstance(item, tree_node):
                            parents[item] = node
                            nodes.append(item)
                elif isinstance(value, tree_node):
                    parents[value] = node
                    nodes.append(value)
            if len(nodes) > before:
                self._inside[node] = before, len(nodes)

    def in_text_order(self, block: list[ast.stmt], closed: frozenset[type[ast.AST]]) -> list[ast.AST]:
        """Return everything in the statements of `block`, outer before inner and otherwise in the order of the text.

        The contents of nodes of the types `closed` are left out.
        """
        nodes, inside = self.nodes, self._inside
        ordered: list[ast.AST] = []
        pending: list[ast.AST] = [*reversed(block)]
        while pending:
            node = pending.pop()
            ordered.append(node)
            span = inside.get(node)
            if span is not None and node.__class__ not in closed:
                pending += reversed(nodes[span[0] : span[1]])
        return ordered

    @overload
    def of(self, kind: type[_Node], /) -> tuple[_Node, ...]: ...

    @overload
    def of(self, kind: type[_Node], other: type[_Other], /) -> tuple[_Node | _Other, ...]: ...

    def of(self, *kinds: type[ast.AST]) -> tuple[ast.AST, ...]:
        """Return the nodes of exactly these types, in the order of `nodes`."""
        if kinds not in self._found:
            places = sorted(place for kind in kinds for place in self._places.get(kind, ()))
            self._found[kinds] = tuple(self.nodes[place] for place in places)
        return self._found[kinds]

    @cached_property
    def _places(self) -> dict[type[ast.AST], list[int]]:
        """Positions in `nodes` of each type of node."""
        places: defaultdict[type[ast.AST], list[int]] = defaultdict(list)
        for place, node in enumerate(self.nodes):
            places[node.__class__].append(place)
        return places


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """Fields of a type of node that may hold nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        fields = () if kind is ast.Constant else tuple(name for name in kind._fields if name not in _WITHOUT_NODES)
        self[kind] = fields
        return fields


_FIELDS = _Fields()
