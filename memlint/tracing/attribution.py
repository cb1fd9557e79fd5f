"""Attribution of a kernel to its source line and its module.

A forward kernel belongs to the innermost Python line outside PyTorch and, if that is in an installed package, also to
the innermost line of the project that led to it. A backward kernel has no Python line: it gets the place of its
forward, through the sequence number that autograd gives every node when the forward makes it.
"""

import sys
import threading
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import torch

from memlint.accelerator.private import (
    ENGINE_FUNCTION,
    autograd_node,
    graph_task,
    next_sequence_number,
    sequence_number,
)
from memlint.base.ownership import is_installed, is_memlint, is_standard_library
from memlint.memory.records import Frame, Phase

_TORCH = str(Path(torch.__file__).resolve().parent) + "/"
_TRACERS = ("trace_program", "run_script")
"""Functions that start a trace. Their callers are not part of the program: a rule may be the user's own file."""

_MODULE_CALL = "module_call"
"""The function that runs in the place of a module's call while a trace is made."""
_getframe = sys._getframe

Line = tuple[CodeType, int]
"""Code object and line."""
Place = tuple[CodeType | None, int, Line | None, tuple[int, str] | None]
"""Place of a kernel, not yet resolved: code object and line, the project's line if that is another, and id and type of
the module that ran (None at the root)."""
NOWHERE: Place = (None, 0, None, None)
_Found = tuple[CodeType | None, int, Line | None]
"""The first three of a Place."""


class Attribution:
    """Follows a running program: `place` gives the place of the kernel that runs now."""

    def __init__(self) -> None:
        self._calls = threading.local()
        self.optimizing = False
        self.section = Phase.FORWARD
        """Phase of kernels outside a backward and an optimizer."""
        self._places: dict[int, Place] = {}
        self._last: tuple[int, Place] = 0, NOWHERE
        """Sequence number and place that were noted last."""
        self._kinds: dict[CodeType, int] = {}
        self._outside: dict[int, tuple[tuple[int, str], _Found]] = {}
        """By depth the module call that was there last, and the line around it."""
        self._internal = _modules_to_pass()

    @property
    def modules(self) -> list[tuple[int, str]]:
        """Id and type of the modules that this thread is calling, outermost first; other threads may prepare data."""
        try:
            modules: list[tuple[int, str]] = self._calls.modules
        except AttributeError:
            modules = self._calls.modules = []
        return modules

    def place(self, *, writes: bool = False) -> tuple[Phase, Place]:
        """Return phase and place of the running kernel, which `writes` its arguments or not."""
        in_backward = graph_task() != -1
        modules = self.modules
        code, line, caller = self._line(_getframe(3), len(modules))
        if in_backward and caller is None:
            if code is None:
                return (Phase.OPTIMIZER if self.optimizing else Phase.BACKWARD), self._place_of_forward()
            if self._kinds[code] == _PACKAGE:
                caller = self._place_of_forward()[2]
        place = (code, line, caller, modules[-1] if modules else None)
        if self.optimizing and not in_backward:
            return Phase.OPTIMIZER, place
        # Kernels that make no node come later, with the same number. In the backward these are the kernels of a
        # recomputation, a hook or a custom function.
        number = next_sequence_number() - 1
        before, last = self._last
        if place == last:  # nodes without a kernel between two of a line, as of views, are of that line too
            for each in range(before + 1, number):
                self._places.setdefault(each, place)
            if writes and number == before:  # it made its node, and then a copy to save
                self._places.setdefault(number - 1, place)
        self._places.setdefault(number, place)
        self._last = number, place
        return (Phase.BACKWARD if in_backward else self.section), place

    def is_new_node(self) -> bool:
        """Return True if autograd has made a node since the last one with a place."""
        return next_sequence_number() - 1 > self._last[0]

    def _place_of_forward(self) -> Place:
        """Return the place of the forward whose backward runs now."""
        node = autograd_node()
        return NOWHERE if node is None else self._places.get(sequence_number(node), NOWHERE)

    def _line(self, frame: FrameType | None, depth: int) -> _Found:
        """Return the innermost line of a project or a package; for a package also that of the project around it.

        `depth` module calls are around the frame.
        """
        innermost: Line | None = None
        kinds, internal = self._kinds, self._internal
        while frame is not None:
            if frame.f_globals.get("__name__") in internal:
                frame = frame.f_back
                continue
            code = frame.f_code  # which Python reports to the audit hook of a child
            try:
                kind = kinds.get(code)
            except TypeError:  # TorchDynamo writes code with a dict among its constants, which has no hash
                code = code.replace(co_consts=())
                kind = kinds.get(code)
            if kind is None:
                kind = kinds[code] = _kind(code)
            if kind == _PROJECT:
                line = code, frame.f_lineno
                return (*line, None) if innermost is None else (*innermost, line)
            if kind == _CALL:
                outer, at, caller = self._around(frame, depth)
                if innermost is None or outer is None:
                    return (outer, at, caller) if innermost is None else (*innermost, None)
                return (*innermost, (outer, at) if kinds[outer] == _PROJECT else caller)
            if kind == _END:
                break
            if kind == _PACKAGE and innermost is None:
                innermost = code, frame.f_lineno
            frame = frame.f_back
        return (None, 0, None) if innermost is None else (*innermost, None)

    def _around(self, call: FrameType, depth: int) -> _Found:
        """Return the line around a module call, the innermost of `depth`: it is the same as long as the call lasts."""
        modules = self.modules
        if not 0 < depth <= len(modules):
            return self._line(call.f_back, depth - 1)
        module, known = modules[depth - 1], self._outside.get(depth)
        if known is None or known[0] is not module:
            known = self._outside[depth] = module, self._line(call.f_back, depth - 1)
        return known[1]


_INTERNAL, _PACKAGE, _PROJECT, _END, _CALL = 0, 1, 2, 3, 4


def _modules_to_pass() -> frozenset[str]:
    """Return the names of the modules of PyTorch and memlint in which neither lines of a program are, nor its end."""
    ends = (ENGINE_FUNCTION, *_TRACERS)
    modules = [(name, getattr(module, "__dict__", {})) for name, module in list(sys.modules.items())]
    return frozenset(
        name
        for name, defined in modules
        if name.startswith(("torch.", "memlint.")) and not any(end in defined for end in ends)
    )


@cache
def _resolved(path: str) -> str:
    """The path without symbolic links: a trace meets some fifty files, and each link costs a look at every folder."""
    return str(Path(path).resolve())


def _kind(code: CodeType) -> int:
    if code.co_name == ENGINE_FUNCTION:
        return _END
    if code.co_filename.startswith("<"):
        return _INTERNAL
    path = _resolved(code.co_filename)
    if code.co_name in (*_TRACERS, _MODULE_CALL) and is_memlint(path):
        return _CALL if code.co_name == _MODULE_CALL else _END
    if path.startswith(_TORCH) or is_memlint(path) or is_standard_library(path):
        return _INTERNAL
    return _PACKAGE if is_installed(path) else _PROJECT


def is_inside(module: str) -> bool:
    """Return True if a function of this module is running now."""
    frame: FrameType | None = _getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


def frame_of(code: CodeType | None, line: int, caller: Line | None = None) -> Frame | None:
    """Return the record of a line and of the project's line around it; None if no line of the program ran."""
    return None if code is None else Frame(code.co_filename, line, code.co_name, caller and frame_of(*caller))
