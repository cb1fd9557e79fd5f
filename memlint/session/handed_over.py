"""Objects in place of what could be typed: a model, its class, a function or a Declaration, used in this process."""

import contextlib
import copy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from memlint.targets.declare import declared_workloads
from memlint.targets.workload import Workload

_MODULE, _NAME = "memlint_traced", "target"
"""The module and the name of an object that was handed over, as if it were in an installed module."""


def workload_of(target: object, options: Mapping[str, Any]) -> Workload:
    """The Workload of an object, with the settings of its decorator."""
    module = getattr(target, "__module__", "")
    name = getattr(target, "__name__", type(target).__name__)
    declared = declared_workloads({name: target}, module, Path(_MODULE))
    workload = declared[0] if declared else Workload(name, name)
    changed = {**options, "dimensions": {**workload.dimensions, **options.get("dimensions", {})}}
    return replace(workload, target=f"{_MODULE}::{_NAME}", path="", qualname=_NAME, **changed)


@contextlib.contextmanager
def importable(target: object) -> Iterator[None]:
    """Let `target` be found in a module of its own. Each Program builds anew: of what is built there is a copy."""
    module = ModuleType(_MODULE)
    vars(module)[_NAME] = target if callable(target) else lambda: copy.deepcopy(target)
    sys.modules[_MODULE] = module
    try:
        yield
    finally:
        del sys.modules[_MODULE]
