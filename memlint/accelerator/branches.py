"""Which way a program goes on where a condition is not known and the other way only raises an error, and who asks."""

import dis
import functools
import sys
from types import CodeType, FrameType

from memlint.base.ownership import is_memlint


def value_that_raises_nothing() -> bool | None:
    """What the condition that the program asks for now has to be, so that it does not raise; None if either will do."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_memlint(frame.f_code.co_filename) or frame.f_code.co_name == "__torch_function__"):
        frame = frame.f_back  # a mode of PyTorch's, as `torch.set_default_device` sets one, decides nothing
    return None if frame is None else _value_at(frame.f_code, frame.f_lasti)


def asks_in_backward() -> bool:
    """Whether PyTorch's own backward asks for a value: there it decides between two ways, and no size."""
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
    """Whether the jump after it decides: from Python 3.13 on the truth is asked for before, by comparisons as well."""
    return instruction.opname == "TO_BOOL" or instruction.argrepr.startswith("bool(")


def _raises(instructions: list[dis.Instruction], start: int) -> bool:
    """Whether what is executed from `start` on raises before anything is decided."""
    for instruction in instructions[start:]:
        if instruction.opname == "RAISE_VARARGS":
            return True
        if "JUMP" in instruction.opname or instruction.opname.startswith(("RETURN_", "FOR_", "YIELD_", "SEND")):
            return False
    return False
