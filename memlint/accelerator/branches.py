"""Branches of a program on an unknown condition whose one side only raises an error, and the code that asks."""

import dis
import functools
import sys
from types import CodeType, FrameType

from memlint.base.ownership import is_memlint


def value_that_raises_nothing() -> bool | None:
    """Return the value of the condition being tested for which the program does not raise; None if either will do."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_memlint(frame.f_code.co_filename) or frame.f_code.co_name == "__torch_function__"):
        frame = frame.f_back  # a mode of PyTorch's own, such as that of `torch.set_default_device`, decides nothing
    return None if frame is None else _value_at(frame.f_code, frame.f_lasti)


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
