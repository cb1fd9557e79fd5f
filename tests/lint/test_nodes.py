"""Walks over syntax trees, held against those of `ast`."""

import ast
from pathlib import Path

import pytest

from memlint import lint
from memlint.source import text as source
from memlint.source.trees import Index, children, statements, walk

FILES = [Path(module.__file__) for module in (ast, source, pytest)] + sorted(Path(lint.__file__).parent.glob("*.py"))
SINGLETONS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)


@pytest.fixture(params=FILES, ids=lambda file: file.name)
def tree(request):
    return ast.parse(request.param.read_text())


def test_a_walk_is_that_of_ast_without_contexts_and_operators(tree):
    expected = [node for node in ast.walk(tree) if not isinstance(node, SINGLETONS)]
    assert list(walk(tree)) == expected
    assert Index(tree).nodes == expected


def test_parents_are_what_holds_a_node(tree):
    parents = {child: node for node in ast.walk(tree) for child in children(node)}
    assert Index(tree).parents == parents


def test_the_order_of_the_text_is_depth_first(tree):
    def inside(node):
        yield node
        if not isinstance(node, ast.Lambda | ast.FunctionDef):
            for child in children(node):
                yield from inside(child)

    expected = [node for statement in tree.body for node in inside(statement)]
    assert Index(tree).in_text_order(tree.body, frozenset({ast.Lambda, ast.FunctionDef})) == expected


def test_statements_are_all_statements(tree):
    kinds = (ast.stmt, ast.ExceptHandler, ast.match_case)
    assert list(statements(tree)) == [node for node in Index(tree).nodes if isinstance(node, kinds)]


def test_nodes_of_a_type_are_found_in_order(tree):
    index = Index(tree)
    assert index.of(ast.For, ast.While) == tuple(node for node in index.nodes if isinstance(node, ast.For | ast.While))


def test_what_every_kind_of_node_holds_is_found():
    text = (
        "match a:\n    case {'k': b, **rest} if c:\n        pass\n    case P(x=1) | [*_]:\n        pass\n"
        "try:\n    pass\nexcept E as e:\n    raise E from e\nelse:\n    del f.g\n"
        "def h(i: j = 1, /, *k, l: m = 2, **n) -> o: return {**p, 'q': (yield r)}\n"
        "with s as t, u: v = w = [x async for y in z if x]\nx[1:2, ...] = f'{y!r:>{z}}'\n"
    )
    tree = ast.parse(text)
    assert {*walk(tree)} == {node for node in ast.walk(tree) if not isinstance(node, SINGLETONS)}
