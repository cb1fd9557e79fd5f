"""The partitioner's activation budget as a Change: as if the program had set it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from memlint.accelerator.private.partitioning import partitioner_settings
from memlint.memory.estimate import estimate
from memlint.memory.timeline import Timeline
from memlint.whatif.change import ChangedProgram, Situation
from memlint.whatif.changes import ActivationBudget
from tests.compile.programs import Net
from tests.whatif.programs import A100, events, program, traced

if TYPE_CHECKING:
    from memlint.workloads.construction.program import Program


def stepping(*, compiles: bool = True) -> Program:
    def make_model() -> nn.Module:
        model = Net(64, 3)
        return torch.compile(model) if compiles else model  # type: ignore[return-value]

    return program(make_model, lambda batch: {"x": torch.zeros(64 * batch, 64)})


def test_a_budget_has_the_effect_of_the_setting() -> None:
    plain = events(stepping())
    changed = events(ChangedProgram(stepping(), ActivationBudget(0.1)))
    with partitioner_settings.patch(activation_memory_budget=0.1):
        by_hand = events(stepping())
    assert changed == by_hand
    assert changed != plain
    assert events(stepping()) == plain


def test_a_plan_tries_it_where_code_is_compiled() -> None:
    candidates = []
    for compiles in (True, False):
        made = stepping(compiles=compiles)
        trace = traced(made)
        situation = Situation(made.workload, trace, estimate(Timeline.of(trace), A100, trace.nodes), ())
        candidates.append([each.budget for each in ActivationBudget.candidates(situation)])
    assert candidates == [[0.5, 0.1], []]
