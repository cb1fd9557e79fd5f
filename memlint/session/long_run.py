"""A run of more steps than a Trace has, and the variables that keep what these steps leave behind."""

from collections import deque
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch

from memlint.accelerator import state
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.records import Frame, Trace
from memlint.memory.retention import Keeper
from memlint.session.variables import entries_of, frame_of_code, tensors_in
from memlint.tracing.recorder import Program, trace_program
from memlint.whatif.take_steps import NUM_STEPS

_DEPTH = 4
"""Depth of containers and objects to which a variable is searched."""
_OF_MODULES = frozenset(vars(torch.nn.Module()))


def run_longer(
    program: Program, device: Device, allocator: AllocatorSettings | None = None
) -> tuple[Trace, dict[int, Keeper]]:
    """Trace NUM_STEPS steps of a fresh `program`, and find the variables that keep Buffers alive, by Buffer.

    Raises what the program raises.
    """
    keepers: dict[int, Keeper] = {}

    def after_step(step: int) -> None:
        if step == NUM_STEPS - 1:
            for variable, value, frame in _variables(program):
                for path, tensor in tensors_in(value, variable, _DEPTH, set()):
                    keeper = Keeper(path, tensor.grad_fn is not None, frame)
                    for number in _numbers(tensor):
                        keepers.setdefault(number, keeper)

    trace = trace_program(program, device, allocator, num_steps=NUM_STEPS, after_step=after_step).trace
    return trace, keepers


def _variables(program: Any) -> Iterator[tuple[str, Any, Frame]]:
    """Yield variables that the step's own function and hooks can reach, and modules' attributes: name, value, owner."""
    functions = [getattr(program, "own_step", None), getattr(program, "loss", None)]
    model = getattr(program, "model", None)
    if isinstance(model, torch.nn.Module):
        of_model = Frame(program.workload.path, 1, "")
        yield from ((f"{path}.grad", parameter.grad, of_model) for path, parameter in model.named_parameters())
        for path, module in model.named_modules():
            functions += [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
            forward = getattr(type(module), "forward", None)
            frame = _frame(forward)
            if frame is None or not _may_be_users(forward):
                continue
            functions.append(forward)
            for name, value in list(vars(module).items()):
                if name not in _OF_MODULES:
                    yield ".".join(filter(None, ("model", path, name))), value, frame
    yield from _of_functions(functions)


def _of_functions(functions: list[Any]) -> Iterator[tuple[str, Any, Frame]]:
    """Yield the variables of these functions that outlive a call, and those of the functions they name."""
    pending, seen = deque(functions), set()
    while pending:
        function = pending.popleft()
        if isinstance(function, partial):
            function = function.func
        if isinstance(function, MethodType):
            frame = _frame(function.__func__)
            if frame is not None:
                yield "self", function.__self__, frame
            function = function.__func__
        frame = _frame(function)
        if frame is None or id(function) in seen or not _may_be_users(function):
            continue
        seen.add(id(function))
        code = function.__code__
        named = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                named[name] = cell.cell_contents
            except ValueError:  # not bound yet
                continue
        for name, value in named.items():
            if isinstance(value, (FunctionType, MethodType, partial)):
                pending.append(value)
            else:
                yield name, value, frame


def _frame(function: Any) -> Frame | None:
    code = function.__code__ if isinstance(function, FunctionType) else None
    return None if code is None else frame_of_code(code, code.co_firstlineno)


def _may_be_users(function: Any) -> bool:
    return str(function.__module__).partition(".")[0] not in {"torch", "memlint"}


def _numbers(tensor: torch.Tensor) -> Iterator[int]:
    """Yield the Buffers that a tensor keeps, by itself and through saved tensors of its graph."""
    for each in (tensor, *_saved(tensor)):
        # Lists of the user's modules still hold tensors of earlier runs.
        yield from (entry.number for entry in entries_of(each) if entry.ledger is state.current.ledger)


def _saved(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    pending, seen = [tensor.grad_fn], set()
    while pending:
        node: Any = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending += [following for following, _ in node.next_functions]
        for name in dir(node):
            if name == "saved_tensors" or (name.startswith("_saved_") and not name.startswith("_saved_tensors")):
                try:
                    value = getattr(node, name)
                except RuntimeError:  # freed by a backward, or changed in place since
                    continue
                yield from (each for _, each in tensors_in(value, "", 2, set()))
