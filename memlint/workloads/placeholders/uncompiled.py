"""Extensions that cannot be compiled here: a placeholder stands for each, as many programs have a way without."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any

from memlint.base.guarded_imports import is_guarded
from memlint.libraries import extensions
from memlint.memory.records import Frame
from memlint.workloads.placeholders.absent_packages import record, shortened
from memlint.workloads.placeholders.import_lines import caller
from memlint.workloads.placeholders.objects import Placeholder


def stands_in_for_extensions(error: Exception) -> bool:
    """Replace extensions that failed to compile at import by placeholders; False if no extension is to blame."""
    names = [frame.f_globals.get("__name__") for frame, _line in traceback.walk_tb(error.__traceback__)]
    if record.uncompiled or not {extensions.__name__, "torch.utils.cpp_extension"}.intersection(names):
        return False
    record.uncompiled = shortened(error)
    module: Any = sys.modules["torch.utils.cpp_extension"]
    module.load = module.load_inline = _extension
    return True


def stand_in_for_what_is_not_compiled(module: Any) -> None:
    """Let a script load extensions that are not compiled: many have a way without them."""
    for function in (module.load, module.load_inline):
        setattr(module, function.__name__, _standing_in(function))


def _standing_in(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def load(*arguments: Any, **named: Any) -> Any:
        frame = caller()
        try:
            return function(*arguments, **named)
        except OSError as error:
            if not extensions.refused(error) or is_guarded(frame.f_code.co_filename, frame.f_lineno):
                raise
            record.uncompiled = f"{type(error).__name__}: {error}"
        return _extension(named.get("name") or arguments[0])

    return load


def _extension(name: str, *_arguments: object, **_named: object) -> Placeholder:
    frame = caller()
    record.replaced.setdefault(name, Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
    record.failed[name] = record.uncompiled
    return Placeholder(name)
