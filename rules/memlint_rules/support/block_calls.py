"""The line on which a program calls the repeated blocks of its model."""

import ast
from collections.abc import Iterator, Sequence

from memlint.memory.records import Frame, Trace
from memlint.memory.repeated_modules import CONTAINERS
from memlint.source.text import dotted_name, source_at


def call_of_blocks(trace: Trace, blocks: Sequence[str]) -> Frame | None:
    """Return the project's line that calls the modules at the paths `blocks`; None if the source does not show it.

    It is `x = block(x)` in `for block in self.blocks`, or a call of `self.blocks` or `self.blocks[i]`, in the class
    that has the blocks or in a base class. Blocks in a list take precedence over blocks beside it.
    """
    in_order = sorted(blocks, key=lambda path: not path.rpartition(".")[2].isdigit())
    return next(filter(None, (_call_of(trace, path) for path in in_order)), None)


def _call_of(trace: Trace, path: str) -> Frame | None:
    kinds = dict(trace.modules)
    names = path.split(".")
    while names and names[-1].isdigit():
        names.pop()
    if not names:
        return None
    owner = names[:-1]
    while owner and kinds.get(".".join(owner)) in CONTAINERS:
        owner.pop()
    paths = {frame.of_project.path for node in trace.nodes if (frame := node.frame)}
    sources = filter(None, map(source_at, sorted(paths)))
    defined = {node.name: (source, node) for source in sources for node in source.index.of(ast.ClassDef)}
    waiting, seen = [kinds.get(".".join(owner), "")], set[str]()
    while waiting:
        kind = waiting.pop(0)
        if kind in seen or kind not in defined:
            continue
        seen.add(kind)
        source, owning = defined[kind]
        for method in (node for node in owning.body if isinstance(node, ast.FunctionDef)):
            for call in _calls(method, names[-1]):
                return Frame(source.path, call.lineno, method.name)
        waiting += [dotted_name(base).rpartition(".")[2] for base in owning.bases]
    return None


def _calls(method: ast.FunctionDef, blocks: str) -> Iterator[ast.Call]:
    """Yield calls of the name `blocks`, as a whole or one by one."""
    for node in ast.walk(method):
        if isinstance(node, ast.For) and any(_is_named(part, blocks) for part in ast.walk(node.iter)):
            targets = {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
            inner = (each for statement in node.body for each in ast.walk(statement))
            yield from (each for each in inner if isinstance(each, ast.Call) and _called(each) in targets)
        elif isinstance(node, ast.Call):
            function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            if _is_named(function, blocks):
                yield node


def _called(call: ast.Call) -> str:
    """Return the name of the module: `block(x)` is `block.forward(x)` with its hooks."""
    return dotted_name(call.func).removesuffix(".forward")


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name
