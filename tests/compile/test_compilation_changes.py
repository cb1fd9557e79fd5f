"""Changes of what a program compiles: as if its `compile` setting were another, or TorchDynamo's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from memlint.accelerator import lazy_imports
from memlint.base.patching import patched
from memlint.memory.estimate import estimate
from memlint.memory.timeline import Timeline
from memlint.whatif.change import ChangedProgram, NotApplicableError, Situation
from memlint.whatif.changes import CompileModel, WithoutBreaks, WithoutCompilation
from tests.compile.programs import Net
from tests.whatif.programs import A100, events, program, traced

if TYPE_CHECKING:
    from memlint.workloads.construction.program import Program


class Reading(Net):
    """A model that reads a number from a tensor of the GPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.mean().item()
        return super().forward(x * 2) + scale


def stepping(kind: type[nn.Module] = Net, *, compiles: bool = False, **options: str) -> Program:
    def make_model() -> nn.Module:
        model = kind(64, 2)
        return torch.compile(model) if compiles else model  # type: ignore[return-value]

    return program(make_model, lambda batch: {"x": torch.zeros(64 * batch, 64)}, **options)


def test_a_compiled_model_takes_what_the_setting_has_it_take() -> None:
    changed = events(ChangedProgram(stepping(), CompileModel()))
    assert changed == events(stepping(compile="on"))
    assert changed != events(stepping())


def test_without_compilation_everything_runs_eagerly() -> None:
    assert events(ChangedProgram(stepping(compiles=True), WithoutCompilation())) == events(stepping())


def test_only_a_plan_for_compiled_code_tries_to_leave_it_out() -> None:
    tried = []
    for compiles in (True, False):
        made = stepping(compiles=compiles)
        trace = traced(made)
        situation = Situation(made.workload, trace, estimate(Timeline.of(trace), A100, trace.nodes), ())
        tried.append([*WithoutCompilation.candidates(situation), *CompileModel.candidates(situation)])
    assert tried == [[WithoutCompilation()], []]


def test_where_nothing_is_compiled_in_the_process_it_means_nothing() -> None:
    with patched([(torch, "compile", lazy_imports.compile_nothing)]), pytest.raises(NotApplicableError):
        events(ChangedProgram(stepping(), CompileModel()))


def test_a_number_that_is_read_breaks_the_graph_unless_settings_keep_it_in() -> None:
    (frame,) = traced(stepping(Reading, compiles=True)).graph_breaks
    assert (frame.path, frame.function) == (__file__, "forward")
    assert traced(ChangedProgram(stepping(Reading, compiles=True), WithoutBreaks())).graph_breaks == ()
