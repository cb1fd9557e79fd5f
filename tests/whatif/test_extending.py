"""The Change that docs/extending.md shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from memlint.whatif.change import ChangedProgram, Names
from tests.whatif.programs import events, mlp, program, traced, vectors

DOCS = Path(__file__).parents[2] / "docs" / "extending.md"
IMPORTS = """
from __future__ import annotations
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from memlint.memory.records import Category
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation
"""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    section = DOCS.read_text().partition("## A new Change")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.+?)```", section, re.DOTALL)
    module = ModuleType("shown")
    monkeypatch.setitem(sys.modules, "shown", module)
    exec(IMPORTS + block, vars(module))
    return module


def amsgrad(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, amsgrad=True)


def test_a_change_as_shown_is_the_program_changed_by_hand(shown: Any) -> None:
    before = program(mlp, vectors, optimizer=amsgrad)
    after = ChangedProgram(program(mlp, vectors, optimizer=amsgrad), shown.WithoutAmsgrad())
    assert events(after) == events(program(mlp, vectors)) != events(before)
    assert shown.WithoutAmsgrad().describe(Names((), {})) == "construct the optimizer with amsgrad=False"


@pytest.mark.parametrize("optimizer", [None, torch.optim.AdamW])
def test_without_what_it_changes_it_means_nothing(shown: Any, optimizer: Any) -> None:
    with pytest.raises(shown.NotApplicableError):
        traced(ChangedProgram(program(mlp, vectors, optimizer=optimizer), shown.WithoutAmsgrad()))
