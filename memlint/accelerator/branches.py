"""Branches of a program on an unknown condition: sides that raise, or that work on what a mask selects; who asks."""

import ast
import dis
import functools
import itertools
import linecache
import sys
from types import CodeType, FrameType

from memlint.base.ownership import is_memlint

_COUNTS = frozenset(("any", "sum", "count_nonzero"))
"""Functions by which a program asks if a mask selects anything."""


def value_that_raises_nothing() -> bool | None:
    """Return the value of the condition being tested for which the program does not raise; None if either will do."""
    frame = _asking()
    return None if frame is None else _value_at(frame.f_code, frame.f_lasti)


def works_on_selected() -> bool:
    """Return True in the condition of `if mask.any():` whose body takes elements by that mask: it selects some."""
    frame = _asking()
    return frame is not None and frame.f_lineno in _selecting(frame.f_code.co_filename)


def is_counted_to_raise() -> bool:
    """Return True where the program only counts the values that it asks for, and raises if there are too many."""
    frame = _asking()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("torch."):
        frame = frame.f_back
    return frame is not None and frame.f_lineno in _raising_on_counts(frame.f_code.co_filename)


@functools.lru_cache(maxsize=256)
def _raising_on_counts(path: str) -> frozenset[int]:
    """Return the lines of a file with `count = len(torch.unique(x))` on which an `if` of the same block raises."""
    blocks = (block for node in ast.walk(_parsed(path)) if isinstance(block := getattr(node, "body", None), list))
    return frozenset(
        first.lineno
        for block in blocks
        for first, then in itertools.pairwise(block)
        if isinstance(first, ast.Assign)
        and ast.unparse(first.value).startswith("len(")
        and isinstance(then, ast.If)
        and isinstance(then.body[0], ast.Raise)
        and ast.unparse(first.targets[0]) in {each.id for each in ast.walk(then.test) if isinstance(each, ast.Name)}
    )


def _parsed(path: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return ast.Module([], [])


def _asking() -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (is_memlint(frame.f_code.co_filename) or frame.f_code.co_name == "__torch_function__"):
        frame = frame.f_back  # a mode of PyTorch's own, such as that of `torch.set_default_device`, decides nothing
    return frame


@functools.lru_cache(maxsize=256)
def _selecting(path: str) -> frozenset[int]:
    """Return the lines of a file with such a condition."""
    tree = _parsed(path)
    blocks = (block for node in ast.walk(tree) for block in (getattr(node, "body", ()), getattr(node, "orelse", ())))
    return frozenset(
        line
        for block in blocks
        if isinstance(block, list)
        for place, node in enumerate(block)
        if isinstance(node, ast.If) and _takes_by(_on_any(node, block[place + 1 :]), _counted(node.test))
        for line in range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)
    )


def _on_any(node: ast.If, after: list[ast.stmt]) -> list[ast.stmt]:
    """Return what runs if any is selected: the body, or what is behind `if not mask.any(): continue`."""
    if not isinstance(node.test, ast.UnaryOp):
        return node.body
    return after if isinstance(node.body[-1], ast.Continue | ast.Return) else node.orelse


def _counted(test: ast.expr) -> set[str]:
    """Return the names of which a condition counts the elements that are set: `mask` of `torch.any(mask)`."""
    calls = [each for each in ast.walk(test) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    counting = (each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr in _COUNTS)
    return {name.id for each in counting for name in ast.walk(each) if isinstance(name, ast.Name)}


def _takes_by(statements: list[ast.stmt], names: set[str]) -> bool:
    """Return True if statements take elements of something by one of these names: `x[mask]`."""
    taken = (each.slice for part in statements for each in ast.walk(part) if isinstance(each, ast.Subscript))
    return any(isinstance(name, ast.Name) and name.id in names for each in taken for name in ast.walk(each))


def asks_in_backward() -> bool:
    """Return True if PyTorch's own backward reads the value: there it chooses between two paths, and sets no size."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_memlint(frame.f_code.co_filename) and frame.f_code.co_name != "run_backward":
        frame = frame.f_back
    return frame is None or is_memlint(frame.f_code.co_filename)


@functools.lru_cache(maxsize=1024)
def _value_at(code: CodeType, position: int) -> bool | None:
    instructions = list(dis.get_instructions(code))
    indices = {instruction.offset: index for index, instruction in enumerate(instructions)}
    index = indices.get(position, len(instructions))
    if index + 1 < len(instructions) and _only_asks_for_truth(instructions[index]):
        index += 1
    jump = instructions[index] if index < len(instructions) else None
    if jump is None or not (jump.opname.startswith("POP_JUMP_") and jump.opname.endswith(("_IF_TRUE", "_IF_FALSE"))):
        return None
    jumps, stays = (_raises(instructions, start) for start in (indices.get(jump.argval, len(instructions)), index + 1))
    return None if jumps == stays else jump.opname.endswith("TRUE") == stays


def _only_asks_for_truth(instruction: dis.Instruction) -> bool:
    """Return True if the next jump decides: since Python 3.13 the truth is computed before it, by comparisons too."""
    return instruction.opname == "TO_BOOL" or instruction.argrepr.startswith("bool(")


def _raises(instructions: list[dis.Instruction], start: int) -> bool:
    """Return True if execution from `start` on raises before any other decision."""
    for instruction in instructions[start:]:
        if instruction.opname == "RAISE_VARARGS":
            return True
        if "JUMP" in instruction.opname or instruction.opname.startswith(("RETURN_", "FOR_", "YIELD_", "SEND")):
            return False
    return False
