from __future__ import annotations

import dataclasses
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from memlint.accelerator import preexisting_tensors
from memlint.workloads import availability, placeholders
from memlint.workloads.placeholders.absent_packages import Record, record
from memlint.workloads.placeholders.objects import PlaceholderModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a Python file; what stands at the top of every model file is added."""

    def written(body: str, name: str = "model.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        head = (
            "import torch\nfrom torch import nn\nimport torch.nn.functional as F\nfrom dataclasses import dataclass\n"
        )
        path.write_text(head + textwrap.dedent(body))
        return path

    return written


@pytest.fixture(autouse=True)
def fresh_imports() -> Iterator[None]:
    """Forget what a test imported."""
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and "pytest-" in str(file):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def no_gpu_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which GPU an analysis in this process was of, and what files made on it."""
    monkeypatch.setattr(availability, "_simulated", None)
    preexisting_tensors.forget()


@pytest.fixture(autouse=True)
def no_placeholders(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget which packages a test lacked."""
    fresh = Record()
    for each in dataclasses.fields(Record):
        monkeypatch.setattr(record, each.name, getattr(fresh, each.name))
    yield
    sys.meta_path[:] = [each for each in sys.meta_path if not type(each).__module__.startswith(placeholders.__name__)]
    for name in [name for name, module in sys.modules.items() if isinstance(module, PlaceholderModule)]:
        del sys.modules[name]
