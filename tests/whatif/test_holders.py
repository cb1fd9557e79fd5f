"""Who holds a Buffer at the peak, as it is written in the program."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from memlint.accelerator import state
from memlint.memory.devices import device_named
from memlint.memory.timeline import Timeline, peak_event
from memlint.session.holders import find_holders
from memlint.tracing.recorder import trace_program

A100 = device_named("a100-80gb")
SIZE = 1 << 16
LINES = Path(__file__).read_text().splitlines()


class Output(OrderedDict[str, Any]):
    """As Hugging Face returns: a mapping whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


@dataclass
class Record:
    logits: torch.Tensor


class Holding:
    """Holds one tensor of SIZE bytes as `keep` says, then makes the peak."""

    def __init__(self, keep: Any) -> None:
        self.keep = keep

    def setup(self) -> None:
        self.weight = torch.rand(8, device="cuda", requires_grad=True)

    def step(self) -> None:
        self.keep(self, torch.rand(SIZE // 4, device="cuda"))


def peak() -> None:
    x = torch.rand(SIZE, device="cuda")
    y = x + 1
    del x, y


def holder(keep: Any) -> Any:
    trace = trace_program(Holding(keep), A100).trace
    event = peak_event(Timeline.of(trace))
    wanted = [
        b.id for b in trace.buffers if b.nbytes == SIZE and b.born <= event and (b.died is None or b.died > event)
    ]
    assert len(wanted) == 1
    return find_holders(Holding(keep), A100, event, wanted).get(wanted[0])


def local(program: Any, made: torch.Tensor) -> None:
    loss = made
    del made
    peak()  # the peak
    del loss


def in_list(program: Any, made: torch.Tensor) -> None:
    history = [made]
    del made
    peak()
    del history


def in_nested(program: Any, made: torch.Tensor) -> None:
    state = {"a": {"b": (1, made)}}
    del made
    peak()
    del state


def in_output(program: Any, made: torch.Tensor) -> None:
    output = Output(loss=None, logits=made)
    del made
    peak()
    del output


def in_record(program: Any, made: torch.Tensor) -> None:
    record = Record(made)
    del made
    peak()
    del record


def view(program: Any, made: torch.Tensor) -> None:
    last = made[-1]
    del made
    peak()
    del last


def in_closure(program: Any, made: torch.Tensor) -> None:
    def use() -> float:
        return made.shape[0]

    peak()
    use()


@pytest.mark.parametrize(
    ("keep", "variable"),
    [
        (local, "loss"),
        (in_list, "history[0]"),
        (in_nested, "state['a']['b'][1]"),
        (in_output, "output.logits"),
        (in_record, "record.logits"),
        (view, "last"),
        (in_closure, "made"),
    ],
)
def test_the_variable_is_named_as_it_is_written(keep: Any, variable: str) -> None:
    found = holder(keep)
    assert found is not None
    assert found.variable == variable
    assert found.frame.function == keep.__name__
    assert found.frame.path == __file__


def test_the_line_is_where_the_function_stands_at_the_peak() -> None:
    found = holder(local)
    assert "# the peak" in LINES[found.frame.line - 1]


def test_an_attribute_of_the_program_is_found() -> None:
    def keep(program: Any, made: torch.Tensor) -> None:
        program.last = made
        del made
        peak()
        program.last = None

    found = holder(keep)
    assert found is not None
    assert found.variable == "program.last"


def test_what_the_caller_holds_too_no_function_can_let_go_of() -> None:
    def inner(argument: torch.Tensor) -> None:
        peak()

    def keep(program: Any, made: torch.Tensor) -> None:
        inner(made)

    assert holder(keep) is None


def test_an_argument_that_the_caller_gave_away_is_the_functions_own() -> None:
    def inner(argument: torch.Tensor) -> None:
        peak()

    def keep(program: Any, made: torch.Tensor) -> None:
        last = [made]
        del made
        inner(last.pop())

    assert holder(keep).names == ("argument",)


def test_all_names_that_have_to_go_are_given() -> None:
    def keep(program: Any, made: torch.Tensor) -> None:
        outputs = {"logits": made}
        peak()
        del outputs

    assert holder(keep).names == ("made", "outputs")


def test_of_an_object_the_attribute_is_given() -> None:
    def keep(program: Any, made: torch.Tensor) -> None:
        program.last = [made]
        del made
        peak()
        del program.last

    assert holder(keep).names == ("program.last",)


class Halved(torch.autograd.Function):
    """Its backward makes the peak over what the forward saved."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x + 0)
        return x[:1] / 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (saved,) = ctx.saved_tensors
        size = saved.shape
        peak()
        return gradient.expand(size) / 2


def test_what_autograd_holds_besides_the_variable_does_not_go_with_it() -> None:
    def keep(program: Any, made: torch.Tensor) -> None:
        big = made + program.weight.sum()
        del made
        y = Halved.apply(big).sum()
        del big
        y.backward()

    assert holder(keep) is None


def test_variables_of_installed_packages_are_nobodys_to_delete() -> None:
    source = "def keep(program, made):\n    kept = made\n    del made\n    peak()\n"
    scope: dict[str, Any] = {"peak": peak}
    exec(compile(source, "/env/lib/python3.13/site-packages/library/module.py", "exec"), scope)
    assert holder(scope["keep"]) is None
    exec(compile(source, __file__, "exec"), scope)
    assert holder(scope["keep"]).variable == "kept"


def test_clean_up_that_fails_over_a_variable_that_is_gone_does_not_matter() -> None:
    def keep(program: Any, made: torch.Tensor) -> None:
        try:
            peak()
        finally:
            made.sum()

    assert holder(keep).variable == "made"


def test_what_only_autograd_holds_has_no_variable() -> None:
    def keep(program: Any, made: torch.Tensor) -> None:
        y = (made * program.weight.sum()).sum()
        del made
        peak()
        del y

    assert holder(keep) is None


def test_nothing_is_left_behind() -> None:
    holder(local)
    assert not state.current.observers


def test_the_search_of_a_program_that_shadows_attributes_does_not_fail() -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    def keep(program: Any, made: torch.Tensor) -> None:
        odd, loop = Odd(), []
        loop.append(loop)
        module = nn.Linear(2, 2)
        held = {odd: made, 3: loop}
        del made
        peak()
        del held, odd, module

    assert holder(keep) is not None
